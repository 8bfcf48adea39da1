package allocate_test

import (
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// evenly returns a region of three equal zones with n endpoints.
func evenly(n int) allocate.Region {
	var r allocate.Region
	for i, name := range []string{"a", "b", "c"} {
		r.Zones = append(r.Zones, allocate.Zone{Name: name, Capacity: 1, Endpoints: (n + 2 - i) / 3})
	}
	return r
}

// With S = 9 and P = 3, allocation starts at 12 and ends at 6. The threshold is so high that a plan
// always exists.
func TestPadding(t *testing.T) {
	const s, p = 9, 3
	for _, start := range []allocate.Start{{Endpoints: s}, {PerZone: s / 3}} {
		b := &allocate.Bound{Algorithm: allocate.Local, OverloadThreshold: 10, Start: start, Padding: p}
		for n := s - p - 1; n <= s+p+1; n++ {
			for _, state := range []allocate.State{allocate.Waiting, allocate.Allocated, allocate.Downgraded} {
				want, rule := allocate.Allocated, allocate.RulePlanned
				switch {
				case n <= s-p:
					want, rule = allocate.Waiting, allocate.RuleBelowStart
				case n < s+p && state == allocate.Waiting:
					want, rule = allocate.Waiting, allocate.RuleInBand
				}
				_, outcome, err := allocate.Allocate(evenly(n), allocate.Intent{Bound: b}, allocate.Previous{State: state})
				if err != nil {
					t.Fatal(err)
				}
				if outcome.State != want || outcome.Rule != rule || outcome.Start != s || outcome.Padding != p {
					t.Errorf("%d endpoints, %s before: %s by %s (start %d, padding %d), want %s by %s",
						n, state, outcome.State, outcome.Rule, outcome.Start, outcome.Padding, want, rule)
				}
			}
		}
	}
}

// A Service that overload downgraded in the band is allocated again as soon as a plan exists; a
// Service that has not started is not. Two zones with 2 and 1 endpoints have no plan below 50 %.
func TestDowngradeInBand(t *testing.T) {
	intent := allocate.Intent{Bound: &allocate.Bound{
		Algorithm: allocate.Local, OverloadThreshold: 0.5, Start: allocate.Start{Endpoints: 4}, Padding: 2,
	}}
	for _, test := range []struct {
		region string
		before allocate.State
		after  allocate.State
		rule   allocate.Rule
	}{
		{"a=1/2 b=1/1", allocate.Allocated, allocate.Downgraded, allocate.RuleOverload},
		{"a=1/2 b=1/1", allocate.Downgraded, allocate.Downgraded, allocate.RuleOverload},
		{"a=1/2 b=1/1", allocate.Waiting, allocate.Waiting, allocate.RuleInBand},
		{"a=1/2 b=1/2", allocate.Downgraded, allocate.Allocated, allocate.RulePlanned},
		{"a=1/2 b=1/2", allocate.Waiting, allocate.Waiting, allocate.RuleInBand},
		{"a=1/1 b=1/1", allocate.Downgraded, allocate.Waiting, allocate.RuleBelowStart},
		// Above the band, overload also downgrades a Service that was never allocated.
		{"a=1/1 b=1/1 c=1/1 d=1/1 e=5/1 f=5/1", allocate.Waiting, allocate.Downgraded, allocate.RuleOverload},
	} {
		_, outcome, err := allocate.Allocate(region(t, test.region), intent, allocate.Previous{State: test.before})
		if err != nil {
			t.Fatal(err)
		}
		if outcome.State != test.after || outcome.Rule != test.rule {
			t.Errorf("%s, %s before: %s by %s, want %s by %s", test.region, test.before, outcome.State, outcome.Rule, test.after, test.rule)
		}
	}
}

// A Service stays in the band while it has no endpoint, or no zone has capacity. It does not start
// again from Waiting.
func TestBandSurvivesMissingEndpointsAndCapacity(t *testing.T) {
	for _, test := range []struct {
		name, region string
		start        int
	}{
		{"no endpoints", "a=1/0 b=1/0", 2}, // ends at -1
		{"no capacity", "a=0/4 b=0/4", 9},  // 8 is in the band from 6 to 12
	} {
		for _, state := range []allocate.State{allocate.Waiting, allocate.Allocated, allocate.Downgraded} {
			b := &allocate.Bound{Algorithm: allocate.Local, OverloadThreshold: 0.5, Start: allocate.Start{Endpoints: test.start}, Padding: 3}
			_, outcome, err := allocate.Allocate(region(t, test.region), allocate.Intent{Bound: b}, allocate.Previous{State: state})
			if err != nil {
				t.Fatal(err)
			}
			if started := outcome.State != allocate.Waiting; started != (state != allocate.Waiting) {
				t.Errorf("%s in the band, %s before: %s by %s", test.name, state, outcome.State, outcome.Rule)
			}
		}
	}
}

// Two plans of the region of ea and eb have the same score, and the plan in force stays. It also
// stays when it is read back from hints, which do not name the unknown zone.
func TestPlanWithoutTheUnknownZoneIsTheSame(t *testing.T) {
	region := allocate.Region{Zones: []allocate.Zone{
		{Name: "", Endpoints: 2},
		{Name: "ea", Region: "e", Capacity: 2, Endpoints: 3},
		{Name: "eb", Region: "e", Capacity: 2},
		{Name: "wc", Region: "w", Capacity: 2, Endpoints: 2},
	}}
	intent := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Region, topology.Anywhere}, Bound: &allocate.Bound{Algorithm: allocate.Optimal, OverloadThreshold: 0.5}}
	for _, zones := range [][]string{{"", "ea", "eb"}, {"ea", "eb"}} {
		var endpoints []allocate.Endpoint
		for i, home := range []string{"", "", "ea", "ea", "ea", "wc", "wc"} {
			set := allocate.NewConsumerSet(zones...)
			if home == "wc" {
				set = allocate.NewConsumerSet("wc")
			}
			endpoints = append(endpoints, allocate.Endpoint{ID: string(rune('a' + i)), Zone: home, Assigned: set})
		}
		plan, _, err := new(allocate.Planner).Allocate(region, intent, allocate.Previous{State: allocate.Allocated, Plan: allocate.Survivors(endpoints)})
		if err != nil {
			t.Fatal(err)
		}
		for i := range plan.Groups {
			if g := &plan.Groups[i]; g.Consumes(1) != g.Consumes(2) {
				t.Errorf("in force for %q: ea and eb are divided: %+v", zones, plan)
			}
		}
	}
}
