package reservation

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1alpha3 "k8s.io/api/scheduling/v1alpha3"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/coverage"
)

// world reads caches. Pods and budgets come from the stores of informers, whose version says how new they are. The rest
// is computed once and kept until it changes.
type world struct {
	pods, budgets, pdbs toolscache.Indexer
	selectors           *selectors
	departures          *expiring[types.UID, string]   // the versions at which pods went
	nodes               memos[map[string]*corev1.Node] // of the whole cluster, by the namespace ""
	workloads           memos[[]coverage.Workload]
	units               memos[map[string]string]
	scales              *scales
	lost                *lostNodes
	synced              []syncing
	gone                func(types.NamespacedName) // is called with budgets that are deleted
	changed             func(*v1alpha1.TopologyDisruptionBudget)
}

// syncing is a watch that has its first list once done says so.
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
	watch := func(object client.Object, handler toolscache.ResourceEventHandler, indexers toolscache.Indexers) (toolscache.Indexer, error) {
		informer, err := informerOf(ctx, mgr.GetCache(), object)
		if err != nil {
			return nil, err
		}
		if indexers != nil {
			if err := informer.AddIndexers(indexers); err != nil {
				return nil, fmt.Errorf("indexing %T: %w", object, err)
			}
		}
		done := informer.HasSynced
		if handler != nil {
			registered, err := informer.AddEventHandler(handler)
			if err != nil {
				return nil, fmt.Errorf("watching %T: %w", object, err)
			}
			done = registered.HasSynced
		}
		w.synced = append(w.synced, syncing{fmt.Sprintf("%T", object), done})
		return informer.GetIndexer(), nil
	}
	var err error
	if w.budgets, err = watch(&v1alpha1.TopologyDisruptionBudget{}, w.budgetHandler(), nil); err != nil {
		return nil, err
	}
	if w.pods, err = watch(&corev1.Pod{}, w.podHandler(), podIndexers()); err != nil {
		return nil, err
	}
	if w.pdbs, err = watch(&policyv1.PodDisruptionBudget{}, nil, nil); err != nil {
		return nil, err
	}
	nodes, err := watch(&corev1.Node{}, changes(sameNode, func(client.Object) { w.nodes.forget("") }), nil)
	if err != nil {
		return nil, err
	}
	w.nodes.gather = func(string) map[string]*corev1.Node {
		all := nodes.List()
		byName := make(map[string]*corev1.Node, len(all))
		for _, object := range all {
			if node, ok := object.(*corev1.Node); ok {
				byName[node.Name] = node
			}
		}
		return byName
	}
	var workloads []toolscache.Indexer
	for _, kind := range workloadKinds() {
		store, err := watch(kind, changes(sameWorkload, func(o client.Object) { w.workloads.forget(o.GetNamespace()) }), nil)
		if err != nil {
			return nil, err
		}
		workloads = append(workloads, store)
	}
	w.workloads.gather = func(namespace string) []coverage.Workload { return workloadsOf(workloads, namespace) }
	kinds, err := GroupKinds(mgr.GetScheme(), mgr.GetRESTMapper())
	if err != nil {
		return nil, err
	}
	var groups []toolscache.Indexer
	for _, kind := range kinds {
		store, err := watch(kind, changes(sameGeneration, func(o client.Object) { w.units.forget(o.GetNamespace()) }), nil)
		if err != nil {
			return nil, err
		}
		groups = append(groups, store)
	}
	w.units.gather = func(namespace string) map[string]string { return unitsOf(groups, namespace) }
	return w, nil
}

// changes calls a function for objects that are created, deleted, or not the same as before.
func changes(same func(before, after client.Object) bool, f func(client.Object)) toolscache.ResourceEventHandler {
	call := func(object any) {
		if o, ok := object.(client.Object); ok {
			f(o)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc: call,
		UpdateFunc: func(before, after any) {
			b, ok := before.(client.Object)
			a, also := after.(client.Object)
			if !ok || !also || a.GetUID() != b.GetUID() || !same(b, a) {
				call(after)
			}
		},
		DeleteFunc: func(object any) { call(deleted(object)) },
	}
}

// deleted unwraps the tombstone of an object whose deletion the watch missed.
func deleted(object any) any {
	if unknown, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		return unknown.Obj
	}
	return object
}

func sameNode(a, b client.Object) bool {
	before, ok := a.(*corev1.Node)
	after, also := b.(*corev1.Node)
	return ok && also && coverage.SameNode(before, after)
}

