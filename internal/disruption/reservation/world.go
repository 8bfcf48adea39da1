package reservation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// world reads the stores of informers. The store of pods knows its version. Nodes and workloads are gathered once and kept until one of
// them changes.
type world struct {
	pods, budgets, pdbs toolscache.Indexer
	selectors           *selectors
	departures          *expiring[types.UID, string] // the versions at which pods went
	nodes               memo[map[string]*corev1.Node]
	workloads           memo[[]coverage.Workload]
	shifts              toolscache.Indexer
	scales              *scales
	lost                *lostNodes
	synced              []syncing
	gone                func(types.NamespacedName) // called with deleted budgets
	changed             func(*v1alpha1.TopologyDisruptionBudget)
}

// syncing is a watch. It has its first list once done is true.
type syncing struct {
	what string
	done func() bool
}

// newWorld has a manager watch all kinds that budgets depend on.
func newWorld(ctx context.Context, mgr manager.Manager, scales *scales, lost *lostNodes) (*world, error) {
	w := &world{
		selectors: newSelectors(), scales: scales, lost: lost,
		departures: newExpiring[types.UID, string](clock.RealClock{}, departureTime),
	}
	var nodes toolscache.Indexer
	kinds := workloadKinds()
	workloads := make([]toolscache.Indexer, len(kinds))
	watches := []watch{
		{&w.budgets, &v1alpha1.TopologyDisruptionBudget{}, w.budgetHandler(), nil},
		{&w.pods, &corev1.Pod{}, w.podHandler(), podIndexers()},
		{&w.pdbs, &policyv1.PodDisruptionBudget{}, nil, nil},
		{&w.shifts, &v1alpha1.ZoneShift{}, nil, nil},
		{&nodes, &corev1.Node{}, forgetOnChange(&w.nodes, coverage.SameNode), nil},
	}
	for i, kind := range kinds {
		watches = append(watches, watch{&workloads[i], kind, forgetOnChange(&w.workloads, coverage.SameWorkload[client.Object]), nil})
	}
	for _, one := range watches {
		done, err := one.begin(ctx, mgr.GetCache())
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", one.object, err)
		}
		w.synced = append(w.synced, syncing{fmt.Sprintf("%T", one.object), done})
	}
	w.nodes.gather = func(string) map[string]*corev1.Node {
		byName := map[string]*corev1.Node{}
		for _, node := range ofType[*corev1.Node](nodes.List()) {
			byName[node.Name] = node
		}
		return byName
	}
	w.workloads.gather = func(namespace string) []coverage.Workload { return workloadsOf(workloads, namespace) }
	return w, nil
}

// watch puts the store of a kind into a variable. The handler and the indexers may be nil.
type watch struct {
	store    *toolscache.Indexer
	object   client.Object
	handler  toolscache.ResourceEventHandler
	indexers toolscache.Indexers
}

// begin returns a function that reports whether the first list is there.
func (w watch) begin(ctx context.Context, informers cache.Informers) (synced func() bool, err error) {
	found, err := informers.GetInformer(ctx, w.object, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	informer, ok := found.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, errors.New("the cache has no store of its own for it")
	}
	if err := informer.AddIndexers(w.indexers); err != nil {
		return nil, err
	}
	*w.store = informer.GetIndexer()
	if w.handler == nil {
		return informer.HasSynced, nil
	}
	registered, err := informer.AddEventHandler(w.handler)
	if err != nil {
		return nil, err
	}
	return registered.HasSynced, nil
}

// deleted unwraps the tombstone of an object whose deletion the watch missed.
func deleted(object any) any {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return object
}

func workloadsOf(stores []toolscache.Indexer, namespace string) []coverage.Workload {
	var found []coverage.Workload
	for _, store := range stores {
		for _, object := range inNamespace(store, namespace) {
			if w := coverage.OfObject(object); w != nil {
				found = append(found, *w)
			}
		}
	}
	return found
}

// ofType returns the objects of a type.
func ofType[T any](objects []any) []T {
	found := make([]T, 0, len(objects))
	for _, object := range objects {
		if o, ok := object.(T); ok {
			found = append(found, o)
		}
	}
	return found
}

func stored[T any](store toolscache.Store, key types.NamespacedName) (found T, ok bool) {
	object, exists, err := store.GetByKey(key.String())
	if err != nil || !exists {
		return found, false
	}
	found, ok = object.(T)
	return found, ok
}

func (w *world) pod(key types.NamespacedName) *corev1.Pod {
	pod, _ := stored[*corev1.Pod](w.pods, key)
	return pod
}

