package controller

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// labelKeys are the sorted keys of node labels to copy.
type labelKeys []string

// of returns the labels of a node to copy, nil without any.
func (k labelKeys) of(node *corev1.Node) map[string]string {
	var copied map[string]string
	for _, name := range k {
		if value, found := node.Labels[name]; found {
			if copied == nil {
				copied = make(map[string]string, len(k))
			}
			copied[name] = value
		}
	}
	return copied
}

// gatherTime gathers changes of Services and policies.
const gatherTime = time.Second

// labelWatcher has the current keys, and enqueues all pods when keys are added.
type labelWatcher struct {
	client  client.Client
	keys    atomic.Pointer[labelKeys]
	changes *shell.Gatherer
}

func newLabelWatcher(c client.Client) *labelWatcher {
	return &labelWatcher{client: c, changes: shell.NewGatherer(gatherTime)}
}

func (w *labelWatcher) current(ctx context.Context) (labelKeys, error) {
	if keys := w.keys.Load(); keys != nil {
		return *keys, nil
	}
	keys, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	w.keys.CompareAndSwap(nil, &keys)
	return *w.keys.Load(), nil
}

// read returns the keys of Services and policies, besides node, zone and region: plans are by zone, and annotations of Services
// by all three.
func (w *labelWatcher) read(ctx context.Context) (labelKeys, error) {
	names := labelKeys{topology.Hostname, topology.Region, topology.Zone}
	var services corev1.ServiceList
	if err := w.client.List(ctx, &services); err != nil {
		return nil, err
	}
	for i := range services.Items {
		names = append(names, intent.KeysOfService(&services.Items[i])...)
	}
	var policies v1alpha1.RoutingPolicyList
	if err := w.client.List(ctx, &policies); err != nil {
		return nil, err
	}
	for i := range policies.Items {
		names = append(names, keysNamedBy(&policies.Items[i])...)
	}
	var clusterPolicies v1alpha1.ClusterRoutingPolicyList
	if err := w.client.List(ctx, &clusterPolicies); err != nil {
		return nil, err
	}
	for i := range clusterPolicies.Items {
		names = append(names, keysNamedBy(&clusterPolicies.Items[i])...)
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// keysNamedBy returns the topology keys of a Service or a policy.
func keysNamedBy(object client.Object) []string {
	var policy intent.Policy
	switch o := object.(type) {
	case *corev1.Service:
		return intent.KeysOfService(o)
	case *v1alpha1.RoutingPolicy:
		policy = intent.ReadPolicy(o)
	case *v1alpha1.ClusterRoutingPolicy:
		policy = intent.ReadClusterPolicy(o)
	}
	return policy.Keys()
}

// handler watches for Services and policies whose keys change.
func (w *labelWatcher) handler() shell.Handler[reconcile.Request] {
	h := shell.OnEvent(func(_ context.Context, object client.Object, _ queue) {
		if len(keysNamedBy(object)) > 0 {
			w.changes.Notice()
		}
	}, nil)
	h.UpdateFunc = func(_ context.Context, e event.UpdateEvent, _ queue) {
		if !slices.Equal(keysNamedBy(e.ObjectOld), keysNamedBy(e.ObjectNew)) {
			w.changes.Notice()
		}
	}
	return h
}

// source refreshes the keys after changes.
func (w *labelWatcher) source() source.Source {
	return w.changes.Source("reading the topology keys of Services and policies", w.refresh)
}

// refresh reads the keys again, and enqueues all pods if there are new keys.
func (w *labelWatcher) refresh(ctx context.Context, q queue) error {
	keys, err := w.read(ctx)
	if err != nil {
		return err
	}
	before := w.keys.Swap(&keys)
	if before == nil {
		return nil // no sync has used the keys
	}
	more := slices.DeleteFunc(slices.Clone(keys), func(name string) bool {
		_, known := slices.BinarySearch(*before, name)
		return known
	})
	if len(more) == 0 {
		return nil
	}
	log.FromContext(ctx).Info("Adding labels to PodLocators for topology keys of Services or policies", "labels", strings.Join(more, ","))
	var pods corev1.PodList
	if err := w.client.List(ctx, &pods); err != nil {
		w.keys.Store(before)
		return err
	}
	enqueueBulk(q, pods.Items)
	return nil
}
