package simulate

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
)

// small returns a cluster with few nodes and endpoints.
func small() ScenarioOptions {
	o := DefaultScenarioOptions()
	o.NodesPerZone, o.Endpoints = []int{3, 2, 1}, 6
	return o
}

// failer has the common methods of *testing.T and *rapid.T.
type failer interface {
	Helper()
	Fatal(args ...any)
}

func play(t failer, name string, o ScenarioOptions) Scenario {
	t.Helper()
	scenario, err := NamedScenario(name, o)
	if err != nil {
		t.Fatal(err)
	}
	return scenario
}

// A scenario starts at 0, is in the order of time, and removes only existing nodes and endpoints.
func TestNamedScenariosCanBePlayed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		zones := rapid.IntRange(2, 30).Draw(t, "zones")
		o := ScenarioOptions{
			Zones:        zones,
			NodesPerZone: rapid.SliceOfN(rapid.IntRange(1, 12), 1, min(zones, 4)).Draw(t, "nodes"),
			Endpoints:    rapid.IntRange(1, 60).Draw(t, "endpoints"),
			Start:        allocate.Start{PerZone: float64(rapid.IntRange(0, 3).Draw(t, "start"))},
			Seed:         rapid.Uint64().Draw(t, "seed"),
		}
		scenario := play(t, rapid.SampledFrom(ScenarioNames()).Draw(t, "name"), o)
		if DescribeScenario(scenario.Name) == "" {
			t.Fatalf("%s is not described", scenario.Name)
		}
		w := newWorld(scenario.ZoneNames())
		var now time.Duration
		for i, event := range scenario.Events {
			if event.At < now || i == 0 && event.At != 0 || i > 0 && event.At == now {
				t.Fatalf("event %d is at %s, after %s", i, event.At, now)
			}
			now = event.At
			w.apply(i, event.Changes)
			if slices.Min(w.nodes) < 0 {
				t.Fatalf("nodes %v at %s", w.nodes, event.At)
			}
		}
		if now > scenario.Length {
			t.Fatalf("the last event is at %s, after the end at %s", now, scenario.Length)
		}
	})
}

func TestNamedScenariosFollowTheSeed(t *testing.T) {
	one, two := small(), small()
	two.Seed = 2
	for _, name := range ScenarioNames() {
		if !reflect.DeepEqual(play(t, name, one), play(t, name, one)) {
			t.Errorf("%s: the same seed made two scenarios", name)
		}
	}
	for _, name := range []string{"churn", "rolling-update", "autoscale"} {
		if reflect.DeepEqual(play(t, name, one), play(t, name, two)) {
			t.Errorf("%s: two seeds made the same scenario", name)
		}
	}
}

// sizes returns the numbers of endpoints after each event.
func sizes(s Scenario) []int {
	w := newWorld(s.ZoneNames())
	var list []int
	for i, event := range s.Events {
		w.apply(i, event.Changes)
		list = append(list, len(w.endpoints))
	}
	return list
}

func TestRollingUpdateKeepsToSurgeAndAvailability(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := DefaultScenarioOptions()
		o.Endpoints = rapid.IntRange(1, 40).Draw(t, "endpoints")
		o.Seed = rapid.Uint64().Draw(t, "seed")
		scenario := play(t, "rolling-update", o)
		list := sizes(scenario)
		for _, n := range list {
			if surge := (o.Endpoints + 3) / 4; n < o.Endpoints || n > o.Endpoints+surge {
				t.Fatalf("%d endpoints during an update of %d with a surge of %d", n, o.Endpoints, surge)
			}
		}
		retired := 0
		for _, event := range scenario.Events {
			for _, change := range event.Changes {
				if change.Subject == SubjectRetire {
					retired += change.Zones[0].Amount
				}
			}
		}
		if last := list[len(list)-1]; last != o.Endpoints || retired != o.Endpoints {
			t.Fatalf("%d of %d endpoints were replaced, and %d are left", retired, o.Endpoints, last)
		}
	})
}

func TestZoneLostComesBack(t *testing.T) {
	o := small()
	scenario := play(t, "zone-lost", o)
	w := newWorld(scenario.ZoneNames())
	lost, elsewhere := false, false
	for i, event := range scenario.Events {
		w.apply(i, event.Changes)
		zones := w.region().Zones
		if zones[0].Capacity == 0 && zones[0].Endpoints > 0 {
			t.Fatalf("at %s the lost zone has endpoints", event.At)
		}
		lost = lost || zones[0].Capacity == 0
		elsewhere = elsewhere || lost && zones[0].Endpoints == 0 && len(w.endpoints) == o.Endpoints
	}
	if zones := w.region().Zones; !lost || !elsewhere || int(zones[0].Capacity) != o.NodesPerZone[0] || zones[0].Endpoints == 0 {
		t.Errorf("lost: %v, replaced elsewhere: %v, at the end %+v", lost, elsewhere, zones)
	}
}

func TestPodsThatStartInALostZoneAreLost(t *testing.T) {
	o := small()
	s := newStage("test", o)
	s.deploy(2)
	s.in(time.Minute, func() { s.scale(12) })
	s.in(time.Minute+startUpLeast/2, func() {
		s.lose(0)
		s.setNodes(0, 1)
		s.scale(12)
	})
	scenario := s.play("test", time.Hour)
	if list := sizes(scenario); list[len(list)-1] != 12 {
		t.Errorf("%d pods in the end, want 12", list[len(list)-1])
	}
}

func TestAutoscaleGoesUpAndDown(t *testing.T) {
	o := DefaultScenarioOptions()
	most, least := 0, 1000
	for _, n := range sizes(play(t, "autoscale", o)) {
		most, least = max(most, n), min(least, n)
	}
	// The load stays at 0.4 for less time than the autoscaler remembers.
	if most != 48 || least != 13 {
		t.Errorf("from %d to %d endpoints, want 13 to 48", least, most)
	}
}

func TestNamedScenarioErrors(t *testing.T) {
	change := func(change func(*ScenarioOptions)) ScenarioOptions {
		o := DefaultScenarioOptions()
		change(&o)
		return o
	}
	for _, test := range []struct {
		name    string
		options ScenarioOptions
		want    string
	}{
		{"flood", DefaultScenarioOptions(), `scenario: "flood" is unknown; allowed are ` + strings.Join(ScenarioNames(), ", ")},
		{"churn", change(func(o *ScenarioOptions) { o.Zones = 1 }), "zones: 1 is not allowed; it must be from 2 to 100"},
		{"churn", change(func(o *ScenarioOptions) { o.Endpoints = 0 }), "endpoints: 0 is not allowed; it must be from 1 to 5000"},
		{"churn", change(func(o *ScenarioOptions) { o.NodesPerZone = nil }), "nodes per zone: 0 numbers are given; there must be from 1 to 3, the number of zones"},
		{"churn", change(func(o *ScenarioOptions) { o.NodesPerZone = []int{1, 0} }), "nodes per zone: 0 is not allowed; it must be from 1 to 200"},
		{"churn", change(func(o *ScenarioOptions) { o.Start.Endpoints = 6000 }), "starting threshold: 6000 is not allowed; it must be at most 5000 endpoints"},
	} {
		if _, err := NamedScenario(test.name, test.options); err == nil || err.Error() != test.want {
			t.Errorf("got  %v\nwant %s", err, test.want)
		}
	}
}
