package allocate_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// nodeWorld is a NodeTiers with the plan that its endpoints are assigned by.
type nodeWorld struct {
	allocate.NodeTiers
	outcome allocate.Outcome
}

// nodeWorlds draws nodes in zones and racks, and endpoints on them that some algorithm divides.
func nodeWorlds(keys ...string) *rapid.Generator[nodeWorld] {
	return rapid.Custom(func(t *rapid.T) nodeWorld {
		var w nodeWorld
		w.Keys = keys
		zones := []string{"a", "b", "c"}
		var weights []float64
		total := 0.0
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			n := allocate.Node{Name: fmt.Sprintf("n%02d", i), Zone: rapid.SampledFrom(zones).Draw(t, "zone")}
			for _, key := range keys {
				switch key {
				case topology.Hostname:
					n.Domains = append(n.Domains, n.Name)
				case topology.Zone:
					n.Domains = append(n.Domains, n.Zone)
				default:
					n.Domains = append(n.Domains, rapid.SampledFrom([]string{"", "r1", "r2", "r3"}).Draw(t, "rack"))
				}
			}
			weights = append(weights, float64(rapid.IntRange(0, 4).Draw(t, "weight")))
			total += weights[i]
			w.Nodes = append(w.Nodes, n)
		}
		for i := range w.Nodes {
			if total > 0 {
				w.Nodes[i].Share = weights[i] / total
			}
		}
		byName := map[string]*allocate.Zone{}
		for i := range w.Nodes {
			zone := byName[w.Nodes[i].Zone]
			if zone == nil {
				zone = &allocate.Zone{Name: w.Nodes[i].Zone}
				byName[zone.Name] = zone
			}
			zone.Capacity += weights[i]
		}
		for j := range rapid.IntRange(1, 30).Draw(t, "endpoints") {
			at := rapid.IntRange(0, len(w.Nodes)-1).Draw(t, "node")
			n := &w.Nodes[at]
			w.Endpoints = append(w.Endpoints, allocate.Endpoint{ID: fmt.Sprintf("e%02d", j), Zone: n.Zone})
			w.Places = append(w.Places, allocate.Place{Node: at, Domains: n.Domains})
			byName[n.Zone].Endpoints++
		}
		var r allocate.Region
		for _, zone := range byName {
			r.Zones = append(r.Zones, *zone)
		}
		intent := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}}
		// With a bound the plan decides about zones.
		if !slices.Contains(keys, topology.Zone) && rapid.IntRange(0, 4).Draw(t, "bounded") > 0 {
			algorithm := rapid.SampledFrom([]allocate.Algorithm{allocate.Optimal, allocate.LocalShared, allocate.LocalWeighted, allocate.LocalOpt, allocate.Balanced}).Draw(t, "algorithm")
			w.Threshold = rapid.SampledFrom([]float64{0.1, 0.5, 2}).Draw(t, "threshold")
			intent.Bound = &allocate.Bound{Algorithm: algorithm, OverloadThreshold: w.Threshold}
		}
		plan, outcome, err := allocate.Allocate(r, intent, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := allocate.Assign(plan, w.Endpoints); err != nil {
			t.Fatal(err)
		}
		w.Free = intent.Bound == nil && rapid.Bool().Draw(t, "free")
		w.outcome = outcome
		return w
	})
}

// naiveLoads lets each node search its endpoints on its own.
func (w *nodeWorld) naiveLoads(skips []allocate.Skip) (loads []float64, figures allocate.Figures) {
	loads = make([]float64, len(w.Endpoints))
	for i := range w.Nodes {
		n := &w.Nodes[i]
		chosen := map[int]float64{}
		weigh := func(level int) {
			for j := range w.Endpoints {
				weight := w.Endpoints[j].Assigned.Weight(n.Zone)
				if level >= 0 {
					domain := w.Places[j].Domains[level]
					if domain == "" || domain != n.Domains[level] || slices.ContainsFunc(skips, func(s allocate.Skip) bool { return s.Key == w.Keys[level] && s.Domain == domain }) {
						continue
					}
					if w.Free {
						weight = 1
					}
				}
				if weight > 0 {
					chosen[j] = weight
				}
			}
		}
		for level := range w.Keys {
			if weigh(level); len(chosen) > 0 {
				break
			}
		}
		if len(chosen) == 0 && !w.Hard {
			weigh(-1)
		}
		width := 0.0
		for _, weight := range chosen {
			width += weight
		}
		for j, weight := range chosen {
			each := n.Share * weight / width
			loads[j] += each * float64(len(loads))
			if w.Endpoints[j].Zone == n.Zone {
				figures.InZone += each
			}
			if w.Places[j].Node == i {
				figures.SameNode += each
			}
		}
	}
	for _, load := range loads {
		figures.Overload = max(figures.Overload, load-1)
	}
	return loads, figures
}

