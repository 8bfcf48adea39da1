// Package nodeaddresses publishes the addresses of all nodes and the ranges of their pods. vicinity-proxy does not let Services
// claim them.
//
// A proxy does not watch all nodes: each node reports its status every few minutes, and thousands of proxies would receive
// every report. They watch one ConfigMap instead. It is written only when the addresses change, and a larger one is written
// less often, which bounds the traffic of the API server. The chart creates and deletes the ConfigMap. The leader writes it.
package nodeaddresses

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/nodenet"
	"vicinity.dev/vicinity/internal/topology/netset"
)

const (
	// Changes are gathered for gatherTime after a write, and for gatherMore more for each published address or prefix. With
	// 5,000 separate addresses of 15 bytes, and 5,000 proxies, the API server sends at most 7 MB per second.
	gatherTime = 5 * time.Second
	gatherMore = 10 * time.Millisecond
	// missingAgain is the time until the next look for a missing ConfigMap.
	missingAgain = time.Minute
)

// The API accepts a ConfigMap of 1 MiB.
const (
	mostNodeBytes = 700_000
	mostPodBytes  = 200_000
)

// CacheOptions adds the ConfigMap of a namespace to a manager's cache. The cache must have Nodes with their addresses and pod
// ranges.
func CacheOptions(options *cache.Options, namespace string) {
	only := fields.OneTermEqualSelector("metadata.name", v1alpha1.ConfigMapNodeAddresses)
	options.ByObject[&corev1.ConfigMap{}] = cache.ByObject{Namespaces: map[string]cache.Config{namespace: {FieldSelector: only}}}
}

// Add adds the publisher to a manager, whose cache must have CacheOptions.
func Add(mgr manager.Manager, namespace string) error {
	p := newPublisher(mgr.GetClient(), clock.RealClock{}, namespace)
	request := func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: p.object}}
	}
	err := builder.ControllerManagedBy(mgr).
		Named("node-addresses").
		Watches(&corev1.Node{}, handler.EnqueueRequestsFromMapFunc(request), builder.WithPredicates(predicate.Funcs{UpdateFunc: hasOtherAddresses})).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(request)).
		Complete(p)
	if err != nil {
		return fmt.Errorf("adding the publisher of nodes' addresses: %w", err)
	}
	return nil
}

// hasOtherAddresses ignores the status updates of a Node that change neither addresses nor pod ranges.
func hasOtherAddresses(e event.UpdateEvent) bool {
	before, ok := e.ObjectOld.(*corev1.Node)
	after, also := e.ObjectNew.(*corev1.Node)
	return !ok || !also || !slices.Equal(nodenet.Addresses(before), nodenet.Addresses(after)) || !slices.Equal(nodenet.PodPrefixes(before), nodenet.PodPrefixes(after))
}

type publisher struct {
	client client.Client
	clock  clock.PassiveClock
	object types.NamespacedName
	next   time.Time // when it may be written again
}

func newPublisher(c client.Client, now clock.PassiveClock, namespace string) *publisher {
	return &publisher{client: c, clock: now, object: types.NamespacedName{Namespace: namespace, Name: v1alpha1.ConfigMapNodeAddresses}}
}

// Reconcile writes the ConfigMap if its content is wrong.
func (p *publisher) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	logger := log.FromContext(ctx)
	var nodes corev1.NodeList
	if err := p.client.List(ctx, &nodes); err != nil {
		return reconcile.Result{}, fmt.Errorf("reading Nodes: %w", err)
	}
	wanted, left := data(nodes.Items)
	object := &corev1.ConfigMap{}
	if err := p.client.Get(ctx, p.object, object); apierrors.IsNotFound(err) {
		logger.Info("Cannot publish the addresses of nodes: the ConfigMap does not exist", "configMap", p.object.String())
		return reconcile.Result{RequeueAfter: missingAgain}, nil
	} else if err != nil {
		return reconcile.Result{}, fmt.Errorf("reading ConfigMap %s: %w", p.object, err)
	}
	if maps.Equal(object.Data, wanted) && len(object.BinaryData) == 0 {
		return reconcile.Result{}, nil
	}
	now := p.clock.Now()
	if wait := p.next.Sub(now); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	object = object.DeepCopy()
	object.Data, object.BinaryData = wanted, nil
	if err := p.client.Update(ctx, object); err != nil {
		return reconcile.Result{}, fmt.Errorf("writing ConfigMap %s: %w", p.object, err)
	}
	lines := strings.Count(wanted[v1alpha1.KeyNodeAddresses]+wanted[v1alpha1.KeyPodRanges], "\n")
	p.next = now.Add(gatherTime + time.Duration(lines)*gatherMore)
	logger.Info("Published the addresses of nodes", "nodes", len(nodes.Items))
	if left > 0 {
		logger.Error(nil, "Cannot publish all addresses of nodes: they exceed the size of a ConfigMap", "missing", left)
	}
	return reconcile.Result{}, nil
}

// data returns the wanted content, and how many addresses and prefixes do not fit.
func data(nodes []corev1.Node) (wanted map[string]string, left int) {
	var addresses []netip.Addr
	var pods []netip.Prefix
	for i := range nodes {
		addresses = append(addresses, nodenet.Addresses(&nodes[i])...)
		pods = append(pods, nodenet.PodPrefixes(&nodes[i])...)
	}
	nodeText, nodesLeft := netset.Of(addresses...).Truncate(mostNodeBytes)
	podText, podsLeft := netset.New(pods).Truncate(mostPodBytes)
	return map[string]string{v1alpha1.KeyNodeAddresses: nodeText, v1alpha1.KeyPodRanges: podText}, nodesLeft + podsLeft
}
