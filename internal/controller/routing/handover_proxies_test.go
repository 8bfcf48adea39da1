package routing

import (
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/topology"
)

// proxyLeaseOf is what the proxy of a node says.
func proxyLeaseOf(node, programmed string, renewed time.Time) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ProxyLeasePrefix + node, Annotations: map[string]string{v1alpha1.AnnotationProgrammed: programmed}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: &metav1.MicroTime{Time: renewed}},
	}
}

// readyNode is one of the zone a that has to have a proxy.
func readyNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.Zone: "a"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// TestWaitingServiceIsWokenByChanges has a Service wait for proxies: it costs nothing as
// long as nothing changes, and names the nodes that it waits for.
func TestWaitingServiceIsWokenByChanges(t *testing.T) {
	b := newGroupBench(t)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	speaking := map[string]string{} // what proxies have programmed, by node
	pass := func() {
		b.clock.SetTime(b.clock.Now().Add(lookEvery))
		for node, programmed := range speaking {
			b.writer.proxies.observe(proxyLeaseOf(node, programmed, b.clock.Now()), q)
		}
	}
	// look has time pass and the table looked at, and wants the Service to be woken, or
	// not if it waits for the same nodes still.
	look := func(when, waitsFor string, woken bool) {
		t.Helper()
		pass()
		if err := b.writer.proxies.look(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if got := len(drain(q)) > 0; got != woken {
			t.Errorf("%s: woken %t, want %t", when, got, woken)
		}
		if !woken {
			return
		}
		b.refresh()
		progress := b.mustDeliver()
		if notes := strings.Join(progress.notes, ". "); !strings.HasSuffix(notes, waitsFor) || progress.again != 0 {
			t.Errorf("%s: notes %q, again after %s; want that it waits for %q", when, notes, progress.again, waitsFor)
		}
	}
	b.mustDeliver()
	for range 10 {
		look("nothing changes", "", false)
	}
	version := b.stored()[1].ResourceVersion
	if order, err := resourceversion.CompareResourceVersion(b.stored()[0].ResourceVersion, version); err != nil || order > 0 {
		version = b.stored()[0].ResourceVersion
	}
	speaking["a1"] = ""
	look("the proxy of a1 is there, and has programmed nothing", "", false)
	speaking["a1"] = version
	look("the proxy of a1 is ready", "node b1", true)
	look("it goes on being ready", "", false)

	if err := b.client.Create(t.Context(), readyNode("c1")); err != nil {
		t.Fatal(err)
	}
	look("a node is new", "nodes b1, c1", true)
	look("it is as before", "", false)
	speaking["c1"] = version
	look("the proxy of the new node is ready", "node b1", true)
	delete(speaking, "a1")
	for range int(v1alpha1.LeaseFresh/lookEvery) - 1 {
		look("the proxy of a1 may come back still", "", false)
	}
	look("the proxy of a1 is silent", "nodes a1, b1", true)
	look("it stays silent", "", false)
	speaking["a1"] = version
	look("the proxy of a1 is back", "node b1", true)
	if err := b.client.Delete(t.Context(), readyNode("b1")); err != nil {
		t.Fatal(err)
	}
	look("the node that was waited for is gone", "", true)
	b.refresh()
	b.mustDeliver()
	if proxies := b.writer.proxies; len(proxies.waiting) > 0 || len(proxies.watched) > 0 || len(proxies.served) != 1 {
		t.Errorf("it waits still: %v, %v; served %v", proxies.waiting, proxies.watched, proxies.served)
	}
}

// TestLookSeesWhatASyncDidNot has nodes change at any moment of a sync that goes on with the
// nodes as they were when it began.
func TestLookSeesWhatASyncDidNot(t *testing.T) {
	edit := func(change func(*corev1.Node)) func(*groupBench) error {
		return func(b *groupBench) error {
			node := &corev1.Node{}
			if err := b.client.Get(b.t.Context(), types.NamespacedName{Name: "b1"}, node); err != nil {
				return err
			}
			change(node)
			if err := b.client.Status().Update(b.t.Context(), node.DeepCopy()); err != nil {
				return err
			}
			node.ResourceVersion = ""
			return b.client.Update(b.t.Context(), node)
		}
	}
	for name, change := range map[string]func(*groupBench) error{
		"a node comes":              func(b *groupBench) error { return b.client.Create(b.t.Context(), readyNode("c1")) },
		"a node goes":               func(b *groupBench) error { return b.client.Delete(b.t.Context(), readyNode("b1")) },
		"a node is to run no proxy": edit(func(node *corev1.Node) { node.Labels["example.com/virtual"] = "true" }),
		"a node is down": edit(func(node *corev1.Node) {
			node.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown}
		}),
	} {
		for _, looks := range []int{0, 1, 2} {
			t.Run(fmt.Sprintf("%s, and %d looks are taken meanwhile", name, looks), func(t *testing.T) {
				b := newGroupBench(t)
				q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
				defer q.ShutDown()
				table := b.writer.proxies
				look := func() bool {
					b.clock.SetTime(b.clock.Now().Add(lookEvery))
					if err := table.look(t.Context(), q); err != nil {
						t.Fatal(err)
					}
					return strings.Contains(strings.Join(drain(q), " "), "web")
				}
				sync := func(meanwhile func()) {
					proxies, err := table.nodes(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					step := handover.Step{
						Phase: handover.PhaseTaking, Missing: handover.Awaited(proxies, b.clock.Now()), Down: handover.Down(proxies, b.clock.Now()),
					}
					meanwhile()
					table.wait(types.NamespacedName{Namespace: "shop", Name: "web"}, step)
				}
				table.wait(types.NamespacedName{Namespace: "shop", Name: "other"}, handover.Step{Phase: handover.PhaseTaking})
				sync(func() {
					if err := change(b); err != nil {
						t.Fatal(err)
					}
					for range looks {
						look()
					}
				})
				if !look() {
					t.Error("the Service goes on with nodes that are others now")
				}
				sync(func() {})
				if look() {
					t.Error("the Service is woken, and nothing is new")
				}
			})
		}
	}
}

// TestNodeGoesDown has a node that a Service waits for stop being ready: the Service waits
// until the node counts as down, and says so then, also once it is handed over. It hears
// when the node is back.
func TestNodeGoesDown(t *testing.T) {
	b := newGroupBench(t)
	q := newQueue()
	defer q.ShutDown()
	speaking := []string{"a1"}
	const version = "1000000" // of all groups and later ones
	look := func(when string, pause time.Duration, woken bool, says string) {
		t.Helper()
		b.clock.SetTime(b.clock.Now().Add(pause))
		for _, node := range speaking {
			b.writer.proxies.observe(proxyLeaseOf(node, version, b.clock.Now()), q)
		}
		if err := b.writer.proxies.look(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if got := len(drain(q)) > 0; got != woken {
			t.Errorf("%s: woken %t, want %t", when, got, woken)
		}
		b.refresh()
		if notes := strings.Join(b.mustDeliver().notes, ". "); notes != says {
			t.Errorf("%s: it says %q, want %q", when, notes, says)
		}
	}
	ready := func(status corev1.ConditionStatus) {
		t.Helper()
		node := &corev1.Node{}
		if err := b.client.Get(t.Context(), types.NamespacedName{Name: "b1"}, node); err != nil {
			t.Fatal(err)
		}
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.NewTime(b.clock.Now())}}
		if err := b.client.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	b.mustDeliver()
	const waits = "kube-proxy goes on serving the Service until vicinity-proxy is ready on node b1"
	const down = "not waited for is vicinity-proxy on node b1, down for more than 5 minutes"
	look("the proxy of b1 is away", lookEvery, true, waits)
	ready(corev1.ConditionUnknown)
	look("the node is not ready", lookEvery, false, waits)
	look("nor is it later", 4*time.Minute, false, waits)
	look("it is down", time.Minute, true, down)
	if b.refresh(); b.in.Service.Labels[v1alpha1.LabelServiceProxyName] != v1alpha1.ServiceProxyName {
		t.Fatal("the Service is not handed over")
	}
	look("the Service is handed over", lookEvery, false, down)
	look("nothing changes", lookEvery, false, down)
	ready(corev1.ConditionTrue)
	look("the node is back", lookEvery, true, "no vicinity-proxy answers on node b1, where the Service does not work: "+
		"start it there, or remove the annotation vicinity.dev/proxy")
	speaking = append(speaking, "b1")
	look("its proxy answers", lookEvery, false, "")
}

// TestServedNamesWhoLasts has proxies fall silent and speak all the time, on nodes that are
// not named: of those that are Services come to know.
func TestServedNamesWhoLasts(t *testing.T) {
	b := newGroupBench(t)
	for _, name := range []string{"c1", "d1"} {
		if err := b.client.Create(t.Context(), readyNode(name)); err != nil {
			t.Fatal(err)
		}
	}
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	table := b.writer.proxies
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	told := func(nodes ...string) {
		table.wait(key, handover.Step{Phase: handover.PhaseServed, Missing: nodes})
	}
	look := func(when string, woken bool, speaking ...string) {
		t.Helper()
		b.clock.SetTime(b.clock.Now().Add(time.Hour))
		for _, node := range speaking {
			table.observe(proxyLeaseOf(node, "", b.clock.Now()), q)
		}
		if err := table.look(t.Context(), q); err != nil {
			t.Fatal(err)
		}
		if got := len(drain(q)) > 0; got != woken {
			t.Errorf("%s: woken %t, want %t", when, got, woken)
		}
	}
	told()
	look("all speak", false, "a1", "b1", "c1", "d1")
	look("a1 is silent", false, "b1", "c1", "d1")
	look("now b1 is", false, "a1", "c1", "d1")
	look("b1 stays, c1 is", true, "a1", "d1")
	told("b1")
	look("b1 stays, d1 is", false, "a1", "c1")
	look("b1 speaks, a1 is silent", false, "b1", "c1", "d1")
	look("b1 goes on, c1 is silent", true, "a1", "b1", "d1")
}

// TestNodesComeDuringASync has the first nodes of all come when a Service was told already
// that there are none.
func TestNodesComeDuringASync(t *testing.T) {
	b := newGroupBench(t)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	table := b.writer.proxies
	for _, node := range []string{"a1", "b1"} {
		table.observe(proxyLeaseOf(node, "9", b.clock.Now()), q)
	}
	table.wait(types.NamespacedName{Namespace: "shop", Name: "web"}, handover.Step{Phase: handover.PhaseTaking})
	if err := table.look(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if woken := drain(q); len(woken) != 1 {
		t.Errorf("woken %v, want the Service that knows of no node", woken)
	}
}

// TestLastProxyComesDuringASync has all proxies be ready when a Service was told already that
// they are not: no event of theirs will wake it.
func TestLastProxyComesDuringASync(t *testing.T) {
	b := newGroupBench(t)
	table := b.writer.proxies
	key := types.NamespacedName{Namespace: "shop", Name: "web"}
	step := handover.Step{
		Phase: handover.PhaseTaking, Missing: []string{"a1", "b1"},
		Memory: handover.Memory{Begun: []handover.GroupVersion{{Name: "web", Version: "7"}}},
	}
	if table.wait(key, step) {
		t.Error("it waits for none")
	}
	table.observe(proxyLeaseOf("a1", "7", b.clock.Now()), nil)
	if table.wait(key, step) {
		t.Error("it does not wait for the last")
	}
	table.forget(key)
	table.observe(proxyLeaseOf("b1", "7", b.clock.Now()), nil)
	if !table.wait(key, step) || len(table.watched) > 0 {
		t.Errorf("it waits still, watched %v", table.watched)
	}
}

// A proxy may write the Lease of its own node. What it says there of another node does not count: neither that it has
// programmed anything, nor that it is gone.
func TestLeasesOfOtherNodesSayNothing(t *testing.T) {
	b := newGroupBench(t)
	table := b.writer.proxies
	forged := proxyLeaseOf("b1", "7", b.clock.Now())
	forged.Name = v1alpha1.ProxyLeasePrefix + "a1"
	table.observe(forged, nil)
	if len(table.proxies) > 0 {
		t.Errorf("a Lease that is not the node's counts: %v", table.proxies)
	}
	table.observe(proxyLeaseOf("b1", "7", b.clock.Now()), nil)
	table.handler().Delete(t.Context(), event.DeleteEvent{Object: forged}, nil)
	if table.proxies["b1"].programmed != "7" {
		t.Errorf("the deletion of another node's Lease counts: %v", table.proxies)
	}
	table.handler().Delete(t.Context(), event.DeleteEvent{Object: proxyLeaseOf("b1", "7", b.clock.Now())}, nil)
	if len(table.proxies) > 0 {
		t.Errorf("a deletion does not count: %v", table.proxies)
	}
}

// TestMostAreNotNamed has nodes come that the text does not name: only when none of them is
// left it says something else.
func TestMostAreNotNamed(t *testing.T) {
	table, clock, nodes := waitingTable(2*handover.MostNamed, 1)
	key := types.NamespacedName{Namespace: "shop", Name: "web-0"}
	for i := len(nodes) - 1; i > 0; i-- {
		table.observe(proxyLeaseOf(nodes[i], "1", clock.Now()), nil)
		if got, want := table.arrived(table.waiting[key], clock.Now()), i <= handover.MostNamed; got != want {
			t.Errorf("%s is ready: arrived %t, want %t", nodes[i], got, want)
		}
	}
}

// waitingTable is a table of thousands of Services that wait for the same nodes.
func waitingTable(nodes, services int) (table *proxyTable, clock *clocktesting.FakePassiveClock, missing []string) {
	clock = clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	table = newProxyTable(nil, clock, NodeRule{})
	for i := range nodes {
		name := fmt.Sprintf("node-%05d", i)
		missing = append(missing, name)
		table.list = append(table.list, handover.NodeProxy{Node: name, Zone: "a"})
	}
	for i := range services {
		table.wait(types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)}, handover.Step{
			Phase: handover.PhaseTaking, Missing: missing,
			Memory: handover.Memory{Begun: []handover.GroupVersion{{Name: "web", Version: fmt.Sprint(i + 1)}}},
		})
	}
	return table, clock, missing
}

