package routing

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
}

func drain(q queue) []string {
	var names []string
	for q.Len() > 0 {
		request, _ := q.Get()
		names = append(names, request.Name)
		q.Done(request)
	}
	slices.Sort(names)
	return names
}

// A change of nodes requeues the Services to which it makes a difference.
func TestNodesTouchOnlyWhatTheyChange(t *testing.T) {
	byCPU := aService("cpu", v1alpha1.AnnotationTopologyMode, "vicinity.dev/cpu")
	racks := aService("racks", v1alpha1.AnnotationTopologyKeys, "example.com/rack,topology.kubernetes.io/zone,*")
	tiers := aService("tiers", v1alpha1.AnnotationTopologyKeys, "topology.kubernetes.io/zone,*")
	beside := preferring("beside")
	beside.Annotations[v1alpha1.AnnotationSameNode] = v1alpha1.Prefer
	own := aService("own")
	own.Labels = map[string]string{v1alpha1.LabelOwnZone: "true"}
	policy := &v1alpha1.RoutingPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cpu"},
		Spec:       v1alpha1.RoutingPolicySpec{Capacity: v1alpha1.Capacity{Type: v1alpha1.CapacityCPU}},
	}
	objects := append(threeZones(), policy, preferring("count"), beside, byCPU, racks, tiers, own, aService("none"))
	for i, name := range []string{"count", "cpu", "racks", "tiers", "own", "none", "beside"} {
		slice := aSlice(name, i, twelve)
		if name != "tiers" {
			for i := range slice.Endpoints {
				slice.Endpoints[i].NodeName = nil
			}
		}
		objects = append(objects, slice)
	}
	all := []string{"beside", "count", "cpu", "racks", "tiers"}
	for _, test := range []struct {
		name   string
		change func(t *testing.T, w *world)
		want   []string
	}{
		{"nothing", func(*testing.T, *world) {}, nil},
		{"a node more, where there is one", func(_ *testing.T, w *world) { w.create(aNode("a-2", "a")) }, []string{"beside", "count", "cpu"}},
		{"a node more in a new zone", func(_ *testing.T, w *world) { w.create(aNode("d-1", "d")) }, all},
		{"a node in each zone more, as many as there were", func(_ *testing.T, w *world) {
			for _, zone := range []string{"a", "b", "c"} {
				w.create(aNode(zone+"-2", zone))
			}
		}, []string{"beside"}},
		{"more CPU", func(t *testing.T, w *world) {
			w.node(t, "a-1", func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("8") })
		}, []string{"cpu"}},
		{"a label that nobody asks for", func(t *testing.T, w *world) {
			w.node(t, "a-1", func(n *corev1.Node) { n.Labels["example.com/owner"] = "me" })
		}, nil},
		{"a rack", func(t *testing.T, w *world) {
			w.node(t, "a-1", func(n *corev1.Node) { n.Labels["example.com/rack"] = "r1" })
		}, []string{"racks"}},
		{"a node that is not ready", func(t *testing.T, w *world) {
			w.create(aNode("a-2", "a"))
			w.reconciler.nodes.refreshed(t)
			w.node(t, "a-2", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}, []string{"beside", "count", "cpu"}},
		{"a server that takes pods now", func(t *testing.T, w *world) {
			server := aNode("a-2", "a")
			server.Labels[v1alpha1.LabelControlPlane] = ""
			server.Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
			w.create(server)
			w.reconciler.nodes.refreshed(t)
			w.node(t, "a-2", func(n *corev1.Node) { n.Spec.Taints = nil })
		}, []string{"beside", "count", "cpu"}},
		{"a zone that has lost its nodes", func(t *testing.T, w *world) {
			w.node(t, "a-1", func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionUnknown })
		}, all},
		{"the nodes of two zones exchanged", func(t *testing.T, w *world) {
			w.node(t, "a-1", func(n *corev1.Node) { n.Labels[topology.Zone] = "b" })
			w.node(t, "b-1", func(n *corev1.Node) { n.Labels[topology.Zone] = "a" })
		}, []string{"beside", "tiers"}}, // whose endpoints say which nodes they are on
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, objects...)
			for _, name := range []string{"beside", "count", "cpu", "racks", "tiers", "own", "none"} {
				w.settle(name)
			}
			test.change(t, w)
			q := newQueue()
			if err := w.reconciler.nodes.refresh(context.Background(), q); err != nil {
				t.Fatal(err)
			}
			if got := drain(q); !slices.Equal(got, test.want) {
				t.Errorf("requeued %v, want %v", got, test.want)
			}
		})
	}
}

