package controller

import (
	"context"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing/capacity"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// nodeWatcher keeps the cluster of decisions. When it changes, all routed Services are synced: a new node changes the
// capacity of its zone, and with it most plans.
type nodeWatcher struct {
	client  client.Client
	memory  *memory
	cluster atomic.Pointer[intent.Cluster]
	changes *shell.Gatherer
	// onChange wakes Services that the memory lacks.
	onChange func(context.Context, queue)
}

// gatherTime is how long changes of nodes are gathered: shorter than an autoscaler takes, and longer than the events of
// a starting rack.
const gatherTime = time.Second

func newNodeWatcher(c client.Client, m *memory, onChange func(context.Context, queue)) *nodeWatcher {
	return &nodeWatcher{client: c, memory: m, changes: shell.NewGatherer(gatherTime), onChange: onChange}
}

func (w *nodeWatcher) current(ctx context.Context) (*intent.Cluster, error) {
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

func (w *nodeWatcher) read(ctx context.Context) (*intent.Cluster, error) {
	var list corev1.NodeList
	if err := w.client.List(ctx, &list); err != nil {
		return nil, err
	}
	return capacity.NewCluster(shell.Pointers(list.Items)), nil
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

func sameNode(a, b *corev1.Node) bool {
	if !maps.Equal(a.Labels, b.Labels) || intent.IsReady(a) != intent.IsReady(b) ||
		!slices.Equal(intent.ControlPlaneTaints(a), intent.ControlPlaneTaints(b)) {
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

func (w *nodeWatcher) source() source.Source { return w.changes.Source("reading nodes", w.refresh) }

// refresh reads the nodes again, and requeues the Services that depend on them. A later sync uses the new cluster.
func (w *nodeWatcher) refresh(ctx context.Context, q queue) error {
	cluster, err := w.read(ctx)
	if err != nil {
		return err
	}
	if w.cluster.Swap(cluster) == nil {
		return nil // no sync has used any
	}
	w.memory.wake(q)
	w.onChange(ctx, q)
	return nil
}
