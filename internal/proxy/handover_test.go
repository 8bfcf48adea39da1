package proxy

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/events"
	"vicinity.dev/vicinity/internal/topology"
)

// inHandOver is a Service that kube-proxy still serves.
func inHandOver(name, address string) *corev1.Service {
	service := aService(name, address)
	service.Labels = nil
	return service
}

func TestGroupsInHandOverAreAcknowledged(t *testing.T) {
	w := newWorld(t)
	acknowledges := func(when string, want uint64, except ...string) {
		t.Helper()
		w.run(time.Second)
		var names []string
		for _, name := range w.except {
			names = append(names, name.Name)
		}
		if w.version != want || !slices.Equal(names, except) {
			t.Errorf("%s: %d is acknowledged except %q, want %d except %q", when, w.version, names, want, except)
		}
	}
	w.put(aService("served", "10.96.0.9"), aGroup("served", "served-1", "10.1.1.9")) // 1, 2
	acknowledges("nothing is in hand-over", 0)
	w.put(inHandOver("web", "10.96.0.1"), handedOver(aGroup("web", "web-1", "10.1.1.1"))) // 3, 4
	acknowledges("a group", 4)
	w.put(handedOver(aGroup("web", "web-2", "10.1.1.2")), handedOver(aGroup("web", "web-3", "10.1.1.3"))) // 5, 6
	acknowledges("more groups", 6)
	w.drop(handedOver(aGroup("web", "web-3"))) // 7
	acknowledges("a removed group that the controller may know", 7)

	// Groups may come before their Service.
	w.put(handedOver(aGroup("late", "late-1", "10.1.1.4"))) // 8
	acknowledges("a group without its Service", 7, "late")
	w.put(handedOver(aGroup("web", "web-1", "10.1.1.5"))) // 9
	acknowledges("and a later one", 9, "late")
	w.put(inHandOver("late", "10.96.0.2")) // 10
	acknowledges("with its Service", 9)
	orphan := handedOver(aGroup("gone", "gone-1", "10.1.1.6")) // 11
	w.put(orphan)
	acknowledges("an orphan", 9, "gone")
	w.drop(orphan) // 12
	acknowledges("a removed orphan", 12)

	// A group that is not programmed is not acknowledged, and delays no other group.
	w.refusing("10.1.9.1")
	w.put(handedOver(aGroup("web", "web-1", "10.1.9.1")))   // 13
	w.put(handedOver(aGroup("late", "late-1", "10.1.1.7"))) // 14
	acknowledges("the kernel refuses one", 14, "web")
	w.refusing()
	w.run(refusedMost)
	acknowledges("the kernel takes it", 14)

	// A Service that another proxy has needs nothing.
	other := inHandOver("other", "10.96.0.3") // 15
	other.Spec.ClusterIP, other.Spec.ClusterIPs = corev1.ClusterIPNone, nil
	w.put(other, handedOver(aGroup("other", "other-1", "10.1.1.8"))) // 16
	acknowledges("a Service with nothing to program", 16)
}

// After a restart, all groups in hand-over are acknowledged once they are programmed.
func TestAcknowledgedAfterARestart(t *testing.T) {
	w := newWorld(t)
	list := []*v1alpha1.EndpointGroup{handedOver(aGroup("web", "web-1", "10.1.1.1")), handedOver(aGroup("web", "web-2", "10.1.1.2"))}
	list[0].ResourceVersion, list[1].ResourceVersion = "70", "60"
	w.put(inHandOver("web", "10.96.0.1"))
	w.catalogue.Fill(func() { w.catalogue.ReplaceGroups(list, "80", "a") })
	w.run(time.Second)
	if w.version != 70 {
		t.Errorf("%d is acknowledged", w.version)
	}
}

