package reservation

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
)

const shop = "shop"

var start = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

// server is the API server of a test. Its functions, if set, intercept calls.
type server struct {
	testing.TB
	client.WithWatch
	clock *clocktesting.FakeClock

	mu     sync.Mutex
	update func(write func() error) error // of a status
	get    func(object client.Object, read func() error) error
	writes int

	version string // of the pods
}

func newServer(t testing.TB, objects ...client.Object) *server {
	t.Helper()
	s := &server{TB: t, clock: clocktesting.NewFakeClock(start), version: "100"}
	s.WithWatch = fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&v1alpha1.TopologyDisruptionBudget{}).WithInterceptorFuncs(interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, name string, object client.Object, options ...client.SubResourceUpdateOption) error {
			s.mu.Lock()
			s.writes++
			update := s.update
			s.mu.Unlock()
			write := func() error { return c.SubResource(name).Update(ctx, object, options...) }
			if update != nil {
				return update(write)
			}
			return write()
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			err := c.List(ctx, list, options...)
			list.SetResourceVersion(s.version)
			return err
		},
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			s.mu.Lock()
			get := s.get
			s.mu.Unlock()
			read := func() error { return c.Get(ctx, key, object, options...) }
			if get != nil {
				return get(object, read)
			}
			return read()
		},
	}).Build()
	return s
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

// onUpdate calls a function before a write of a status.
func (s *server) onUpdate(f func(write func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.update = f
}

func (s *server) onGet(f func(object client.Object, read func() error) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.get = f
}

func (s *server) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

func (s *server) budget(name string) *v1alpha1.TopologyDisruptionBudget {
	s.Helper()
	budget := &v1alpha1.TopologyDisruptionBudget{}
	if err := s.Get(s.Context(), client.ObjectKey{Namespace: shop, Name: name}, budget); err != nil {
		s.Fatal(err)
	}
	return budget
}

// replica is a Ledger with its own caches, which the test fills.
type replica struct {
	*Ledger
	*server
}

func (s *server) replica() *replica {
	indexer := func() toolscache.Indexer {
		indexers := podIndexers()
		indexers[toolscache.NamespaceIndex] = toolscache.MetaNamespaceIndexFunc
		return toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers)
	}
	w := &world{
		selectors: newSelectors(), pods: indexer(), budgets: indexer(), pdbs: indexer(), shifts: indexer(), scales: newScales(s.WithWatch, s.clock), lost: newLostNodes(s.WithWatch, s.clock),
		departures: newExpiring[types.UID, string](s.clock, departureTime),
	}
	w.nodes.gather = func(string) map[string]*corev1.Node {
		nodes := map[string]*corev1.Node{}
		for _, zone := range []string{"a", "b", "c"} {
			nodes[zone] = aNode(zone)
		}
		return nodes
	}
	w.workloads.gather = func(string) []coverage.Workload { return nil }
	l := newLedger(s.WithWatch, w, Options{Clock: s.clock, Metrics: newMetrics()}, logr.Discard())
	w.gone, w.changed = l.forgetQueue, l.undoLateWrites
	return &replica{l, s}
}

// Nodes and workloads are gathered again only after a change that matters to budgets.
func TestMemosForgetChanges(t *testing.T) {
	gathered := map[string]int{}
	gather := func(namespace string) int { gathered[namespace]++; return gathered[namespace] }
	nodes, workloads := memo[int]{gather: gather}, memo[int]{gather: gather}
	node, set := aNode("a"), &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "web"}}
	beating, moved := node.DeepCopy(), node.DeepCopy()
	beating.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	moved.Labels = map[string]string{corev1.LabelTopologyZone: "b"}
	counted, scaled := set.DeepCopy(), set.DeepCopy()
	counted.Status.ReadyReplicas, scaled.Spec.Replicas = 3, new(int32(3))
	onNode, onSet := forgetOnChange(&nodes, coverage.SameNode), forgetOnChange(&workloads, coverage.SameWorkload[client.Object])
	want := func(what string, node, inShop, elsewhere int) {
		t.Helper()
		if n, s, e := nodes.get(""), workloads.get(shop), workloads.get("other"); n != node || s != inShop || e != elsewhere {
			t.Errorf("after %s: %d gathers of nodes, %d and %d of workloads, want %d, %d and %d", what, n, s, e, node, inShop, elsewhere)
		}
	}
	want("the start", 1, 1, 1)
	onNode.OnUpdate(node, beating)
	onSet.OnUpdate(set, counted)
	want("changes that no budget reads", 1, 1, 1)
	onNode.OnUpdate(node, moved)
	onSet.OnUpdate(set, scaled)
	want("updates", 2, 2, 1)
	onNode.OnAdd(node, false)
	onSet.OnAdd(set, false)
	want("creations", 3, 3, 1)
	onNode.OnDelete(node)
	onSet.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: set})
	want("deletions", 4, 4, 1)
}

