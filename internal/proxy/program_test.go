package proxy

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func TestChangesAreProgrammed(t *testing.T) {
	w := newWorld(t)
	w.right("nothing")
	web, more := aService("web", "10.96.0.1"), aService("more", "10.96.0.2")
	w.put(web, more, aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"), aGroup("more", "more-1", "10.1.1.3"))
	w.right("two Services")
	w.put(aGroup("web", "web-2", "10.1.1.4"))
	w.right("another group")
	w.put(aGroup("web", "web-1", "10.1.1.2"))
	w.right("an endpoint less")
	if len(w.stale) == 0 {
		t.Error("connections to the endpoint that went are not looked for")
	}
	w.drop(aGroup("web", "web-2"))
	w.right("a group less")
	own := aGroup("more", "more-1", "10.1.0.7")
	own.Spec.Endpoints[0].Node = "node-a"
	w.put(own)
	w.right("an endpoint on the node itself")
	w.drop(web)
	w.right("a Service less")
	w.drop(more)
	w.right("no Service")
}

// A change makes only its own Service be looked at.
func TestOnlyWhatChangedIsCompiled(t *testing.T) {
	w := newWorld(t)
	w.put(aService("web", "10.96.0.1"), aService("more", "10.96.0.2"), aGroup("web", "web-1", "10.1.1.1"), aGroup("more", "more-1", "10.1.1.3"))
	w.run(time.Second)
	names := func() map[types.NamespacedName]bool { return w.affected(w.catalogue.take()) }
	w.put(aGroup("web", "web-1", "10.1.1.2"))
	if got := names(); len(got) != 1 || !got[types.NamespacedName{Namespace: "shop", Name: "web"}] {
		t.Errorf("for a group: %v", got)
	}
	node := aNode("a")
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady}}
	w.put(node)
	if got := names(); len(got) != 0 {
		t.Errorf("for the node's sign of life: %v", got)
	}
	node = aNode("a")
	node.Labels["example.com/rack"] = "r1"
	w.put(node)
	if got := names(); len(got) != 2 {
		t.Errorf("for the node's rack: %v", got)
	}
}

// The first change is programmed at once, those that follow together.
func TestBurstsAreProgrammedTogether(t *testing.T) {
	w := newWorld(t)
	w.put(aService("web", "10.96.0.1"), aGroup("web", "web-1", "10.1.1.1"))
	w.run(time.Second)
	before := w.kernel.transactions()
	now := w.clock.Now()
	w.put(aGroup("web", "web-1", "10.1.1.2"))
	w.step(t.Context())
	if got := w.kernel.transactions() - before; got != 1 || !w.clock.Now().Equal(now) {
		t.Fatalf("%d transactions at once", got)
	}
	for i := range 19 {
		w.clock.Step(time.Millisecond)
		w.put(aGroup("web", "web-1", "10.1.1.3", "10.1.1."+string(rune('4'+i%5))))
		w.step(t.Context())
	}
	if got := w.kernel.transactions() - before; got != 1 {
		t.Errorf("%d transactions within the least time between two", got)
	}
	w.clock.Step(time.Millisecond)
	w.step(t.Context())
	if got := w.kernel.transactions() - before; got != 2 {
		t.Errorf("%d transactions after it", got)
	}
	w.right("after the burst")
}

func TestPace(t *testing.T) {
	p := pace{period: 20 * time.Millisecond}
	at := func(ms int) time.Time { return start.Add(time.Duration(ms) * time.Millisecond) }
	ready := func(now, want int) {
		t.Helper()
		if got := p.ready(at(now)); !got.Equal(at(want)) {
			t.Errorf("at %d ready at %s, want %d", now, got.Sub(start), want)
		}
	}
	ready(0, 0)
	p.ran(at(0), at(5))
	ready(6, 20) // a quick sync
	ready(25, 25)
	p.ran(at(25), at(75))
	ready(76, 125) // a slow one is followed by a rest as long
	p.ran(at(125), at(10125))
	ready(10126, 11125) // of a second at most
}

// A restart changes nothing that is right.
func TestRestartAdopts(t *testing.T) {
	w := newWorld(t)
	objects := func() {
		w.put(aService("web", "10.96.0.1"), aService("more", "10.96.0.2"), aGroup("web", "web-1", "10.1.1.1", "10.1.1.2"), aGroup("more", "more-1", "10.1.1.3"))
		w.put(aNode("a"))
		w.catalogue.fill(func() { w.catalogue.zone = "a" })
	}
	objects()
	w.right("at first")
	before := w.kernel.transactions()
	w.restart()
	objects()
	w.right("after a restart")
	if got := w.kernel.transactions(); got != before {
		t.Errorf("%d transactions by the restart: %+v", got-before, w.kernel.applied[before:])
	}
	w.restart()
	objects()
	w.put(aGroup("more", "more-1", "10.1.1.4"))
	w.right("after a restart with a change")
	for _, transaction := range w.kernel.applied[before:] {
		if touches(transaction, "10.96.0.1") || touches(transaction, "10.1.1.1") {
			t.Errorf("what is right is changed: %+v", transaction)
		}
	}
}

// Where nothing asks for a family the kernel need not know it.
func TestFamiliesThatNobodyUses(t *testing.T) {
	w := newWorld(t)
	w.put(aService("web", "10.96.0.1"), aGroup("web", "web-1", "10.1.1.1"))
	w.right("IPv4 alone")
	if w.kernel.tables[ruleset.IPv6] != nil {
		t.Error("there is a table of IPv6")
	}
	six := aService("six", "2001:db8::1")
	six.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
	group := aGroup("six", "six-1", "2001:db8:1::1")
	group.Spec.AddressType = corev1.IPv6Protocol
	w.put(six, group)
	w.right("both")
	if w.kernel.tables[ruleset.IPv6] == nil {
		t.Error("there is no table of IPv6")
	}
}
