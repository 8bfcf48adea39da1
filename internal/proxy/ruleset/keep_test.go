package ruleset

import (
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Whatever is staged and whatever the kernel has: kept fronts treat packets as before, all others as staged, and later
// the kept ones too.
func TestKeptFrontsKeepTheirRules(t *testing.T) {
	for _, family := range []Family{IPv4, IPv6} {
		t.Run(family.String(), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) { keepSome(t, newWorld(family)) })
		})
	}
}

// keepSome simulates a run that writes rules and another that keeps some of them.
func keepSome(t *rapid.T, w *world) {
	config := w.config().Draw(t, "config")
	m := &machine{bed: newBed(config), world: w, now: time.Unix(1e9, 0), connections: make(map[connection]bool)}
	m.wanted = model{config: config, ports: make(map[string]ServicePort)}
	for range rapid.IntRange(1, 4).Draw(t, "ports before") {
		m.set(t)
		if rapid.Bool().Draw(t, "commit") {
			m.commit(t)
		}
	}
	m.commit(t)
	before := m.kernel.clone()

	m.Table = NewTable(config)
	m.intact, m.forgetful = false, true
	kept := make(map[string]bool)
	for range rapid.IntRange(1, 4).Draw(t, "ports") {
		if rapid.Bool().Draw(t, "similar") {
			m.similar(t)
		} else {
			m.set(t)
		}
	}
	stage := func() {
		for _, name := range slices.Sorted(maps.Keys(m.wanted.ports)) {
			sp := m.wanted.ports[name]
			if kept[name] {
				m.Keep(sp)
			} else {
				m.Set(sp)
			}
		}
	}
	m.Adopt(m.kernel.list(w.family))
	if rapid.Bool().Draw(t, "refused") {
		stage() // all of it
		m.Commit(m.now)
		m.Adopt(m.kernel.list(w.family))
	}
	for _, name := range slices.Sorted(maps.Keys(m.wanted.ports)) {
		kept[name] = rapid.Bool().Draw(t, "kept")
	}
	stage()
	m.commitKept(t, before, kept)
	// Others change meanwhile, and what lingers goes.
	for range 3 {
		sp := w.servicePort().Draw(t, "other port")
		if !kept[sp.Name] {
			m.Set(sp)
			m.wanted.ports[sp.Name] = sp
		}
		if due, ok := m.Due(); ok {
			m.now = due
		}
		m.commitKept(t, nil, kept)
	}
	if rapid.Bool().Draw(t, "read again") {
		m.Adopt(m.kernel.list(w.family))
		m.commitKept(t, nil, kept)
	}
	clear(kept)
	m.Adopt(m.kernel.list(w.family))
	stage()
	m.commit(t)
	m.drain(t)
}

// commitKept commits, and checks that kept fronts behave as before and the others as expected. before is nil if fronts
// have moved between Services since.
func (m *machine) commitKept(t *rapid.T, before *fakeKernel, kept map[string]bool) {
	c := m.Commit(m.now)
	if err := m.kernel.apply(c.Transaction); err != nil {
		t.Fatal(err)
	}
	l := m.kernel.list(m.world.family)
	if !m.Holds(l) || !m.HoldsShape(l) {
		t.Fatalf("the kernel differs: %v", m.compare(l, true))
	}
	if again := m.Commit(m.now); !again.Transaction.Empty() || again.Stale != nil || again.Forget != nil {
		t.Fatalf("a Commit without changes has %v", again)
	}
	for _, front := range m.world.fronts {
		sp, end, taken := m.wanted.winner(front)
		if !taken || end.Empty == Ignore || kept[sp.Name] && (before == nil || !before.knows(front)) {
			continue // what becomes of a packet to it is a matter of others
		}
		was, had, _ := m.done.winner(front)
		if kept[sp.Name] && (had.Empty == Ignore || was.Name != sp.Name && was.Affinity > 0) {
			continue // so it is, and clients that another remembers may be forgotten
		}
		for _, p := range m.world.clients {
			p.front = front
			got, want := m.kernel.outcomes(p), m.wanted.outcomes(p)
			if kept[sp.Name] {
				want = before.outcomes(p)
			}
			for f, part := range got {
				if off := math.Abs(part - want[f]); want[f] == 0 || off > 0.01 && sp.Affinity == 0 {
					t.Fatalf("%v (kept %t) goes to %v in %.4f of all cases; it should go to %v", p, kept[sp.Name], f, part, want)
				}
			}
		}
	}
	for _, s := range c.Stale {
		if sp, _, taken := m.wanted.winner(s.Front); taken && kept[sp.Name] && before != nil {
			t.Fatalf("connections of %v are ended, though it is kept", s)
		}
	}
	m.before, m.done = m.done, m.wanted
	m.done.ports = maps.Clone(m.wanted.ports)
}

// knows reports whether the kernel has something for a front.
func (k *fakeKernel) knows(front Front) bool {
	return slices.ContainsFunc(sets[:verdictMaps], func(set *Set) bool {
		_, found := k.sets[set.Name].elements[frontKey(front)]
		return found
	})
}

