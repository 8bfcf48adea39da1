package controller

import (
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/topology"
)

func proxyLeaseOf(node, programmed string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProxyLeasePrefix + node, Annotations: map[string]string{v1alpha1.AnnotationProgrammed: programmed}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// readyNode returns a ready node in zone a.
func readyNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.Zone: "a"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func bareTable(t *testing.T, runs NodeRule, nodes ...*corev1.Node) (*proxyTable, client.Client, *clocktesting.FakePassiveClock) {
	t.Helper()
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	builder := fake.NewClientBuilder()
	for _, node := range nodes {
		builder = builder.WithObjects(node)
	}
	c := builder.Build()
	return newProxyTable(c, clock, runs), c, clock
}

// A Service reports the nodes that its hand-over waits for. It is woken when all of them are ready, and when the report
// is wrong, also after the hand-over.
func TestServicesFollowProxies(t *testing.T) {
	table, nodes, clock := bareTable(t, NodeRule{}, readyNode("a1"), readyNode("b1"))
	q := newQueue()
	defer q.ShutDown()
	const programmed = "7"
	state := handover.State{Service: "shop/web", Wanted: true, Written: true, Groups: []*v1alpha1.EndpointGroup{
		{ObjectMeta: metav1.ObjectMeta{Name: "web", ResourceVersion: programmed}},
	}}
	sync := func() handover.Step {
		t.Helper()
		var err error
		if state.Proxies, err = table.nodes(t.Context()); err != nil {
			t.Fatal(err)
		}
		step := state.Next(clock.Now())
		if state.Memory = step.Memory; step.Take {
			state.ProxyName = v1alpha1.ServiceProxyName
		}
		table.trackService(types.NamespacedName{Namespace: "shop", Name: "web"}, step)
		return step
	}
	speaking := map[string]string{} // what proxies have programmed, by node
	// look checks the table after some time. A woken Service then reports the missing nodes.
	look := func(when, missing string, woken bool) {
		t.Helper()
		clock.SetTime(clock.Now().Add(checkEvery))
		for node, programmed := range speaking {
			table.observe(proxyLeaseOf(node, programmed, clock.Now()))
		}
		if err := table.checkMissing(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if got := len(drain(q)) > 0; got != woken {
			t.Errorf("%s: woken %t, want %t", when, got, woken)
		}
		if !woken {
			return
		}
		if got := strings.Join(sync().Missing, " "); got != missing {
			t.Errorf("%s: missing are %q, want %q", when, got, missing)
		}
	}
	sync()
	look("nothing changes", "", false)
	speaking["a1"] = ""
	look("the proxy of a1 is there, and has programmed nothing", "", false)
	speaking["a1"] = programmed
	look("the proxy of a1 is ready", "b1", true)
	look("it goes on being ready", "", false)
	if err := nodes.Create(t.Context(), readyNode("c1")); err != nil {
		t.Fatal(err)
	}
	look("a node is new", "b1 c1", true)
	if err := nodes.Delete(t.Context(), readyNode("c1")); err != nil {
		t.Fatal(err)
	}
	look("the node is gone", "b1", true)
	down := new(corev1.Node)
	if err := nodes.Get(t.Context(), types.NamespacedName{Name: "b1"}, down); err != nil {
		t.Fatal(err)
	}
	down.Status.Conditions[0].Status, down.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, metav1.NewTime(clock.Now().Add(-time.Hour))
	if err := nodes.Status().Update(t.Context(), down); err != nil {
		t.Fatal(err)
	}
	look("b1 is down", "", true)
	if state.ProxyName != v1alpha1.ServiceProxyName {
		t.Fatal("the Service is not handed over")
	}

	sync()
	look("vicinity-proxy serves the Service", "", false)
	delete(speaking, "a1")
	for range int(v1alpha1.LeaseFresh/checkEvery) - 1 {
		look("the proxy of a1 may come back still", "", false)
	}
	look("the proxy of a1 is silent", "a1", true)
	speaking["a1"] = programmed
	look("it speaks again", "", true)
}

// The last missing proxy wakes the Service. If it becomes ready during a sync, no later event wakes the Service, so
// follow reports it.
func TestLastProxyWakes(t *testing.T) {
	table, _, clock := bareTable(t, NodeRule{})
	q := newQueue()
	defer q.ShutDown()
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	step := handover.Step{
		Phase: handover.PhaseTaking, Missing: []string{"a1", "b1"},
		Memory: handover.Memory{Begun: []handover.GroupVersion{{Name: "web", Version: "7"}}},
	}
	woken := func() bool {
		t.Helper()
		if err := table.wakeReady(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		return len(drain(q)) > 0
	}
	if table.trackService(key, step) || woken() {
		t.Error("it waits for none")
	}
	table.observe(proxyLeaseOf("b1", "7", clock.Now()))
	table.observe(proxyLeaseOf("a1", "6", clock.Now()))
	if table.trackService(key, step) || woken() {
		t.Error("it does not wait for a proxy that is behind")
	}
	table.observe(proxyLeaseOf("a1", "7", clock.Now().Add(time.Second)))
	if !woken() {
		t.Error("it is not woken")
	}
	if !table.trackService(key, step) {
		t.Error("it is not reported during a sync")
	}
	table.forget(key)
	if woken() || len(table.services) > 0 {
		t.Errorf("forgotten, and remembered: %v", table.services)
	}
}

// A proxy may write the Lease of its own node only. A Lease that names another node is ignored, also when it is deleted.
func TestLeasesOfOtherNodesSayNothing(t *testing.T) {
	table, _, clock := bareTable(t, NodeRule{})
	forged := proxyLeaseOf("b1", "7", clock.Now())
	forged.Name = v1alpha1.ProxyLeasePrefix + "a1"
	table.observe(forged)
	if len(table.proxies) > 0 {
		t.Errorf("a Lease that is not the node's counts: %v", table.proxies)
	}
	table.observe(proxyLeaseOf("b1", "7", clock.Now()))
	table.handler().Delete(t.Context(), event.DeleteEvent{Object: forged}, nil)
	if table.proxies["b1"].programmed != "7" {
		t.Errorf("the deletion of another node's Lease counts: %v", table.proxies)
	}
	table.handler().Delete(t.Context(), event.DeleteEvent{Object: proxyLeaseOf("b1", "7", clock.Now())}, nil)
	if len(table.proxies) > 0 {
		t.Errorf("a deletion does not count: %v", table.proxies)
	}
}

// A hand-over waits for every node whose pods may make connections, unless the rule excludes the node.
func TestProxiesOfNodes(t *testing.T) {
	var rule NodeRule
	if err := rule.Set("!example.com/virtual"); err != nil {
		t.Fatal(err)
	}
	cordoned, silent, unknown, leaving, virtual := readyNode("c1"), readyNode("d1"), readyNode("e1"), readyNode("f1"), readyNode("g1")
	since := metav1.NewTime(time.Date(2026, 1, 2, 2, 4, 5, 0, time.UTC))
	cordoned.Spec = corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoExecute}}}
	silent.Status.Conditions[0].Status, silent.Status.Conditions[0].LastTransitionTime = corev1.ConditionUnknown, since
	unknown.Status.Conditions, unknown.CreationTimestamp = nil, since
	leaving.Finalizers, leaving.DeletionTimestamp = []string{"example.com/drain"}, &since
	virtual.Labels["example.com/virtual"] = "true"
	table, _, clock := bareTable(t, rule, readyNode("a1"), readyNode("b1"), cordoned, silent, unknown, leaving, virtual)
	// An old Lease counts from its own time, not from when it is read.
	old := proxyLeaseOf("b1", "7", clock.Now().Add(-time.Minute))
	old.Annotations[v1alpha1.AnnotationExcept] = "shop/web"
	table.observe(old)
	proxies, err := table.nodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range proxies {
		proxies[i].NotReady = proxies[i].NotReady.UTC()
	}
	want := []handover.NodeProxy{
		{Node: "a1", Zone: "a"},
		{Node: "b1", Zone: "a", Seen: clock.Now().Add(-time.Minute), Programmed: "7", Except: "shop/web"},
		{Node: "c1", Zone: "a"},
		{Node: "d1", Zone: "a", NotReady: since.UTC()},
		{Node: "e1", Zone: "a", NotReady: since.UTC()},
		{Node: "f1", Zone: "a"},
	}
	if !slices.Equal(proxies, want) {
		t.Errorf("got %+v, want %+v", proxies, want)
	}
	// Each renewal counts from now, even if the clock of the node is behind.
	old = proxyLeaseOf("b1", "7", old.Spec.RenewTime.Add(time.Second))
	table.observe(old)
	if proxies, err = table.nodes(t.Context()); err != nil || !proxies[1].Seen.Equal(clock.Now()) {
		t.Errorf("got %+v, %v", proxies, err)
	}
}
