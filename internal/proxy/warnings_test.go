package proxy

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/internal/proxy/cluster"
)

// A node tells little at a time, and the rest later.
func TestManyWarnings(t *testing.T) {
	events := &fakeRecorder{}
	clock := clocktesting.NewFakePassiveClock(start)
	w := newWarnings(events.record, clock, "node-a", func(name types.NamespacedName) *corev1.ObjectReference {
		return &corev1.ObjectReference{Namespace: name.Namespace, Name: name.Name}
	})
	for i := range 100 {
		w.unreachable(types.NamespacedName{Namespace: "shop", Name: strings.Repeat("x", i+1)}, []string{"a", "b", "c", "d", "e"}, start)
	}
	now := start.Add(warnAfter)
	w.tell(now)
	if len(events.events) != warnBurst {
		t.Errorf("%d events at once", len(events.events))
	}
	if !strings.Contains(events.events[0], "do not reach a, b, c and 2 more ports:") {
		t.Errorf("event %q", events.events[0])
	}
	w.tell(now.Add(5 * warnEvery))
	if got := len(events.events) - warnBurst; got != 5 {
		t.Errorf("%d events later", got)
	}
}

// Services whose refused addresses change all the time leave room for events about others and
// about the node, and get one in ten minutes each.
func TestEventsOfOneKindLeaveRoom(t *testing.T) {
	w := newWorld(t)
	w.put(aRange("kubernetes", "10.96.0.0/16"))
	const flappers = 20
	for i := range flappers {
		w.put(aService(fmt.Sprint("f", i), fmt.Sprint("10.96.0.", 10+i)), aGroup(fmt.Sprint("f", i), fmt.Sprint("g", i), "10.1.1.1"))
	}
	flap := func(n int) {
		s := aService(fmt.Sprint("f", n%flappers), fmt.Sprint("10.96.0.", 10+n%flappers))
		if n/flappers%3 != 0 { // else none is refused
			s.Spec.ExternalIPs = []string{fmt.Sprintf("10.96.7.%d", n%251)}
		}
		w.put(s)
		w.run(time.Second)
	}
	for n := range 60 {
		flap(n)
	}
	cut := withExternal(aService("cut", "10.96.0.2"), 5)
	w.bounds.Service = 28
	w.put(cut, aGroup("cut", "cut-1", "10.1.1.2", "10.1.1.3", "10.1.1.4"))
	const minutes = 30
	for n := range minutes * 60 {
		flap(n)
	}
	if !w.bounds.waits(cluster.KeyOf(cut)) {
		t.Fatal("the Service is not cut: this test shows nothing")
	}
	w.warnings.bypassed(cluster.KeyOf(cut), "IPv4", "x")
	all := strings.Join(w.events.events, "\n")
	for _, reason := range []string{"shop/cut Warning TooManyElements", "RulesBypassed"} {
		if !strings.Contains(all, reason) {
			t.Errorf("there is no event %s", reason)
		}
	}
	for i := range flappers {
		// Once at the beginning and once in each ten minutes after that.
		if got := strings.Count(all, fmt.Sprintf("shop/f%d Warning AddressRefused", i)); got < 2 || got > 1+(minutes+1)/10 {
			t.Errorf("%d events about the addresses of one Service", got)
		}
	}
}

// Who waits longest comes first, and what cannot be written now is written later.
func TestEventsThatWait(t *testing.T) {
	events := &fakeRecorder{}
	clock := clocktesting.NewFakePassiveClock(start)
	w := newWarnings(events.record, clock, "node-a", func(name types.NamespacedName) *corev1.ObjectReference {
		return &corev1.ObjectReference{Namespace: name.Namespace, Name: name.Name}
	})
	named := func(i int) types.NamespacedName {
		return types.NamespacedName{Namespace: "shop", Name: fmt.Sprint("s", i)}
	}
	const many = warnBurst + 10
	at := func(i int) time.Time { return start.Add(time.Duration(many-i) * time.Second) }
	for i := range many { // the last of them waits longest
		w.unreachable(named(i), []string{"a"}, at(i))
		w.claims(named(i), []string{"b"}, at(i))
	}
	w.tell(start.Add(time.Hour))
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
		w.bypassed(service, "IPv4", fmt.Sprint("x", i))
	}
	w.bypassed(service, "IPv6", "z")
	if last := events.events[len(events.events)-1]; len(events.events) != warnBurst || strings.Contains(last, "IPv6") {
		t.Fatalf("%d events, the last is %s", len(events.events), last)
	}
	w.tell(start.Add(time.Hour))
	if last := events.events[len(events.events)-1]; !strings.Contains(last, "RulesBypassed: no Service is handed over to node node-a, whose IPv6") {
		t.Errorf("the event that waits is not written: %s", last)
	}
	// What is over before it was written is not written.
	events.events = nil
	w.families = map[string]*familyWarning{}
	for w.budgets["RulesBypassed"].Take(start) {
		continue
	}
	w.bypassed(service, "IPv4", "x")
	w.traversed(service, "IPv4")
	w.tell(start.Add(2 * time.Hour))
	if len(events.events) > 0 && strings.Contains(strings.Join(events.events, " "), "Rules") {
		t.Errorf("events %q", events.events)
	}
}

func TestWarningsAboutNobody(t *testing.T) {
	events := &fakeRecorder{}
	clock := clocktesting.NewFakePassiveClock(start)
	w := newWarnings(events.record, clock, "node-a", func(types.NamespacedName) *corev1.ObjectReference { return nil })
	w.refused("shop/web:http", errors.New("no"))
	if len(events.events) != 0 {
		t.Errorf("events %q", events.events)
	}
	w.reference = func(name types.NamespacedName) *corev1.ObjectReference {
		return &corev1.ObjectReference{Namespace: name.Namespace, Name: name.Name}
	}
	w.refused("shop/web:http", errors.New("no"))
	w.refused("shop/web", errors.New("no"))
	w.shut(types.NamespacedName{Namespace: "shop", Name: "web"}, 30000, errors.New("taken"))
	want := []string{
		"shop/web Warning PortNotProgrammed: node node-a goes on with what it had for shop/web:http: the kernel refuses the change: no",
		"shop/web Warning PortNotProgrammed: node node-a goes on with what it had for shop/web: the kernel refuses the change: no",
		"shop/web Warning FailedToStartServiceHealthcheck: node node-a does not answer health checks of load balancers on port 30000: taken",
	}
	if strings.Join(events.events, "\n") != strings.Join(want, "\n") {
		t.Errorf("events %q", events.events)
	}
}
