package cluster

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/watcher"
)

// An API server refuses requests for a moment while it starts, and until it knows a new role. If it keeps refusing, the
// next list comes after unreadAgain, doubled up to mostUnreadAgain.
const (
	unreadAgain     = 10 * time.Second
	mostUnreadAgain = 10 * time.Minute
)

// watchAddresses watches the addresses of the cluster. Without them Services are served, and fewer claims are refused.
func (w *Watches) watchAddresses(ctx context.Context) {
	c := w.catalogue
	rangesUnread := func(err error) {
		w.log.Info("The ranges of cluster IPs are unknown: Services may claim unassigned addresses in them", "cause", err.Error())
		w.markListed(ResourceRanges)
	}
	follow(ctx, w,
		ResourceRanges, w.readable(w.api.ServiceRanges(), rangesUnread),
		&watcher.Store[*networkingv1.ServiceCIDR]{
			Set:    func(one *networkingv1.ServiceCIDR) { c.Fill(func() { c.SetRange(one) }) },
			Remove: func(one *networkingv1.ServiceCIDR) { c.Fill(func() { c.RemoveRange(one) }) },
			Replace: func(list []*networkingv1.ServiceCIDR, _ string) {
				c.Fill(func() { c.ReplaceRanges(list) })
				w.markListed(ResourceRanges)
			},
		},
	)
	if w.scope.Namespace == "" {
		return
	}
	unpublished := func(cause string) {
		w.log.Info("The addresses of other nodes are unknown: Services may claim them", "cause", cause)
		w.markListed(ResourceConfigMaps)
	}
	follow(ctx, w,
		ResourceConfigMaps, w.readable(w.api.NodeAddresses(w.scope.Namespace), func(err error) { unpublished(err.Error()) }),
		&watcher.Store[*corev1.ConfigMap]{
			Set: w.setNodeAddresses,
			Remove: func(*corev1.ConfigMap) {
				w.log.Info("The addresses of nodes are no longer published: the last published ones stay reserved")
			},
			Replace: func(list []*corev1.ConfigMap, _ string) {
				if len(list) == 0 {
					unpublished("there is no ConfigMap " + w.scope.Namespace + "/" + v1alpha1.ConfigMapNodeAddresses)
					return
				}
				w.setNodeAddresses(list[0])
				w.markListed(ResourceConfigMaps)
			},
		},
	)
}

func (w *Watches) readable(source cache.ListerWatcher, unread func(error)) cache.ListerWatcher {
	return &watcher.Optional{
		ListerWatcher: source, Lacks: unreadable, After: w.absentAfter, Absent: unread, Again: unreadAgain, MostAgain: mostUnreadAgain,
	}
}

func unreadable(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) }

// setNodeAddresses stores the published addresses. Without data the last ones count.
func (w *Watches) setNodeAddresses(published *corev1.ConfigMap) {
	if _, written := published.Data[v1alpha1.KeyNodeAddresses]; !written {
		w.log.Info("vicinity-controller has not published the addresses of nodes yet")
		return
	}
	var err error
	w.catalogue.Fill(func() { err = w.catalogue.SetNodeAddresses(published) })
	if err != nil {
		w.log.Error(err, "Ignored invalid addresses of nodes", "configMap", KeyOf(published).String())
	}
}
