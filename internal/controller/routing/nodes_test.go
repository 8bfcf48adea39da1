package routing

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing"
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
		{"a node that is old", func(t *testing.T, w *world) {
			w.node(t, "a-1", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.30.0" })
		}, []string{"beside", "count", "cpu", "own", "racks", "tiers"}},
		{"a node with another patch release", func(t *testing.T, w *world) {
			w.node(t, "a-1", func(n *corev1.Node) { n.Status.NodeInfo.KubeletVersion = "v1.37.1" })
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

// As long as hints serve a Service that waits for vicinity-proxy, it matters which proxies
// the nodes have.
func TestProxiesMatterUntilVicinityProxyServes(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile *routing.Decision
		want      bool
	}{
		"waits":               {&routing.Decision{Delivery: allocate.DeliveryHints}, true},
		"waits without hints": {&routing.Decision{Delivery: allocate.DeliveryNone}, false},
		"is served":           {nil, false},
	} {
		if got := nodeDependenciesOf(&routing.Decision{Delivery: allocate.DeliveryGroups, Meanwhile: test.meanwhile}).proxies; got != test.want {
			t.Errorf("a Service that %s: %t", name, got)
		}
	}
}

// If the slices cannot be read when a node gets another zone, the Services on it are
// looked for the next time.
func TestRelabelledNodesAreKept(t *testing.T) {
	own := aService("own")
	own.Labels = map[string]string{v1alpha1.LabelOwnZone: "true"}
	w := newWorld(t, append(threeZones(), own, aSlice("own", 0, twelve))...)
	w.settle("own")
	w.node(t, "a-1", func(n *corev1.Node) { n.Labels[topology.Zone] = "b" })
	nodes := w.reconciler.nodes
	nodes.client = sliceless{w.client}
	q := newQueue()
	if err := nodes.refresh(context.Background(), q); err == nil {
		t.Fatal("no error")
	}
	nodes.client = w.client
	for _, want := range []int{1, 0} {
		if err := nodes.refresh(context.Background(), q); err != nil {
			t.Fatal(err)
		}
		if got := drain(q); len(got) != want {
			t.Errorf("requeued %v, want %d", got, want)
		}
	}
}

// sliceless is a cache that cannot read slices.
type sliceless struct{ client.Client }

func (c sliceless) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if _, wanted := list.(*discoveryv1.EndpointSliceList); wanted {
		return errors.New("not now")
	}
	return c.Client.List(ctx, list, options...)
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
		synctest.Test(t, func(t *testing.T) {
			w := newNodeWatcher(nil, newMemory(), new(policyRequests))
			noticed := false
			source := w.changes.Source("a test", func(context.Context, queue) error {
				noticed = true
				return nil
			})
			if err := source.Start(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			w.handler().Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, nil)
			time.Sleep(gatherTime)
			synctest.Wait()
			if noticed != test.want {
				t.Errorf("%s: noticed %t, want %t", name, noticed, test.want)
			}
		})
	}
}

// The cache keeps of a node what decisions look at: it makes the same cluster.
func TestTrimmedNodesMakeTheSameCluster(t *testing.T) {
	node := aNode("a-1", "a")
	node.Labels["example.com/rack"] = "r1"
	node.ManagedFields = make([]metav1.ManagedFieldsEntry, 3)
	node.Status.Images = make([]corev1.ContainerImage, 50)
	node.Status.NodeInfo = corev1.NodeSystemInfo{KubeletVersion: "v1.30.0", KernelVersion: "6.1"}
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
	if proxies := translate.NewCluster([]*corev1.Node{trimmed}).Proxies(); len(proxies.WithoutHints) != 1 || trimmed.Status.NodeInfo.KernelVersion != "" {
		t.Errorf("trimmed to %+v, proxies %+v", trimmed, proxies)
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

// Changes are noticed by the loop, and collected.
func TestNodeWatcherRuns(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	w.settle("web")
	nodes := w.reconciler.nodes
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	q := newQueue()
	if err := nodes.source().Start(ctx, q); err != nil {
		t.Fatal(err)
	}
	w.create(aNode("d-1", "d"))
	nodes.handler().Create(ctx, event.CreateEvent{}, q)
	got := make(chan string, 1)
	go func() {
		request, _ := q.Get()
		got <- request.Name
	}()
	select {
	case name := <-got:
		if name != "web" {
			t.Errorf("requeued %s", name)
		}
	case <-time.After(time.Minute):
		t.Error("nothing is requeued")
	}
}

// BenchmarkNodeEvent is what a change of a node costs where there are 5,000 nodes and
// 10,000 routed Services, to none of which it makes a difference, or to all.
func BenchmarkNodeEvent(b *testing.B) {
	const count = 10000
	clusters := make([]*translate.Cluster, 2)
	var nodes []*corev1.Node
	for i := range 5000 {
		nodes = append(nodes, aNode(fmt.Sprintf("node-%d", i), []string{"a", "b", "c"}[i%3]))
	}
	clusters[0] = translate.NewCluster(nodes)
	clusters[1] = translate.NewCluster(nodes[1:])
	m := newMemory()
	asked := nodeDependencies{needs: shares, capacity: translate.Capacity{Type: translate.CapacityNodes}}
	for i := range count {
		key := types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}
		m.show(key, view{dependencies: asked, fingerprint: asked.of(clusters[0])})
	}
	w := newNodeWatcher(nil, m, new(policyRequests))
	b.Run("cluster", func(b *testing.B) {
		for b.Loop() {
			translate.NewCluster(nodes)
		}
	})
	for i, want := range []int{0, count} {
		b.Run(fmt.Sprintf("touched=%d", want), func(b *testing.B) {
			for b.Loop() {
				if got := len(w.touched(clusters[i])); got != want {
					b.Fatalf("%d touched", got)
				}
			}
		})
	}
}

// BenchmarkSync is what one sync of a Service costs, without the API server.
func BenchmarkSync(b *testing.B) {
	w := newWorld(b, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	w.settle("web")
	service, eps := w.service("web"), w.slices("web")
	r := w.reconciler
	r.client = still{w.client, service, eps}
	request := serviceNamed("shop", "web")[0]
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Reconcile(context.Background(), request); err != nil {
			b.Fatal(err)
		}
	}
	if sent := w.patches; len(sent) > 3 {
		b.Fatalf("sent %q", sent)
	}
}
