package allocate_test

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// After an outage of zone b, a plan below the threshold is kept, although it still lends endpoints
// of a and c to b. Renew gives each zone its own endpoints back.
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
		// A second renewal changes nothing.
		previous.Plan = allocate.Survivors(again)
		if _, outcome, err = allocate.Allocate(r, intent, previous); err != nil || outcome.Rule != allocate.RuleKept {
			t.Errorf("%s: again %s, %v", algorithm, outcome.Rule, err)
		}
	}
}

// More traffic in its zone does not justify less traffic on its node.
func TestRenews(t *testing.T) {
	kept := allocate.Figures{InZone: 0.8, SameNode: 0.5}
	for _, test := range []struct {
		fresh allocate.Figures
		want  bool
	}{
		{allocate.Figures{InZone: 0.9, SameNode: 0.5}, true},
		{allocate.Figures{InZone: 0.9, SameNode: 0.6}, true},
		{allocate.Figures{InZone: 0.9, SameNode: 0.4}, false},
		{allocate.Figures{InZone: 0.81, SameNode: 0.6}, false},
	} {
		if got := allocate.Renews(test.fresh, kept); got != test.want {
			t.Errorf("%+v instead of %+v: %t", test.fresh, kept, got)
		}
	}
}

// Renew never gives a plan with a lower score. It keeps the previous plan as it is unless the new
// one is better by the margin.
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
		if !tiers.Hard() { // hard tiers may leave zones without an endpoint
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

// Where regions are a preference, endpoints in an unknown zone do not lie idle and do not take
// endpoints from others. Planning again gives the same plan.
func TestRegionOfEndpointsWithoutZone(t *testing.T) {
	intent := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Region, topology.Anywhere}, Bound: bound(allocate.Optimal)}
	r := region(t, "a@e=2/2 b@e=1/1 c@w=2/2 gone=0/1")
	r.Zones = append(r.Zones, allocate.Zone{Endpoints: 1})
	plan, outcome, err := allocate.Allocate(r, intent, allocate.Previous{})
	if err != nil {
		t.Fatal(err)
	}
	checkPlan(t, r, plan, outcome)
	for _, g := range plan.Groups {
		if !slices.ContainsFunc(g.Consumers, func(c allocate.Consumer) bool { return slices.Contains([]string{"a", "b", "c"}, plan.Zones[c.Zone]) }) {
			t.Errorf("unused endpoints: %s", render(plan))
		}
	}
	first := render(plan)
	again, outcome, err := allocate.Allocate(r, intent, allocate.Previous{State: outcome.State, Plan: plan.Clone()})
	if err != nil || render(again) != first {
		t.Errorf("first %s, then %s by %s, %v", first, render(again), outcome.Rule, err)
	}
}

// If the kept plans of the regions overload the whole, each region first makes a new plan for
// itself. Only then are all zones divided as one. Planning again gives the same plan.
func TestRegionsReplanBeforeTheyAreJoined(t *testing.T) {
	intent := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Region, topology.Anywhere}, Bound: bound(allocate.Optimal)}
	r := region(t, "a@e=1/4 b@e=2/0 gone@w=0/1")
	endpoints := []allocate.Endpoint{
		{ID: "1", Zone: "a", Assigned: allocate.NewConsumerSet("a")},
		{ID: "2", Zone: "a", Assigned: allocate.NewConsumerSet("a")},
		{ID: "3", Zone: "a", Assigned: allocate.NewConsumerSet("b")},
		{ID: "4", Zone: "a", Assigned: allocate.NewConsumerSet("b")},
		{ID: "5", Zone: "gone", Assigned: allocate.NewConsumerSet("gone")},
	}
	previous := allocate.Previous{State: allocate.Allocated, Plan: allocate.Survivors(endpoints)}
	var first string
	for i := range 3 {
		plan, outcome, err := allocate.Allocate(r, intent, previous)
		if err != nil {
			t.Fatal(err)
		}
		if first == "" {
			first = render(plan)
		}
		if got := render(plan); got != first {
			t.Errorf("plan %d is %s by %s, the first was %s", i+1, got, outcome.Rule, first)
		}
		previous = allocate.Previous{State: outcome.State, Plan: plan.Clone()}
	}
}

// An algorithm without weights cannot keep a plan with weights.
func TestWeightsAreNotKept(t *testing.T) {
	r := region(t, "a=2/1 b=2/1 c=2/4")
	plan, outcome, err := allocate.Allocate(r, allocate.Intent{Bound: bound(allocate.Flow)}, allocate.Previous{})
	if err != nil {
		t.Fatal(err)
	}
	previous := allocate.Previous{State: outcome.State, Plan: plan.Clone()}
	plan, outcome, err = allocate.Allocate(r, allocate.Intent{Bound: bound(allocate.Optimal)}, previous)
	if err != nil || outcome.Rule != allocate.RulePlanned {
		t.Errorf("%s by %s, %v", render(plan), outcome.Rule, err)
	}
	for _, g := range plan.Groups {
		for _, c := range g.Consumers {
			if c.Weight != 1 {
				t.Errorf("weight %g in %s", c.Weight, render(plan))
			}
		}
	}
}
