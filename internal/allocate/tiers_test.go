package allocate_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/test/nearest"
)

func parseTiers(t testing.TB, list string) topology.Tiers {
	t.Helper()
	short := map[string]string{"host": topology.Hostname, "zone": topology.Zone, "region": topology.Region}
	tiers, err := topology.ParseTiers(list)
	if err != nil {
		t.Fatal(err)
	}
	for i, key := range tiers {
		if long := short[key]; long != "" {
			tiers[i] = long
		}
	}
	return tiers
}

// nodes returns places for clients and endpoints in a zone: a rack of the zone's own, a rack that
// spans all zones, and two hosts in each.
func nodes(z allocate.Zone) []topology.Labels {
	var all []topology.Labels
	for _, rack := range []string{z.Name, "spread"} {
		for host := range 2 {
			labels := topology.Labels{"rack": rack, topology.Hostname: fmt.Sprint(z.Name, rack, host)}
			if z.Name != "" {
				labels[topology.Zone] = z.Name
			}
			if z.Region != "" {
				labels[topology.Region] = z.Region
			}
			all = append(all, labels)
		}
	}
	return all
}

// A zone has the endpoints that one of its nodes could be given, wherever in their
// zones the endpoints are. This tries all places of up to four zones.
func TestNearestTriesAllPlaces(t *testing.T) {
	check(t, func(t *rapid.T) {
		var r allocate.Region
		for i := range rapid.IntRange(1, 4).Draw(t, "zones") {
			r.Zones = append(r.Zones, allocate.Zone{
				Name:      fmt.Sprint("z", i),
				Region:    rapid.SampledFrom([]string{"east", "west", ""}).Draw(t, "region"),
				Capacity:  1,
				Endpoints: rapid.IntRange(0, 1).Draw(t, "endpoints"),
			})
		}
		keys := []string{topology.Hostname, topology.Zone, topology.Region, "rack"}
		tiers := topology.Tiers(rapid.SliceOfNDistinct(rapid.SampledFrom(keys), 0, 4, rapid.ID).Draw(t, "tiers"))
		if len(tiers) == 0 || rapid.Bool().Draw(t, "soft") {
			tiers = append(tiers, topology.Anywhere)
		}
		reach := map[[2]string]bool{}
		var homes []string
		var play func(zone int, placed []topology.Labels)
		play = func(zone int, placed []topology.Labels) {
			if zone < len(r.Zones) {
				if r.Zones[zone].Endpoints == 0 {
					play(zone+1, placed)
					return
				}
				homes = append(homes, r.Zones[zone].Name)
				for _, node := range nodes(r.Zones[zone]) {
					play(zone+1, append(slices.Clone(placed), node))
				}
				homes = homes[:len(homes)-1]
				return
			}
			for _, z := range r.Zones {
				for _, client := range nodes(z) {
					for _, i := range nearest.Select(tiers, client, placed) {
						reach[[2]string{z.Name, homes[i]}] = true
					}
				}
			}
		}
		play(0, nil)
		plan, outcome, err := allocate.Allocate(r, allocate.Intent{Tiers: tiers}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		checkForm(t, r, plan)
		if want := measure(plan, capacities(r)); !sameFigures(want, outcome.Figures) {
			t.Fatalf("figures are %+v, measured by endpoint %+v", outcome.Figures, want)
		}
		if r.Endpoints() == 0 {
			return
		}
		got := map[[2]string]bool{}
		for _, e := range individuals(plan) {
			for zone := range e.consumers {
				got[[2]string{zone, e.home}] = true
			}
		}
		for _, z := range r.Zones {
			for _, home := range r.Zones {
				pair := [2]string{z.Name, home.Name}
				if got[pair] != reach[pair] {
					t.Fatalf("%s: zone %s uses endpoints of %s: %v, its nodes may: %v (%s)", tiers, z.Name, home.Name, got[pair], reach[pair], render(plan))
				}
			}
		}
	})
}

// With a bound each region is divided on its own.
func TestRegionsWithBound(t *testing.T) {
	const below = "a@east=1/2 b@east=1/1 c@west=1/1"
	for _, test := range []struct {
		name, tiers, region string
		rule                allocate.Rule
		want                string
	}{
		{"each by itself", "zone,region,*", "a@east=1/4 b@east=1/0 c@west=1/2 d@west=1/2", allocate.RulePlanned, "a: 2a | b: 2a | c: 2c | d: 2d"},
		{"each by itself, hard", "zone,region", "a@east=1/4 b@east=1/0 c@west=1/2 d@west=1/2", allocate.RulePlanned, "a: 2a | b: 2a | c: 2c | d: 2d"},
		{"the region alone", "region,*", "a@east=1/4 b@east=1/0 c@west=1/2 d@west=1/2", allocate.RulePlanned, "a: 2a | b: 2a | c: 2c | d: 2d"},
		// b lacks endpoints that west could give: 4 endpoints expect 2 each in the whole.
		{"soft crosses in need", "zone,region,*", "a@east=1/1 b@east=1/0 c@west=1/4 d@west=1/3", allocate.RulePlanned, "a: 1a 1d | b: 2c | c: 2c | d: 2d"},
		{"soft crosses to a region without endpoints", "zone,region,*", "a@east=1/0 b@west=1/4", allocate.RulePlanned, "a: 2b | b: 2b"},
		{"hard shares what it has", "zone,region", "a@east=1/1 b@east=1/0 c@west=1/4 d@west=1/4", allocate.RulePlanned, "a,b: 1a | c: 4c | d: 4d"},
		{"hard with an empty region", "zone,region", "a@east=1/0 b@west=1/2 c@west=1/2", allocate.RulePlanned, "b: 2b | c: 2c"},
		{"hard without a plan in any region", "zone,region", "a@east=1/1 b@east=1/0 c@west=0/0", allocate.RuleOverload, "a,b: 1a"},
		{"a zone without a region", "zone,region", "a@east=1/2 b@east=1/2 c=1/2", allocate.RulePlanned, "a: 2a | b: 2b | c: 2c"},
		{"hard only as the last", "region,rack,*", "a@east=1/2 b@east=1/2 c@west=1/0", allocate.RulePlanned, "a: 1a | b: 2b | c: 1a"},
		{"hard below the start", "zone,region", below, allocate.RuleBelowStart, "a,b: 2a 1b | c: 1c"},
		{"soft below the start", "zone,region,*", below, allocate.RuleBelowStart, "a,b,c: 2a 1b 1c"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := bound(allocate.Local)
			if test.region == below {
				b.Start.Endpoints = 100
			}
			plan, outcome, err := allocate.Allocate(region(t, test.region),
				allocate.Intent{Tiers: parseTiers(t, test.tiers), Bound: b}, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			checkForm(t, region(t, test.region), plan)
			if got := render(plan); got != test.want || outcome.Rule != test.rule {
				t.Errorf("%s by %s, want %s by %s", got, outcome.Rule, test.want, test.rule)
			}
		})
	}
}

// A host is in one zone. If hosts are hard, no algorithm may use another zone.
func TestHardHostsStayInTheirZone(t *testing.T) {
	for _, tiers := range []string{"host", "zone,host"} {
		plan, outcome, err := allocate.Allocate(region(t, "a=1/4 b=1/0"),
			allocate.Intent{Tiers: parseTiers(t, tiers), Bound: bound(allocate.Local)}, allocate.Previous{})
		if err != nil {
			continue // refused, as a hard zone is
		}
		for _, e := range individuals(plan) {
			for zone := range e.consumers {
				if zone != e.home {
					t.Errorf("%s: %s by %s", tiers, render(plan), outcome.Rule)
				}
			}
		}
	}
}

// Hard regions never cross. Soft ones cross only if a region cannot serve itself.
func TestRegionsCrossOnlyInNeed(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := anyRegion().Draw(t, "region")
		wider := map[string]string{}
		parts := map[string]*allocate.Region{"east": {}, "west": {}}
		for i, z := range r.Zones {
			if z.Region == "" {
				r.Zones[i].Region, z.Region = "west", "west"
			}
			wider[z.Name] = z.Region
			parts[z.Region].Zones = append(parts[z.Region].Zones, z)
		}
		b := dividingBounds().Filter(func(b *allocate.Bound) bool { return b.Algorithm != allocate.Balanced }).Draw(t, "bound")
		hard := rapid.Bool().Draw(t, "hard")
		tiers := topology.Tiers{topology.Zone, topology.Region}
		if !hard {
			tiers = append(tiers, topology.Anywhere)
		}
		plan, outcome, err := allocate.Allocate(r, allocate.Intent{Tiers: tiers, Bound: b}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		checkForm(t, r, plan)
		if want := measure(plan, capacities(r)); !sameFigures(want, outcome.Figures) {
			t.Errorf("figures are %+v, measured by endpoint %+v", outcome.Figures, want)
		}
		crosses := false
		for _, e := range individuals(plan) {
			for zone := range e.consumers {
				crosses = crosses || wider[zone] != wider[e.home]
			}
		}
		if hard {
			if crosses && !noCapacity(r) {
				t.Fatalf("%s crosses hard regions", render(plan))
			}
			return
		}
		checkPlan(t, r, plan, outcome)
		if outcome.IsBalanced() || !crosses {
			return
		}
		// Crossing is justified if a region has no plan, or its plan overloads its endpoints under
		// the traffic of both regions.
		var joined allocate.Plan
		for _, part := range parts {
			alone, partOutcome, err := allocate.Allocate(*part, allocate.Intent{Bound: b}, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			if partOutcome.Rule != allocate.RulePlanned && !noCapacity(*part) {
				return
			}
			offset := len(joined.Zones)
			joined.Zones = append(joined.Zones, alone.Zones...)
			for _, g := range alone.Clone().Groups {
				for i := range g.Members {
					g.Members[i].Zone += offset
				}
				for i := range g.Consumers {
					g.Consumers[i].Zone += offset
				}
				joined.Groups = append(joined.Groups, g)
			}
		}
		if figures := measure(joined, capacities(r)); figures.Unreached == 0 && figures.Overload < b.OverloadThreshold-1e-6 {
			t.Fatalf("%s crosses regions by %s, though %s has an overload of %g", render(plan), outcome.Rule, render(joined), figures.Overload)
		}
	})
}

// Each region keeps its plan on its own; a kept plan may not be overloaded.
func TestLazyRegions(t *testing.T) {
	intent := allocate.Intent{Tiers: parseTiers(t, "zone,region,*"), Bound: bound(allocate.Local)}
	list := endpoints("a1 a2 a3 a4 b1 b2 b3 b4 c1 c2 c3 c4 d1 d2 d3 d4")
	plan, outcome, err := allocate.Allocate(region(t, "a@east=1/4 b@east=1/4 c@west=1/4 d@west=1/4"), intent, allocate.Previous{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = allocate.Assign(plan, list); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		region string
		gone   int // endpoints removed from the end of the list
		rule   allocate.Rule
		want   string
	}{
		{"a@east=1/4 b@east=1/4 c@west=1/4 d@west=1/4", 0, allocate.RuleKept, "a: 4a | b: 4b | c: 4c | d: 4d"},
		{"a@east=1/5 b@east=1/4 c@west=1/4 d@west=1/3", 1, allocate.RuleKept, "a: 5a | b: 4b | c: 4c | d: 3d"},
		// d expects 3 of west and has 2; east keeps its plan.
		{"a@east=1/4 b@east=1/4 c@west=1/4 d@west=1/2", 2, allocate.RulePlanned, "a: 4a | b: 4b | c: 3c | d: 1c 2d"},
		// d expects 2.5 of west, and 3.25 of the whole, for which 2 are too few.
		{"a@east=1/4 b@east=1/4 c@west=1/4 d@west=1/1", 3, allocate.RulePlanned, "a: 3a | b: 3b | c: 4c | d: 1a 1b 1d"},
	} {
		previous := allocate.Previous{State: outcome.State, Plan: allocate.Survivors(list[:len(list)-test.gone])}
		plan, outcome, err := allocate.Allocate(region(t, test.region), intent, previous)
		if err != nil || render(plan) != test.want || outcome.Rule != test.rule {
			t.Errorf("%s: %s by %s, %v, want %s by %s", test.region, render(plan), outcome.Rule, err, test.want, test.rule)
		}
	}
}

// One zone still leaves a choice of nodes and of custom domains. A hard request stays in force for
// zones that may come.
func TestOneZoneWithFinerTiers(t *testing.T) {
	for _, intent := range []allocate.Intent{
		{Tiers: topology.Tiers{topology.Hostname, topology.Zone, topology.Anywhere}},
		{Tiers: topology.Tiers{topology.Hostname, topology.Zone, topology.Anywhere}, Bound: bound(allocate.Optimal)},
		{Tiers: topology.Tiers{topology.Zone}},
	} {
		_, outcome, err := allocate.Allocate(region(t, "a=4/3"), intent, allocate.Previous{})
		if err != nil || outcome.Rule != allocate.RuleTiers || outcome.State != allocate.Allocated {
			t.Errorf("%v: %s by %s, %v", intent.Tiers, outcome.State, outcome.Rule, err)
		}
	}
}
