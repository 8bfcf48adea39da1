package allocate_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// After an outage of zone b a plan below the threshold is kept in which endpoints of a
// and c are still lent to it. Asked to renew, each zone gets its own back.
func TestRenew(t *testing.T) {
	var endpoints []allocate.Endpoint
	for _, zone := range []string{"a", "b", "c"} {
		for i := range 4 {
			endpoints = append(endpoints, allocate.Endpoint{ID: fmt.Sprint(zone, i), Zone: zone, Assigned: allocate.NewConsumerSet(zone)})
		}
	}
	endpoints[0].Assigned = allocate.NewConsumerSet("b")
	r := region(t, "a=1/4 b=1/4 c=1/4")
	for _, algorithm := range []allocate.Algorithm{allocate.Optimal, allocate.Local, allocate.LocalShared} {
		intent := allocate.Intent{Bound: bound(algorithm)}
		previous := allocate.Previous{State: allocate.Allocated, Plan: allocate.Survivors(endpoints)}
		if _, kept, err := allocate.Allocate(r, intent, previous); err != nil || kept.Rule != allocate.RuleKept {
			t.Fatalf("%s: not asked, %s, %v", algorithm, kept.Rule, err)
		}
		previous.Renew = true
		plan, outcome, err := allocate.Allocate(r, intent, previous)
		if err != nil {
			t.Fatal(err)
		}
		if outcome.Rule != allocate.RuleRenewed || outcome.State != allocate.Allocated || outcome.Figures.InZone < 0.9999 || outcome.Before.InZone > 0.95 {
			t.Errorf("%s: %s by %s, %+v", algorithm, render(plan), outcome.Rule, outcome)
		}
		again := make([]allocate.Endpoint, len(endpoints))
		copy(again, endpoints)
		if moved, err := allocate.Assign(plan, again); err != nil || moved != 1 {
			t.Errorf("%s: %d endpoints move, %v", algorithm, moved, err)
		}
		// It is done once.
		previous.Plan = allocate.Survivors(again)
		if _, outcome, err = allocate.Allocate(r, intent, previous); err != nil || outcome.Rule != allocate.RuleKept {
			t.Errorf("%s: again %s, %v", algorithm, outcome.Rule, err)
		}
	}
}

// With the region as a tier it is all traffic that must gain: what is much for a region of
// little traffic may be nothing for the Service.
func TestRenewByRegion(t *testing.T) {
	for _, test := range []struct {
		name, region string
		lent         []string // endpoints that the next zone uses
		rule         allocate.Rule
		before, now  float64
	}{
		{"much for a small region", "a@east=27/20 b@east=27/20 c@west=3/4 d@west=3/4", []string{"c0"}, allocate.RuleKept, 0, 0.99},
		{"much for all", "a@east=20/20 b@east=20/20 c@west=4/4 d@west=4/4", []string{"a0", "a1", "a2", "a3"}, allocate.RuleRenewed, 67.0 / 72, 1},
		{"in both", "a@east=20/20 b@east=20/20 c@west=4/4 d@west=4/4", []string{"a0", "a1", "a2", "a3", "c0"}, allocate.RuleRenewed, 67.0/72 - 1.0/60, 1},
	} {
		r := region(t, test.region)
		var endpoints []allocate.Endpoint
		for i, z := range r.Zones {
			for n := range z.Endpoints {
				e := allocate.Endpoint{ID: fmt.Sprint(z.Name, n), Zone: z.Name, Assigned: allocate.NewConsumerSet(z.Name)}
				if slices.Contains(test.lent, e.ID) {
					e.Assigned = allocate.NewConsumerSet(r.Zones[i+1].Name)
				}
				endpoints = append(endpoints, e)
			}
		}
		intent := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Region, topology.Anywhere}, Bound: bound(allocate.Optimal)}
		previous := allocate.Previous{State: allocate.Allocated, Plan: allocate.Survivors(endpoints), Renew: true}
		plan, outcome, err := allocate.Allocate(r, intent, previous)
		if err != nil {
			t.Fatal(err)
		}
		checkPlan(t, r, plan, outcome)
		if outcome.Rule != test.rule || math.Abs(outcome.Figures.InZone-test.now) > 1e-9 || math.Abs(outcome.Before.InZone-test.before) > 1e-9 {
			t.Errorf("%s: %s by %s, %+v, before %+v", test.name, render(plan), outcome.Rule, outcome.Figures, outcome.Before)
		}
	}
}

// To renew never makes a plan that scores less, and keeps the previous one as it is
// unless it is better by the margin.
func TestRenewNeverCosts(t *testing.T) {
	check(t, func(t *rapid.T) {
		r := regions(4, 12).Draw(t, "region")
		tiers := rapid.SampledFrom([]topology.Tiers{
			nil, {topology.Zone, topology.Region, topology.Anywhere}, {topology.Zone, topology.Region},
		}).Draw(t, "tiers")
		intent := allocate.Intent{Tiers: tiers, Bound: bounds().Draw(t, "bound")}
		plan, outcome, err := allocate.Allocate(r, intent, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		if outcome.State != allocate.Allocated {
			return
		}
		previous := allocate.Previous{State: outcome.State, Plan: plan.Clone()}
		for z := range r.Zones {
			r.Zones[z].Endpoints += rapid.IntRange(0, 3).Draw(t, "more")
		}
		plan, kept, err := allocate.Allocate(r, intent, previous)
		if err != nil {
			t.Fatal(err)
		}
		before := plan.Clone()
		previous.Renew = true
		after, renewed, err := allocate.Allocate(r, intent, previous)
		if err != nil {
			t.Fatal(err)
		}
		if !tiers.Hard() { // which may leave zones without an endpoint
			checkPlan(t, r, after, renewed)
		}
		score := func(o allocate.Outcome) float64 { return allocate.DefaultWeights().Score(o.Figures, 1) }
		switch {
		case renewed.Rule == allocate.RuleRenewed && score(renewed) < score(kept)+allocate.RenewMargin-1e-9:
			t.Fatalf("from %g to %g", score(kept), score(renewed))
		case renewed.Rule != allocate.RuleRenewed && render(after) != render(before):
			t.Fatalf("%s by %s, kept is %s", render(after), renewed.Rule, render(before))
		}
	})
}