// of returns the world of a budget. It reads the pods last, after the slow requests.
func (w *world) of(ctx context.Context, budget *v1alpha1.TopologyDisruptionBudget) (coverage.World, error) {
	found := coverage.World{
		Budget: budget, Nodes: w.nodes.get(metav1.NamespaceNone), Workloads: w.workloads.get(budget.Namespace), Shifts: ofType[*v1alpha1.ZoneShift](w.shifts.List()),
	}
	found.Pods = w.podsOf(budget, found.Workloads)
	missing := coverage.OwnerRefs(found)
	if len(missing) == 0 {
		return w.located(ctx, found)
	}
	found.Workloads = slices.Clone(found.Workloads) // others read the same slice
	for _, ref := range missing {
		workload, err := w.scales.of(ctx, budget.Namespace, ref)
		if err != nil {
			return found, err
		}
		found.Workloads = append(found.Workloads, workload)
	}
	found.Pods = w.podsOf(budget, found.Workloads)
	return w.located(ctx, found)
}

// located adds the nodes of pods that the cache lacks.
func (w *world) located(ctx context.Context, found coverage.World) (coverage.World, error) {
	names := coverage.LostNodes(found)
	if len(names) == 0 {
		return found, nil
	}
	read, err := w.lost.of(ctx, names)
	if err != nil {
		return found, err
	}
	if len(read) > 0 {
		found.Nodes = maps.Clone(found.Nodes) // others read the same map
		maps.Copy(found.Nodes, read)
	}
	return found, nil
}

// podsVersion is the version of the cached pods.
func (w *world) podsVersion() string { return w.pods.LastStoreSyncResourceVersion() }

// poll is the interval of looks at a cache that is behind.
const poll = 2 * time.Millisecond

// awaitPods waits until the cache of pods has reached a version.
func (w *world) awaitPods(ctx context.Context, version string) error {
	return await(ctx, func() error {
		if has := w.podsVersion(); !shell.AtLeast(has, version) {
			return &behindError{what: "pods", has: has, needs: version}
		}
		return nil
	})
}

// await waits until missing returns no error.
func await(ctx context.Context, missing func() error) error {
	for {
		err := missing()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(poll):
		}
	}
}

// behindError reports that a cache is too old for a decision.
type behindError struct{ what, has, needs string }

func (e *behindError) Error() string {
	return fmt.Sprintf("vicinity-controller has not seen all recent changes of %s yet: it is at version %q and needs %q", e.what, e.has, e.needs)
}

// later returns the later of two versions. Either may be empty.
func later(a, b string) string {
	if a == "" || b != "" && shell.AtLeast(b, a) {
		return b
	}
	return a
}

func (w *world) budgetHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(object any) {
			if budget, ok := object.(*v1alpha1.TopologyDisruptionBudget); ok {
				w.selectors.set(budget)
			}
		},
		UpdateFunc: func(before, after any) {
			b, ok := before.(*v1alpha1.TopologyDisruptionBudget)
			a, also := after.(*v1alpha1.TopologyDisruptionBudget)
			if !ok || !also {
				return
			}
			if !askedBy(a).isSame(askedBy(b)) {
				w.selectors.set(a)
			}
			w.changed(a)
		},
		DeleteFunc: func(object any) {
			if budget, ok := deleted(object).(*v1alpha1.TopologyDisruptionBudget); ok {
				w.selectors.forget(budget.Namespace, budget.Name)
				w.gone(client.ObjectKeyFromObject(budget))
			}
		},
	}
}

func (w *world) podHandler() toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{DeleteFunc: func(object any) {
		// The version of a missed deletion is unknown.
		if pod, ok := object.(*corev1.Pod); ok && w.selectors.has(pod.Namespace) {
			w.departures.set(pod.UID, pod.ResourceVersion)
		}
	}}
}

// departureTime is how long the versions of deletions are kept. It is longer than any reservation.
const departureTime = 5 * time.Minute

// memo keeps a gathered value for each namespace until an object of the namespace changes. Callers share the value and must not change
// it.
type memo[T any] struct {
	gather func(namespace string) T

	mu    sync.Mutex
	known map[string]T
}

// get gathers under the lock, so that a concurrent change drops the value after it is kept, not before.
func (m *memo[T]) get(namespace string) T {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, found := m.known[namespace]
	if !found {
		if m.known == nil {
			m.known = map[string]T{}
		}
		value = m.gather(namespace)
		m.known[namespace] = value
	}
	return value
}

func (m *memo[T]) forget(object any) {
	if o, ok := object.(client.Object); ok {
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.known, o.GetNamespace())
	}
}

// forgetOnChange handles the events of the objects that a memo gathers from. An update without a relevant change keeps the value.
func forgetOnChange[T any, O client.Object](m *memo[T], same func(before, after O) bool) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: m.forget,
		UpdateFunc: func(before, after any) {
			b, ok := before.(O)
			a, also := after.(O)
			if !ok || !also || !same(b, a) {
				m.forget(after)
			}
		},
		DeleteFunc: func(object any) { m.forget(deleted(object)) },
	}
}
