package simulate

import (
	"context"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

// A small Service that optimal divides stays divided through rolling updates and probe failures.
// Its state never changes, it is never above the threshold, and an event moves less than one
// endpoint on average.
func TestSmallServicesDoNotFlap(t *testing.T) {
	const seeds = 5
	events, moved := 0, 0
	for _, nodes := range [][]int{{4, 4, 4}, {12, 10, 8}} {
		for endpoints := 3; endpoints <= 9; endpoints++ {
			inZone := map[string]float64{}
			for seed := range uint64(seeds) {
				o := ScenarioOptions{Zones: 3, NodesPerZone: nodes, Endpoints: endpoints, Seed: seed + 1}
				var options DynamicsOptions
				for _, name := range []string{"rolling-update", "probe-failures"} {
					scenario, err := NamedScenario(name, o)
					if err != nil {
						t.Fatal(err)
					}
					options.Scenarios = append(options.Scenarios, scenario)
				}
				options.Bounds = []allocate.Bound{allocate.DefaultBound(allocate.Optimal)}
				results, err := Dynamics(context.Background(), options)
				if err != nil {
					t.Fatal(err)
				}
				for _, s := range results.Scenarios {
					run := s.Runs[0]
					events, moved = events+s.Events, moved+run.Reallocated
					inZone[s.Scenario.Name] += run.InZone / seeds
					if run.Flips > 0 || !run.Series[0].Allocated {
						t.Errorf("%s, %d endpoints, nodes %v, seed %d: %d changes of the state, allocated at first: %t",
							s.Scenario.Name, endpoints, nodes, seed, run.Flips, run.Series[0].Allocated)
					}
					if run.AboveThreshold > 0 {
						t.Errorf("%s, %d endpoints, nodes %v, seed %d: above the threshold for %s", s.Scenario.Name, endpoints, nodes, seed, run.AboveThreshold)
					}
				}
			}
			t.Logf("%d endpoints, nodes %v: in zone %.1f %% in a rolling update, %.1f %% while probes fail",
				endpoints, nodes, 100*inZone["rolling-update"], 100*inZone["probe-failures"])
		}
	}
	t.Logf("%d events moved %d endpoints", events, moved)
	if moved >= events {
		t.Errorf("%d events moved %d endpoints", events, moved)
	}
}
