package ruleset

import (
	"math"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// weightedPort is a port of endpoints with weights.
func weightedPort(weights ...uint32) ServicePort {
	sp := ServicePort{Name: "a/weighted:", Fronts: []FrontEnd{{Front: frontOf("10.96.0.1", TCP, 80)}}, Weights: weights}
	for i := range weights {
		sp.Cluster = append(sp.Cluster, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 8080))
	}
	return sp
}

// Weights share traffic proportionally, with one slot for each endpoint.
func TestWeightsShareTraffic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kinds := rapid.SliceOfN(rapid.Uint32Range(1, MostWeight), 1, 6).Draw(t, "kinds")
		weights := rapid.SliceOfN(rapid.SampledFrom(kinds), 1, 20).Draw(t, "weights")
		b := newBed(Config{Family: IPv4})
		sp := weightedPort(weights...)
		b.Set(sp)
		b.do(t, b.Commit(start))
		var total uint32
		for _, weight := range weights {
			total += weight
		}
		shares := sp.Shares()
		outcomes := b.kernel.outcomes(packet{source: netip.MustParseAddr("192.0.2.1"), front: sp.Fronts[0].Front})
		for i, target := range sp.Cluster {
			wanted, got := float64(weights[i])/float64(total), outcomes[outcome{target: target}]
			if math.Abs(got-wanted) > 0.01 || math.Abs(shares[i]-got) > 1e-9 {
				t.Fatalf("%s gets %.4f of the traffic, computed are %.4f, want %.4f", target, got, shares[i], wanted)
			}
		}
		if slots := len(b.kernel.sets["slots"].elements); slots != len(weights) {
			t.Fatalf("%d endpoints have %d slots", len(weights), slots)
		}
	})
}

// Neighbouring weights are merged, and no class gets a point of traffic too much or too little.
func TestManyWeightsGiveFewClasses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		weights := rapid.SliceOfN(rapid.Uint32Range(1, MostWeight), 1, 200).Draw(t, "weights")
		all := make([]weighted, len(weights))
		total := 0.0
		for i, weight := range weights {
			all[i] = weighted{weightedPort(weights...).Cluster[i], weight}
			total += float64(weight)
		}
		targets, made := arrangeByWeight(slices.Clone(all))
		if len(made) > mostClasses || made.slots() != uint32(len(weights)) || len(targets) != len(weights) {
			t.Fatalf("%d weights are %v", len(weights), made)
		}
		slot := 0
		for _, c := range made {
			wanted := 0.0
			for _, target := range targets[slot : slot+int(c.count)] {
				wanted += float64(all[slices.IndexFunc(all, func(w weighted) bool { return w.target == target })].weight)
			}
			slot += int(c.count)
			if off := float64(c.weight)/parts - wanted/total; off > 0.01 || off < -0.01 {
				t.Fatalf("a class of %v gets %.4f more of all traffic than it should", made, off)
			}
		}
	})
}

// A change of weights moves as few endpoints as possible between slots.
func TestChangedWeightsKeepSlots(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	b.program(t, start, weightedPort(1000, 1000, 1000, 350, 350))
	c := b.program(t, start, weightedPort(1000, 1000, 1000, 500, 500))
	for _, line := range describe(c.Transaction) {
		if strings.Contains(line, "slots") {
			t.Errorf("other weights of the same endpoints: %s", line)
		}
	}
	if len(c.Stale) > 0 {
		t.Errorf("stale are %v", c.Stale)
	}
	c = b.program(t, start, weightedPort(1000, 1000, 500, 500, 500))
	for _, line := range describe(c.Transaction) {
		if strings.Contains(line, "slots") {
			t.Errorf("one endpoint moves to the next class: %s", line)
		}
	}
}

// Packets of the node do not pass unused hooks.
func TestHooksExistWhileNeeded(t *testing.T) {
	b := newBed(Config{Family: IPv4})
	there := func() (names []string) {
		for name := range hooks {
			if b.kernel.chains[name] != nil {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return names
	}
	b.program(t, start, dnsPort("12"))
	if got := there(); got != nil {
		t.Errorf("there are %v", got)
	}
	guarded := sticky("12", "1")
	guarded.Fronts[0].Sources = []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}
	b.program(t, start, guarded)
	if got := there(); len(got) != len(hooks) {
		t.Errorf("there are only %v", got)
	}
	b.Remove(guarded.Name)
	b.program(t, start)
	b.program(t, start.Add(time.Hour))
	if got := there(); got != nil {
		t.Errorf("there are still %v", got)
	}
}