func sameGeneration(a, b client.Object) bool { return a.GetGeneration() == b.GetGeneration() }

// sameWorkload reports whether a workload asks for the same pods. A DaemonSet has their number in its status.
func sameWorkload(a, b client.Object) bool {
	if before, ok := a.(*appsv1.DaemonSet); ok {
		after, ok := b.(*appsv1.DaemonSet)
		return ok && before.Generation == after.Generation && before.Status.DesiredNumberScheduled == after.Status.DesiredNumberScheduled
	}
	return sameGeneration(a, b) && len(a.GetOwnerReferences()) == len(b.GetOwnerReferences())
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

func unitsOf(stores []toolscache.Indexer, namespace string) map[string]string {
	var groups []schedulingv1beta1.PodGroup
	var composites []schedulingv1alpha3.CompositePodGroup
	for _, store := range stores {
		for _, object := range inNamespace(store, namespace) {
			switch g := object.(type) {
			case *schedulingv1beta1.PodGroup:
				groups = append(groups, *g)
			case *schedulingv1alpha3.PodGroup:
				groups = append(groups, ofAlpha(g))
			case *schedulingv1alpha3.CompositePodGroup:
				composites = append(composites, *g)
			}
		}
	}
	return coverage.Units(groups, composites)
}

// ofAlpha converts the fields of an older PodGroup that Units reads.
func ofAlpha(g *schedulingv1alpha3.PodGroup) schedulingv1beta1.PodGroup {
	group := schedulingv1beta1.PodGroup{ObjectMeta: g.ObjectMeta}
	group.Spec.ParentCompositePodGroupName = g.Spec.ParentCompositePodGroupName
	if mode := g.Spec.DisruptionMode; mode != nil && mode.All != nil {
		group.Spec.DisruptionMode = &schedulingv1beta1.DisruptionMode{All: &schedulingv1beta1.AllDisruptionMode{}}
	}
	return group
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

// of is the world of a budget. It reads the pods last, after requests that take a while.
func (w *world) of(ctx context.Context, budget *v1alpha1.TopologyDisruptionBudget) (coverage.World, error) {
	found := coverage.World{
		Budget: budget, Nodes: w.nodes.get(""), Workloads: w.workloads.get(budget.Namespace), Units: w.units.get(budget.Namespace),
	}
	found.Pods = w.podsOf(budget, found.Workloads)
	missing := coverage.OwnerRefs(found)
	if len(missing) == 0 {
		return w.located(ctx, found)
	}
	found.Workloads = append([]coverage.Workload(nil), found.Workloads...)
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
		found.Nodes = maps.Clone(found.Nodes)
		maps.Copy(found.Nodes, read)
	}
	return found, nil
}

// podsVersion is the version of the cached pods.
func (w *world) podsVersion() string { return w.pods.LastStoreSyncResourceVersion() }

// poll is the time between two looks at a cache that is behind.
const poll = 2 * time.Millisecond

// awaitPods waits until the cache of pods has reached a version.
func (w *world) awaitPods(ctx context.Context, version string) error {
	return await(ctx, func() error {
		if has := w.podsVersion(); !isAtLeast(has, version) {
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

// behindError says that a cache is too old for a decision.
type behindError struct{ what, has, needs string }

func (e *behindError) Error() string {
	return fmt.Sprintf("vicinity-controller does not know all recent changes of %s yet: it has seen version %q, and needs %q", e.what, e.has, e.needs)
}

// isAtLeast reports whether a version is another one or later. Any version is later than none.
func isAtLeast(version, than string) bool {
	if than == "" {
		return true
	}
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order >= 0
}

func isVersion(text string) bool {
	_, err := resourceversion.CompareResourceVersion(text, text)
	return err == nil
}

// later is the later of two versions. Either may be none.
func later(a, b string) string {
	if a == "" || b != "" && isAtLeast(b, a) {
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
		// The version of a missed deletion is not known.
		if pod, ok := object.(*corev1.Pod); ok && w.selectors.has(pod.Namespace) {
			w.departures.set(pod.UID, pod.ResourceVersion)
		}
	}}
}

// departureTime is how long the versions of deletions are kept: longer than any reservation lasts.
const departureTime = 5 * time.Minute

// memos keep a value for each namespace from the first read until it is forgotten.
type memos[T any] struct {
	gather func(namespace string) T

	mu    sync.Mutex
	known map[string]T
}

func (m *memos[T]) get(namespace string) T {
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

func (m *memos[T]) forget(namespace string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.known, namespace)
}