// A kept ServicePort keeps the kernel's elements byte by byte, whether its endpoints, its addresses or other parts are
// refused.
func TestKeep(t *testing.T) {
	for _, test := range []struct {
		name   string
		before ServicePort
		asked  func(*ServicePort)
	}{
		{"other endpoints", dnsPort("12"), func(sp *ServicePort) { sp.Cluster = targets("345") }},
		{"no endpoints", dnsPort("12"), func(sp *ServicePort) { sp.Cluster = nil }},
		{"one more address", dnsPort("12"), func(sp *ServicePort) {
			sp.Fronts = append(sp.Fronts, FrontEnd{Front: frontOf("203.0.113.1", UDP, 53)})
		}},
		{"another treatment", dnsPort("12"), func(sp *ServicePort) { sp.Fronts[0].Masquerade = true }},
		{"weights", dnsPort("12"), func(sp *ServicePort) { sp.Weights = []uint32{1, 3} }},
		{"affinity that ends", sticky("12", "1"), func(sp *ServicePort) { sp.Affinity = 0 }},
		{"affinity of another time", sticky("12", "1"), func(sp *ServicePort) { sp.Affinity = time.Minute }},
		{"affinity and other endpoints", sticky("12", "1"), func(sp *ServicePort) { sp.Cluster, sp.Local = targets("34"), targets("3") }},
		{"affinity that begins", dnsPort("12"), func(sp *ServicePort) { sp.Affinity = time.Hour }},
		{"other sources", guardedPort(), func(sp *ServicePort) {
			sp.Fronts[0].Sources = []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}
		}},
		{"sources no more", guardedPort(), func(sp *ServicePort) { sp.Fronts[0].Sources = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBed(Config{Family: IPv4})
			b.program(t, start, test.before)
			asked := test.before
			asked.Fronts = slices.Clone(asked.Fronts)
			test.asked(&asked)
			other := b.again(t)
			other.Keep(asked)
			c := other.Commit(start)
			expectLines(t, describe(c.Transaction))
			if len(c.Stale)+len(c.Forget) > 0 {
				t.Errorf("stale are %v, to be forgotten %v", c.Stale, c.Forget)
			}
			l := b.kernel.list(IPv4)
			if !other.Holds(l) || !other.HoldsShape(l) {
				t.Errorf("the kernel differs: %v", other.compare(l, true))
			}
			// The port is staged, refused, and kept again.
			other.Adopt(l)
			other.stage(t, asked)
			other.Commit(start)
			other.Adopt(l)
			other.Keep(asked)
			expectLines(t, describe(other.Commit(start).Transaction))
			// Then the kernel takes it.
			other.Adopt(l)
			for _, f := range other.program(t, start, asked).Forget {
				other.Forgotten(f.Set, start.Add(Linger))
			}
			other.do(t, other.Commit(start.Add(Linger)))
			fresh := newBed(Config{Family: IPv4})
			fresh.program(t, start, asked)
			if differences := fresh.Differences(b.kernel.list(IPv4)); len(differences) > 0 {
				t.Errorf("after the write, the kernel differs: %v", differences)
			}
		})
	}
}

// guardedPort is a port for clients of 10.1.0.0/16.
func guardedPort() ServicePort {
	sp := dnsPort("12")
	sp.Fronts[0].Sources = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}
	return sp
}

// A kept front goes to another ServicePort with the better claim, and does not come back.
func TestKeptFrontsPassOn(t *testing.T) {
	for _, read := range []bool{false, true} {
		t.Run(fmt.Sprintf("read in between %t", read), func(t *testing.T) { passOn(t, read) })
	}
}

func passOn(t *testing.T, read bool) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, dnsPort("12"))
	asked := dnsPort("34")
	asked.Rank = "2"
	other := b.again(t)
	other.Keep(asked)
	other.do(t, other.Commit(start))
	better := dnsPort("5")
	better.Name, better.Rank = "shop/dns:", "1"
	other.program(t, start, better)
	fresh := newBed(Config{Family: IPv4})
	fresh.program(t, start, better)
	other.do(t, other.Commit(start.Add(Linger)))
	if differences := fresh.Differences(b.kernel.list(IPv4)); len(differences) > 0 {
		t.Errorf("another does not get the front: %v", differences)
	}
	if read {
		other.Adopt(b.kernel.list(IPv4))
		other.do(t, other.Commit(start))
	}
	other.Remove(better.Name)
	other.do(t, other.Commit(start))
	if len(b.kernel.sets["services"].elements) > 0 {
		t.Error("the front returns to the foreign target")
	}
}

// Connections of kept fronts may continue to the kept and to the staged endpoints.
func TestLiveOfKeptFronts(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, dnsPort("12"))
	other := b.again(t)
	other.Keep(dnsPort("23"))
	other.Commit(start)
	if got := other.Live(UDP)[dns]; !slices.Equal(got, targets("123")) {
		t.Errorf("connections may continue to %v", got)
	}
}
