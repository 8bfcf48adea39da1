package allocate_test

import (
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

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