// sees puts objects in the caches.
func (r *replica) sees(objects ...client.Object) *replica {
	r.Helper()
	for _, object := range objects {
		store := r.world.pods
		switch o := object.(type) {
		case *v1alpha1.TopologyDisruptionBudget:
			store = r.world.budgets
			r.world.budgetHandler().OnAdd(o, false)
		case *policyv1.PodDisruptionBudget:
			store = r.world.pdbs
		}
		if err := store.Update(object); err != nil {
			r.Fatal(err)
		}
	}
	return r
}

// misses removes a pod from the cache that was deleted at a version.
func (r *replica) misses(pod *corev1.Pod, version int) {
	r.Helper()
	last := pod.DeepCopy()
	last.ResourceVersion = strconv.Itoa(version)
	if err := r.world.pods.Delete(last); err != nil {
		r.Fatal(err)
	}
	r.world.podHandler().OnDelete(last)
}

// ask requests the eviction of a pod, and returns the answer in a word, or an error.
func (r *replica) ask(pod *corev1.Pod, holder string) (string, error) {
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	return r.askIn(ctx, pod, holder)
}

func (r *replica) askIn(ctx context.Context, pod *corev1.Pod, holder string) (string, error) {
	answer, err := r.Admit(ctx, Request{Pod: pod, Holder: holder})
	switch {
	case err != nil:
		return "", err
	case answer.Allowed():
		return "allowed", nil
	}
	return answer.Denial, nil
}

// want fails unless the answer is allowed, or a denial.
func (r *replica) want(pod *corev1.Pod, holder string, allowed bool) {
	r.Helper()
	answer, err := r.ask(pod, holder)
	if err != nil {
		r.Fatalf("the eviction of %s: %v", pod.Name, err)
	}
	if (answer == "allowed") != allowed {
		r.Fatalf("the eviction of %s: want allowed %t, got the answer %q", pod.Name, allowed, answer)
	}
}

// aBudget is a budget of a number of pods of an app in each zone.
func aBudget(name string, most int32) *v1alpha1.TopologyDisruptionBudget {
	budget := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, UID: types.UID("budget-" + name), ResourceVersion: "1", Generation: 1}}
	budget.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	budget.Spec.NodeSelectorTerm = &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpExists}}}
	budget.Spec.MaxUnavailable = new(intstr.FromInt32(most))
	return budget
}

// aPod is a ready pod in zone a.
func aPod(i, version int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shop, Name: fmt.Sprintf("web-%d", i), UID: types.UID(fmt.Sprintf("uid-%d", i)), ResourceVersion: strconv.Itoa(version),
			Labels: map[string]string{"app": "web"},
		},
		Spec: corev1.PodSpec{NodeName: "a"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{
			Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(start.Add(-time.Hour)),
		}}},
	}
}

// aNode is a node of a zone with a given name.
func aNode(zone string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: zone, Labels: map[string]string{corev1.LabelTopologyZone: zone}}}
}

func terminating(pod *corev1.Pod, version int) *corev1.Pod {
	ends := pod.DeepCopy()
	ends.ResourceVersion, ends.DeletionTimestamp = strconv.Itoa(version), new(metav1.NewTime(start))
	return ends
}

// eventually waits for a condition.
func (s *server) eventually(what string, is func() bool) {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); !is(); {
		if time.Now().After(deadline) {
			s.Fatalf("there is no %s", what)
		}
		select {
		case <-s.Context().Done():
			s.Fatal(s.Context().Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}