// Groups of the node's previous zone are not acknowledged: for the controller the node is in its new zone.
func TestAnotherZone(t *testing.T) {
	w := newWorld(t)
	w.put(inHandOver("web", "10.96.0.1"), handedOver(aGroup("web", "web-1", "10.1.1.1")))
	w.right("in zone a")
	if w.version != 2 {
		t.Fatalf("%d is acknowledged", w.version)
	}
	w.put(aNode("b"))
	w.run(time.Second)
	if w.version != 0 {
		t.Errorf("%d is acknowledged on the way to another zone", w.version)
	}
	if got := w.options.Node.Zone; got != "a" {
		t.Errorf("the groups count as those of zone %s", got)
	}
	w.right("on the way")
	group := handedOver(aGroup("web", "web-b", "10.1.2.1"))
	group.ResourceVersion = "1"
	group.Spec.Consumers[0].Zone, group.Spec.Endpoints[0].Zone = "b", "b"
	w.catalogue.Fill(func() { w.catalogue.ReplaceGroups([]*v1alpha1.EndpointGroup{group}, "9", "b") })
	w.right("in zone b")
	if w.version != 1 || w.options.Node.Zone != "b" {
		t.Errorf("%d is acknowledged in zone %s", w.version, w.options.Node.Zone)
	}
}

// The groups of the new zone are not acknowledged before they are programmed, even if they come during a sync.
func TestAnotherZoneMeanwhile(t *testing.T) {
	w := newWorld(t)
	w.put(inHandOver("web", "10.96.0.1"), inHandOver("other", "10.96.0.2"), handedOver(aGroup("web", "web-1", "10.1.1.1")))
	w.run(time.Second)
	w.put(aNode("b"))
	w.run(time.Second)
	w.kernel.takes = func() {
		w.kernel.takes = func() {}
		group := handedOver(aGroup("other", "other-1", "10.1.2.1"))
		group.ResourceVersion = "3"
		group.Spec.Consumers[0].Zone = "b"
		w.catalogue.Fill(func() { w.catalogue.ReplaceGroups([]*v1alpha1.EndpointGroup{group}, "9", "b") })
	}
	w.put(handedOver(aGroup("web", "web-1", "10.1.1.2")))
	w.step(t.Context())
	if w.version != 0 {
		t.Errorf("%d is acknowledged in zone b, whose groups are not programmed", w.version)
	}
	w.run(time.Second)
	if w.version != 3 {
		t.Errorf("%d is acknowledged once they are programmed", w.version)
	}
}

// Nothing is acknowledged while the groups of a restored cluster are not programmed.
func TestRestoredMeanwhile(t *testing.T) {
	w := newWorld(t)
	group := handedOver(aGroup("web", "web-1", "10.1.1.1"))
	group.ResourceVersion = "70"
	w.put(inHandOver("web", "10.96.0.1"))
	w.catalogue.Fill(func() { w.catalogue.ReplaceGroups([]*v1alpha1.EndpointGroup{group}, "80", "a") })
	w.kernel.takes = func() {
		w.kernel.takes = func() {}
		again := handedOver(aGroup("web", "web-1", "10.1.1.2"))
		again.ResourceVersion = "30"
		w.catalogue.Fill(func() { w.catalogue.ReplaceGroups([]*v1alpha1.EndpointGroup{again}, "40", "a") })
	}
	w.step(t.Context())
	if w.version != 0 {
		t.Errorf("%d is acknowledged, though the group has changed", w.version)
	}
	w.run(time.Second)
	if w.version != 30 {
		t.Errorf("%d is acknowledged in the end", w.version)
	}
}

// A Service with unreachable endpoints gets one event at the beginning and one at the end.
func TestUnreachableServicesGetEvents(t *testing.T) {
	w := newWorld(t)
	group := func(zone string) *v1alpha1.EndpointGroup {
		group := aGroup("web", "web-1", "10.1.1.1")
		group.Spec.Tiers = []string{topology.Zone}
		group.Spec.Endpoints[0].Zone = zone
		return group
	}
	w.put(aService("web", "10.96.0.1"), group("b"))
	w.run(events.WarnAfter / 2)
	w.put(group("a"))
	w.run(time.Minute)
	if len(w.events.events) != 0 {
		t.Errorf("events for a short delay: %q", w.events.events)
	}
	for range 3 {
		w.put(group("b"))
		w.run(time.Minute)
	}
	if len(w.events.events) != 1 || !strings.Contains(w.events.events[0], "shop/web Warning TopologyUnreachable: clients on node node-a cannot reach shop/web") {
		t.Errorf("events %q", w.events.events)
	}
	for range 3 {
		w.put(group("a"))
		w.run(time.Minute)
	}
	if len(w.events.events) != 2 || !strings.Contains(w.events.events[1], "shop/web Normal TopologyReachable") {
		t.Errorf("events %q", w.events.events)
	}
}
