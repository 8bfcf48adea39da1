package allocate_test

import (
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// In one zone there is nothing to choose, whatever the algorithm and the number of
// endpoints, and zones without nodes and endpoints do not change that.
func TestOneZoneIsLeftAlone(t *testing.T) {
	soft := topology.Tiers{topology.Zone, topology.Anywhere}
	intents := map[string]allocate.Intent{"tiers": {Tiers: soft}}
	for _, algorithm := range allocate.Algorithms() {
		if algorithm != allocate.Balanced {
			b := bound(algorithm)
			intents[string(algorithm)] = allocate.Intent{Tiers: soft, Bound: b}
			if algorithm == allocate.Auto || algorithm == allocate.Flow {
				continue // they have no start
			}
			started := *b
			started.Start.Endpoints = 9
			intents[string(algorithm)+" with a start"] = allocate.Intent{Tiers: soft, Bound: &started}
		}
	}
	for name, intent := range intents {
		for _, text := range []string{"a=4/1", "a=4/30", "a=4/30 b=0/0"} {
			for before, want := range map[allocate.State]allocate.State{
				allocate.Waiting: allocate.Waiting, allocate.Allocated: allocate.Downgraded, allocate.Downgraded: allocate.Downgraded,
			} {
				_, outcome, err := allocate.Allocate(region(t, text), intent, allocate.Previous{State: before})
				if err != nil {
					t.Fatal(err)
				}
				if intent.Bound == nil || intent.Bound.Start.Endpoints > 0 && text == "a=4/1" {
					want = allocate.Waiting
				}
				if outcome.Rule != allocate.RuleOneZone || outcome.State != want || outcome.Zones != 1 {
					t.Errorf("%s, %s, %s before: %s by %s, want %s", name, text, before, outcome.State, outcome.Rule, want)
				}
			}
		}
	}
}

// What was started in two zones is planned again as soon as the second is back.
func TestSecondZoneAppears(t *testing.T) {
	intent := allocate.Intent{Bound: bound(allocate.Local)}
	intent.Bound.Start.Endpoints, intent.Bound.Padding = 9, 3
	for before, want := range map[allocate.State]allocate.State{allocate.Waiting: allocate.Waiting, allocate.Allocated: allocate.Allocated} {
		_, alone, err := allocate.Allocate(region(t, "a=4/9"), intent, allocate.Previous{State: before})
		if err != nil {
			t.Fatal(err)
		}
		_, outcome, err := allocate.Allocate(region(t, "a=4/5 b=4/4"), intent, allocate.Previous{State: alone.State})
		if err != nil || outcome.State != want {
			t.Errorf("%s before, then %s: %s by %s, %v", before, alone.State, outcome.State, outcome.Rule, err)
		}
	}
}

// Nodes, and domains of users, are there to choose from in one zone too; and a hard
// request holds for zones that may come.
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