// TestLastProxyWakes has proxies come in any order: only the last wakes the Services, and
// those alone whose groups all have programmed.
func TestLastProxyWakes(t *testing.T) {
	const services = 7
	table, clock, nodes := waitingTable(50, services)
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer q.ShutDown()
	for round := range 2 {
		for i := range nodes {
			node := nodes[(i*17+5)%len(nodes)]
			programmed := fmt.Sprint(services)
			if round == 0 && i == 3 {
				programmed = "2"
			}
			if woken := drain(q); len(woken) > 0 {
				t.Fatalf("round %d: %d proxies are there, and %v are woken", round, i, woken)
			}
			table.observe(proxyLeaseOf(node, programmed, clock.Now()), q)
			if round == 1 && i == 3 {
				if woken := drain(q); len(woken) != services-2 {
					t.Fatalf("woken %v by the proxy that was behind, want all but the two before", woken)
				}
			}
		}
		if woken := strings.Join(drain(q), " "); round == 0 && woken != "web-0 web-1" {
			t.Errorf("woken %q, want those that no proxy is behind with", woken)
		}
		clock.SetTime(clock.Now().Add(time.Second))
	}
	for i := range services {
		table.forget(types.NamespacedName{Namespace: "shop", Name: fmt.Sprintf("web-%d", i)})
	}
	if len(table.waiting)+len(table.watched) > 0 {
		t.Errorf("forgotten, and remembered: %v, %v", table.waiting, table.watched)
	}
}

// BenchmarkLease is what a renewed Lease costs where 10,000 Services wait for the proxies
// of 5,000 nodes, of a node that is watched by none, and of one that all watch.
func BenchmarkLease(b *testing.B) {
	const nodes, services = 5000, 10000
	table, clock, missing := waitingTable(nodes, services)
	for _, test := range []struct {
		name string
		node string
	}{{"watched by none", missing[nodes-1]}, {"watched by all", missing[0]}} {
		lease := proxyLeaseOf(test.node, "", clock.Now())
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.observe(lease, nil)
			}
		})
	}
}

// BenchmarkWait is what it costs to note for what a Service waits, with what stays.
func BenchmarkWait(b *testing.B) {
	const nodes = 5000
	b.ReportAllocs()
	table, _, missing := waitingTable(nodes, 1)
	step := handover.Step{Phase: handover.PhaseTaking, Missing: missing}
	for b.Loop() {
		table.wait(types.NamespacedName{Namespace: "shop", Name: "web-0"}, step)
	}
}
