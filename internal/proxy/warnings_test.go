package proxy

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestBudget(t *testing.T) {
	b := budget{burst: 3, every: time.Second}
	now := start
	take := func(want ...bool) {
		t.Helper()
		for i, one := range want {
			if got := b.take(now); got != one {
				t.Errorf("at %s, %d: %t", now.Sub(start), i, got)
			}
		}
	}
	take(true, true, true, false)
	if got := b.next(); !got.Equal(start.Add(time.Second)) {
		t.Errorf("next at %s", got.Sub(start))
	}
	now = start.Add(999 * time.Millisecond)
	take(false)
	now = start.Add(time.Second)
	take(true, false)
	now = start.Add(2500 * time.Millisecond)
	take(true, false)
	now = start.Add(3 * time.Second)
	take(true, false)
	now = start.Add(time.Hour)
	take(true, true, true, false)
}

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
