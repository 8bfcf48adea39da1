package events

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

// Who waits longest comes first, and what cannot be written now is written later.
func TestEventsThatWait(t *testing.T) {
	events := &fakeRecorder{}
	clock := clocktesting.NewFakePassiveClock(start)
	w := NewWarnings(events.record, clock, "node-a", func(name types.NamespacedName) *corev1.ObjectReference {
		return &corev1.ObjectReference{Namespace: name.Namespace, Name: name.Name}
	})
	named := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("s", i)}
	}
	const many = warnBurst + 10
	at := func(i int) time.Time { return start.Add(time.Duration(many-i) * time.Second) }
	for i := range many { // the last of them waits longest
		w.Unreachable(named(i), []string{"a"}, at(i))
		w.Claims(named(i), []string{"b"}, at(i))
	}
	w.Tell(start.Add(time.Hour))
	for _, reason := range []string{"TopologyUnreachable", "AddressRefused"} {
		var got []string
		for _, event := range events.events {
			if strings.Contains(event, reason) {
				name, _, _ := strings.Cut(event, " ")
				got = append(got, name)
			}
		}
		if len(got) != warnBurst || got[0] != named(many-1).String() || got[warnBurst-1] != named(10).String() {
			t.Errorf("%s: %v", reason, got)
		}
	}
	// Those about the rules of the node.
	events.events = nil
	service := named(0)
	for i := range warnBurst {
		w.Bypassed(service, "IPv4", fmt.Sprint("x", i))
	}
	w.Bypassed(service, "IPv6", "z")
	if last := events.events[len(events.events)-1]; len(events.events) != warnBurst || strings.Contains(last, "IPv6") {
		t.Fatalf("%d events, the last is %s", len(events.events), last)
	}
	w.Tell(start.Add(time.Hour))
	if last := events.events[len(events.events)-1]; !strings.Contains(last, "RulesBypassed: no Service is handed over to node node-a, whose IPv6") {
		t.Errorf("the event that waits is not written: %s", last)
	}
	// What is over before it was written is not written.
	events.events = nil
	w.families = map[string]*familyWarning{}
	for w.budgets["RulesBypassed"].Take(start) {
		continue
	}
	w.Bypassed(service, "IPv4", "x")
	w.Traversed(service, "IPv4")
	w.Tell(start.Add(2 * time.Hour))
	if len(events.events) > 0 && strings.Contains(strings.Join(events.events, " "), "Rules") {
		t.Errorf("events %q", events.events)
	}
}

func TestWarningsAboutNobody(t *testing.T) {
	events := &fakeRecorder{}
	clock := clocktesting.NewFakePassiveClock(start)
	w := NewWarnings(events.record, clock, "node-a", func(types.NamespacedName) *corev1.ObjectReference { return nil })
	w.Refused("shop/web:http", errors.New("no"))
	if len(events.events) != 0 {
		t.Errorf("events %q", events.events)
	}
	w.reference = func(name types.NamespacedName) *corev1.ObjectReference {
		return &corev1.ObjectReference{Namespace: name.Namespace, Name: name.Name}
	}
	w.Refused("shop/web:http", errors.New("no"))
	w.Refused("shop/web", errors.New("no"))
	w.Shut(types.NamespacedName{Namespace: "shop", Name: "web"}, 30000, errors.New("taken"))
	want := []string{
		"shop/web Warning PortNotProgrammed: node node-a goes on with what it had for shop/web:http: the kernel refuses the change: no",
		"shop/web Warning PortNotProgrammed: node node-a goes on with what it had for shop/web: the kernel refuses the change: no",
		"shop/web Warning FailedToStartServiceHealthcheck: node node-a does not answer health checks of load balancers on port 30000: taken",
	}
	if strings.Join(events.events, "\n") != strings.Join(want, "\n") {
		t.Errorf("events %q", events.events)
	}
}
