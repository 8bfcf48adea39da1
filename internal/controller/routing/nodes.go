package routing

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"vicinity.dev/vicinity/internal/capacity"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

// nodeWatcher keeps the cluster that decisions are made for, and requeues the Services that
// depend on what changes of it.
type nodeWatcher struct {
	client   client.Client
	memory   *memory
	policies *policyRequests
	cluster  atomic.Pointer[translate.Cluster]
	changes  *shell.Gatherer
	// relabelled are nodes that changed zones and whose Services are still to be requeued.
	relabelled map[string]bool
}

// gatherTime is how long changes of nodes are gathered: shorter than an autoscaler takes, and
// longer than the events of a rack that comes up.
const gatherTime = 200 * time.Millisecond

func newNodeWatcher(c client.Client, m *memory, policies *policyRequests) *nodeWatcher {
	return &nodeWatcher{
		client: c, memory: m, policies: policies, changes: shell.NewGatherer(gatherTime), relabelled: map[string]bool{},
	}
}

func (w *nodeWatcher) current(ctx context.Context) (*translate.Cluster, error) {
	if cluster := w.cluster.Load(); cluster != nil {
		return cluster, nil
	}
	cluster, err := w.read(ctx)
	if err != nil {
		return nil, err
	}
	if !w.cluster.CompareAndSwap(nil, cluster) {
		cluster = w.cluster.Load()
	}
	return cluster, nil
}

func (w *nodeWatcher) read(ctx context.Context) (*translate.Cluster, error) {
	var list corev1.NodeList
	if err := w.client.List(ctx, &list); err != nil {
		return nil, err
	}
	nodes := make([]*corev1.Node, len(list.Items))
	for i := range list.Items {
		nodes[i] = &list.Items[i]
	}
	return capacity.NewCluster(nodes), nil
}

// handler notes relevant changes of nodes. Nodes report their status every few minutes, mostly
// unchanged.
func (w *nodeWatcher) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(context.Context, event.CreateEvent, queue) { w.changes.Notice() },
		DeleteFunc: func(context.Context, event.DeleteEvent, queue) { w.changes.Notice() },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ queue) {
			before, ok := e.ObjectOld.(*corev1.Node)
			after, also := e.ObjectNew.(*corev1.Node)
			if !ok || !also || !sameNode(before, after) {
				w.changes.Notice()
			}
		},
	}
}

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// sameNode compares what decisions look at.
func sameNode(a, b *corev1.Node) bool {
	if !maps.Equal(a.Labels, b.Labels) || readiness(a) != readiness(b) ||
		!slices.Equal(translate.ControlPlaneTaints(a), translate.ControlPlaneTaints(b)) {
		return false
	}
	for _, name := range countedResources {
		x, y := a.Status.Allocatable[name], b.Status.Allocatable[name]
		if x.Cmp(y) != 0 {
			return false
		}
	}
	return true
}

func readiness(node *corev1.Node) corev1.ConditionStatus {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status
		}
	}
	return corev1.ConditionUnknown
}

// source follows the nodes.
func (w *nodeWatcher) source() source.Source { return w.changes.Source("reading nodes", w.refresh) }

// refresh reads the nodes anew and requeues the Services that depend on what has changed.
func (w *nodeWatcher) refresh(ctx context.Context, q queue) error {
	cluster, err := w.read(ctx)
	if err != nil {
		return err
	}
	before := w.cluster.Swap(cluster)
	if before == nil {
		return nil // no sync has used any
	}
	for key := range w.touched(cluster) {
		q.Add(reconcile.Request{NamespacedName: key})
	}
	w.noteRelabelled(before, cluster)
	computed, err := computedPolicies(ctx, w.client)
	if err != nil {
		return err
	}
	for _, policy := range computed {
		w.policies.ask(policy)
	}
	moved, err := w.moved(ctx)
	if err != nil {
		return err // the nodes stay noted
	}
	clear(w.relabelled)
	for key := range moved {
		q.Add(reconcile.Request{NamespacedName: key})
	}
	return nil
}

// touched are the Services for which the cluster has changed.
func (w *nodeWatcher) touched(cluster *translate.Cluster) map[types.NamespacedName]bool {
	prints := map[nodeDependencies]fingerprint{}
	touched := map[types.NamespacedName]bool{}
	w.memory.each(func(key types.NamespacedName, v *view) {
		if v.dependencies == (nodeDependencies{}) {
			return
		}
		seen, known := prints[v.dependencies]
		if !known {
			seen = v.dependencies.of(cluster)
			prints[v.dependencies] = seen
		}
		if seen != v.fingerprint {
			touched[key] = true
		}
	})
	return touched
}

// noteRelabelled notes the nodes that are in another zone now.
func (w *nodeWatcher) noteRelabelled(before, after *translate.Cluster) {
	for _, name := range after.Names() {
		if zone := before.Labels(name)[topology.Zone]; zone != after.Labels(name)[topology.Zone] {
			w.relabelled[name] = true
		}
	}
}

// moved are the Services with endpoints on nodes that were relabelled.
func (w *nodeWatcher) moved(ctx context.Context) (map[types.NamespacedName]bool, error) {
	if len(w.relabelled) == 0 {
		return nil, nil
	}
	var list discoveryv1.EndpointSliceList
	if err := w.client.List(ctx, &list); err != nil {
		return nil, err
	}
	moved := map[types.NamespacedName]bool{}
	for i := range list.Items {
		slice := &list.Items[i]
		if service := slice.Labels[discoveryv1.LabelServiceName]; service != "" && runsOn(slice, w.relabelled) {
			moved[types.NamespacedName{Namespace: slice.Namespace, Name: service}] = true
		}
	}
	return moved, nil
}

func runsOn(slice *discoveryv1.EndpointSlice, nodes map[string]bool) bool {
	for i := range slice.Endpoints {
		if node := slice.Endpoints[i].NodeName; node != nil && nodes[*node] {
			return true
		}
	}
	return false
}