// refreshed brings the Services' fingerprints up to date with the nodes.
func (w *nodeWatcher) refreshed(t *testing.T) {
	t.Helper()
	if err := w.refresh(context.Background(), newQueue()); err != nil {
		t.Fatal(err)
	}
	cluster := w.cluster.Load()
	for key, v := range w.memory.views {
		v.fingerprint = v.dependencies.of(cluster)
		w.memory.views[key] = v
	}
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := w.client.Create(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) node(t *testing.T, name string, change func(*corev1.Node)) {
	t.Helper()
	node := new(corev1.Node)
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: name}, node); err != nil {
		t.Fatal(err)
	}
	change(node)
	status := node.Status
	if err := w.client.Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	node.Status = status
	if err := w.client.Status().Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
}

// What a node says of itself every few minutes does not even make anybody look.
func TestNodesThatSayNothingNew(t *testing.T) {
	before := aNode("a-1", "a")
	before.Labels[v1alpha1.LabelControlPlane] = ""
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"the time":      {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"images":        {func(n *corev1.Node) { n.Status.Images = make([]corev1.ContainerImage, 3) }, false},
		"disk":          {func(n *corev1.Node) { n.Status.Allocatable["ephemeral-storage"] = resource.MustParse("1Gi") }, false},
		"an annotation": {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, false},
		"the same CPU":  {func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("4000m") }, false},
		"CPU":           {func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("3") }, true},
		"memory":        {func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("3Gi") }, true},
		"a label":       {func(n *corev1.Node) { n.Labels["a"] = "b" }, true},
		"readiness":     {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"a taint that counts": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
		}, true},
		"another taint":       {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }, false},
		"no readiness at all": {func(n *corev1.Node) { n.Status.Conditions = nil }, true},
	} {
		after := before.DeepCopy()
		test.change(after)
		if same := sameNode(before, after); same == test.want {
			t.Errorf("%s: the same %t", name, same)
		}
	}
}

// The cache keeps of a node what decisions look at: it makes the same cluster.
func TestTrimmedNodesMakeTheSameCluster(t *testing.T) {
	node := aNode("a-1", "a")
	node.Labels["example.com/rack"] = "r1"
	node.ManagedFields = make([]metav1.ManagedFieldsEntry, 3)
	node.Status.Images = make([]corev1.ContainerImage, 50)
	node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")
	node.Status.Allocatable["ephemeral-storage"] = resource.MustParse("1Gi")
	node.Status.Conditions = append([]corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}, node.Status.Conditions...)
	object, err := trimNode(node.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	trimmed := object.(*corev1.Node)
	if !sameNode(node, trimmed) || len(trimmed.Status.Conditions) != 1 || len(trimmed.Status.Images) != 0 || len(trimmed.ManagedFields) != 0 || len(trimmed.Status.Allocatable) != 2 {
		t.Errorf("trimmed to %+v", trimmed)
	}
	server := node.DeepCopy()
	server.Labels[v1alpha1.LabelControlPlane] = ""
	server.Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}, {Key: "a"}}
	kept, err := trimNode(server)
	if err != nil {
		t.Fatal(err)
	}
	if trimmed := kept.(*corev1.Node); len(trimmed.Spec.Taints) != 1 || translate.NewCluster([]*corev1.Node{trimmed}).Counted > 0 {
		t.Errorf("a server that takes no pods is trimmed to %+v", trimmed.Spec)
	}
	for _, capacity := range []translate.Capacity{{}, {Type: translate.CapacityCPU}} {
		if whole, trim := translate.NewCluster([]*corev1.Node{node}).Region(capacity, nil), translate.NewCluster([]*corev1.Node{trimmed}).Region(capacity, nil); fmt.Sprint(whole) != fmt.Sprint(trim) {
			t.Errorf("%v becomes %v", whole, trim)
		}
	}
}
