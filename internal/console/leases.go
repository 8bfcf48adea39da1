package console

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/pager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
)

// leasesEvery is the interval of reading Leases while a page shows them.
const leasesEvery = 10 * time.Second

// askFor is the timeout of requests that a page waits for.
const askFor = 20 * time.Second

// leaseReader reads the Leases of proxies. It does not watch them: thousands of proxies renew theirs
// every few seconds.
type leaseReader struct {
	typed kubernetes.Interface
	now   func() time.Time

	mu       sync.Mutex
	next     time.Time // when to read them again
	home     string    // namespace of the last read
	leases   []*coordinationv1.Lease
	notKnown string
}

// read returns the Leases, or nil and a sentence. Without a controller it reads the namespace of
// vicinity-proxy.
func (r *leaseReader) read(ctx context.Context, controller string) (leases []*coordinationv1.Lease, notKnown string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if began := r.now(); !began.Before(r.next) || r.home != controller {
		r.home = controller
		r.leases, r.notKnown = r.ask(ctx, controller)
		now := r.now()
		r.next = now.Add(max(leasesEvery/2, askingRests*now.Sub(began)))
	}
	return r.leases, r.notKnown
}

func (r *leaseReader) ask(ctx context.Context, home string) ([]*coordinationv1.Lease, string) {
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), askFor)
	defer stop()
	leases := []*coordinationv1.Lease{}
	if home == "" {
		sets, err := r.typed.AppsV1().DaemonSets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: inspect.ProxySelector})
		if err != nil {
			return nil, leasesNotKnown(err, "DaemonSets", "daemonsets.apps in the whole cluster")
		}
		proxies := make([]*appsv1.DaemonSet, len(sets.Items))
		for i := range sets.Items {
			proxies[i] = &sets.Items[i]
		}
		if home = inspect.Home(nil, proxies); home == "" {
			return leases, "" // there is no proxy
		}
	}
	err := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return r.typed.CoordinationV1().Leases(home).List(ctx, o)
	}).EachListItem(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelProxyLease + "=true"}, func(object runtime.Object) error {
		if lease, ok := object.(*coordinationv1.Lease); ok {
			leases = append(leases, lease)
		}
		return nil
	})
	if err != nil {
		return nil, leasesNotKnown(err, "Leases", "leases.coordination.k8s.io in namespace "+home)
	}
	return leases, ""
}

// leasesNotKnown says why Leases are not known, and which right may be missing.
func leasesNotKnown(err error, kind, right string) string {
	const unknown = "which nodes have a vicinity-proxy that lives is unknown"
	if apierrors.IsForbidden(err) {
		return kind + " may not be read, so " + unknown + ". Missing right: list " + right + "; see " + inspect.PermissionsDocument
	}
	return fmt.Sprintf("%s: reading %s: %v", unknown, kind, err)
}