var keyLists = [][]string{
	{topology.Hostname}, {"rack"}, {topology.Hostname, "rack"}, {topology.Hostname, topology.Zone}, {"rack", topology.Zone},
}

func TestNodeTiersKeepTheThreshold(t *testing.T) {
	check(t, func(t *rapid.T) {
		keys := rapid.SampledFrom(keyLists).Draw(t, "keys")
		w := nodeWorlds(keys...).Draw(t, "world")
		got := w.Plan()
		loads, figures := w.naiveLoads(got.Skips)
		for j := range loads {
			if math.Abs(loads[j]-got.Loads[j]) > 1e-9 {
				t.Fatalf("endpoint %d: load %g, by nodes %g; skips %+v", j, got.Loads[j], loads[j], got.Skips)
			}
		}
		if f := got.Figures; math.Abs(f.InZone-figures.InZone) > 1e-9 || math.Abs(f.SameNode-figures.SameNode) > 1e-9 || math.Abs(f.Overload-figures.Overload) > 1e-9 {
			t.Fatalf("figures %+v, by nodes %+v", f, figures)
		}
		limit := max(w.Threshold, w.outcome.Figures.Overload+1e-9)
		switch {
		case w.Threshold == 0 && len(got.Skips) > 0:
			t.Fatalf("%+v are skipped without a threshold", got.Skips)
		case w.Threshold > 0 && figures.Overload >= limit:
			t.Fatalf("overload %g, the threshold is %g and the plan's overload %g", figures.Overload, w.Threshold, w.outcome.Figures.Overload)
		}
		// Every skip is needed: without it the place would still be at the threshold.
		for i := range got.Skips {
			if len(keys) > 1 {
				break // farther places depend on nearer ones
			}
			back, _ := w.naiveLoads(slices.Delete(slices.Clone(got.Skips), i, i+1))
			if most := slices.Max(back); most < 1+w.Threshold-1e-6 {
				t.Fatalf("%+v is skipped and would load endpoints to %g", got.Skips[i], most)
			}
		}
	})
}

func TestNodeTiersDoNotDependOnOrder(t *testing.T) {
	check(t, func(t *rapid.T) {
		w := nodeWorlds(rapid.SampledFrom(keyLists).Draw(t, "keys")...).Draw(t, "world")
		want := w.Plan()
		nodes := rapid.Permutation(w.Nodes).Draw(t, "nodes")
		order := make([]int, len(w.Endpoints))
		for j := range order {
			order[j] = j
		}
		other := w
		other.Nodes, other.Endpoints, other.Places = nodes, nil, nil
		for _, j := range rapid.Permutation(order).Draw(t, "endpoints") {
			place := w.Places[j]
			place.Node = slices.IndexFunc(nodes, func(n allocate.Node) bool { return n.Name == w.Nodes[w.Places[j].Node].Name })
			other.Endpoints, other.Places = append(other.Endpoints, w.Endpoints[j]), append(other.Places, place)
		}
		got := other.Plan()
		same := slices.EqualFunc(got.Skips, want.Skips, func(a, b allocate.Skip) bool {
			return a.Key == b.Key && a.Domain == b.Domain && a.Zone == b.Zone && a.Endpoints == b.Endpoints && math.Abs(a.Load-b.Load) < 1e-9
		})
		if !same || math.Abs(got.Figures.Overload-want.Figures.Overload) > 1e-9 {
			t.Fatalf("got %+v, in another order %+v", want, got)
		}
	})
}

// A skipped place returns only when its load would be well below the threshold.
func TestSkippedPlacesReturnLate(t *testing.T) {
	for _, test := range []struct {
		share   float64
		skipped bool // skipped before
		want    bool
	}{{0.14, false, false}, {0.15, false, true}, {0.14, true, true}, {0.137, true, false}, {0.15, true, true}} {
		w := allocate.NodeTiers{
			Keys: []string{topology.Hostname}, Threshold: 0.5,
			Nodes: []allocate.Node{
				{Name: "n1", Zone: "a", Share: test.share, Domains: []string{"n1"}},
				{Name: "n2", Zone: "a", Share: 1 - test.share, Domains: []string{"n2"}},
			},
		}
		for j := range 10 {
			at := cmp.Compare(j, 0)
			w.Endpoints = append(w.Endpoints, allocate.Endpoint{ID: fmt.Sprint(j), Zone: "a", Assigned: allocate.NewConsumerSet("a")})
			w.Places = append(w.Places, allocate.Place{Node: at, Domains: w.Nodes[at].Domains})
		}
		if test.skipped {
			w.Skipped = []allocate.Skip{{Key: topology.Hostname, Domain: "n1"}}
		}
		if got := w.Plan().Skips; (len(got) > 0) != test.want {
			t.Errorf("%+v: %+v", test, got)
		}
	}
}
