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
