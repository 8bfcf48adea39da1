package simulate

import (
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/allocate"
)

var updateScenarios = flag.Bool("update-scenarios", false, "rewrite the golden files of scenarios")

// small is a cluster whose scenarios can be read in whole.
func small() ScenarioOptions {
	o := DefaultScenarioOptions()
	o.NodesPerZone, o.Endpoints = []int{3, 2, 1}, 6
	return o
}

func TestNamedScenariosGolden(t *testing.T) {
	for _, name := range ScenarioNames() {
		t.Run(name, func(t *testing.T) {
			scenario := play(t, name, small())
			got := scenario.String()
			file := filepath.Join("testdata", "scenarios", name+".txt")
			if *updateScenarios {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the scenario is not that of %s any more (go test -update-scenarios rewrites it):\n%s", file, got)
			}
			if DescribeScenario(name) == "" {
				t.Error("the scenario is not described")
			}
		})
	}
}

// failer is a test or a check of a property.
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

func TestNamedScenariosAreValidAndCanBeRead(t *testing.T) {
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
		if err := scenario.Validate(); err != nil {
			t.Fatalf("%v:\n%s", err, scenario)
		}
		read, err := ReadScenarios(strings.NewReader(scenario.String()))
		if err != nil {
			t.Fatalf("%v:\n%s", err, scenario)
		}
		if !reflect.DeepEqual(read, []Scenario{scenario}) {
			t.Fatalf("read back as\n%s\ninstead of\n%s", read[0], scenario)
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

// sizes are the numbers of endpoints after each event.
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
				t.Fatalf("%d endpoints during an update of %d with a surge of %d:\n%s", n, o.Endpoints, surge, scenario)
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
	if err := scenario.Validate(); err != nil {
		t.Fatal(err)
	}
	if list := sizes(scenario); list[len(list)-1] != 12 {
		t.Errorf("%d pods in the end, want 12:\n%s", list[len(list)-1], scenario)
	}
}

func TestAutoscaleGoesUpAndDown(t *testing.T) {
	o := DefaultScenarioOptions()
	most, least := 0, 1000
	for _, n := range sizes(play(t, "autoscale", o)) {
		most, least = max(most, n), min(least, n)
	}
	// The load is at 0.4 for less time than the autoscaler remembers.
	if most != 48 || least != 13 {
		t.Errorf("from %d to %d endpoints, want 13 to 48", least, most)
	}
}

func TestReadScenarios(t *testing.T) {
	read, err := ReadScenarios(strings.NewReader(`
# two stories
scenario sale   # in one zone
0s  nodes a=2 b=1
0s endpoints	a=4 b=4
10m traffic a=8 b=1
10m nodes c=+1
30m traffic
40m retire a=2

1h end
scenario calm
0s nodes a=1
1s end
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []Scenario{
		{Name: "sale", Length: time.Hour, Events: []Event{
			{0, []Change{
				{SubjectNodes, []ZoneChange{{"a", 2, false}, {"b", 1, false}}},
				{SubjectEndpoints, []ZoneChange{{"a", 4, false}, {"b", 4, false}}},
			}},
			{10 * time.Minute, []Change{
				{SubjectTraffic, []ZoneChange{{"a", 8, false}, {"b", 1, false}}},
				{SubjectNodes, []ZoneChange{{"c", 1, true}}},
			}},
			{30 * time.Minute, []Change{{SubjectTraffic, nil}}},
			{40 * time.Minute, []Change{{SubjectRetire, []ZoneChange{{"a", 2, false}}}}},
		}},
		{Name: "calm", Length: time.Second, Events: []Event{
			{0, []Change{{SubjectNodes, []ZoneChange{{"a", 1, false}}}}},
		}},
	}
	if !reflect.DeepEqual(read, want) {
		t.Errorf("got\n%v\nwant\n%v", read, want)
	}
}

func TestReadScenariosErrors(t *testing.T) {
	const head = "scenario s\n0s endpoints a=3\n"
	for _, test := range []struct{ name, text, want string }{
		{"nothing", "# only this\n", `there is no scenario; the first line must be "scenario NAME"`},
		{"no name", "scenario\n", `line 1: scenario: the name "" is not allowed; it must be one word`},
		{"two words", "scenario a b\n", `line 1: scenario: the name "a b" is not allowed; it must be one word`},
		{"twice", head + "1h end\nscenario s\n", `line 4: scenario: the name "s" is given twice`},
		{"outside", "0s nodes a=1\n", `line 1: "0s" is outside of a scenario; a line "scenario NAME" must come first`},
		{"no end", head, `line 2: scenario s has no end; add a line such as "1h end"`},
		{"no end before the next", head + "scenario t\n", `line 3: scenario s has no end; add a line such as "1h end" before the next`},
		{"no events", "scenario s\n1h end\n", "line 2: events: there is none; at least one at 0s is needed"},
		{"time", head + "soon nodes a=1\n", `line 3: time: "soon" is not allowed; it must be a time since the start such as 0s, 90s, 10m or 1h30m`},
		{"negative time", head + "-1s nodes a=1\n", `line 3: time: "-1s" is not allowed; it must be a time since the start such as 0s, 90s, 10m or 1h30m`},
		{"only a time", head + "1s\n", `line 3: "1s" says nothing; what changes must follow: nodes, endpoints, retire, unready, traffic or end`},
		{"first event", "scenario s\n1s nodes a=1\n", "line 2: time: the first event is at 1s; it must be at 0s, for it says what there is at the start"},
		{"order", head + "2s nodes a=1\n1s nodes a=1\n", "line 4: time: 1s comes after 2s; events must be in the order of time"},
		{"too late", head + "10001h nodes a=1\n", "line 3: time: 10001h is too late; at most 10000h is allowed"},
		{"early end", head + "2s nodes a=1\n1s end\n", "line 4: end: 1s is not allowed; it must be after the start and not before the last event at 2s"},
		{"late end", head + "10001h end\n", "line 3: end: 10001h is too late; at most 10000h is allowed"},
		{"words after end", head + "1s end now\n", `line 3: end: "now" follows; nothing may`},
		{"subject", head + "1s pods a=1\n", `line 3: "pods" is unknown; allowed are nodes, endpoints, retire, unready and traffic`},
		{"no zone", head + "1s nodes\n", "line 3: nodes: no zone is given; write ZONE=NUMBER"},
		{"no number", head + "1s nodes a\n", `line 3: nodes: "a" is not allowed; write ZONE=NUMBER`},
		{"not a number", head + "1s nodes a=many\n", `line 3: nodes: zone "a": "many" is not allowed; it must be a whole number`},
		{"empty zone", head + "1s nodes =1\n", `line 3: nodes: the zone "" is not allowed; it must be one word without # and =`},
		{"zone twice", head + "1s nodes a=1 a=2\n", `line 3: nodes: zone "a" is given twice`},
		{"below zero", head + "1s endpoints a=-4\n", `line 3: endpoints: zone "a": -4 is not allowed; there are 3, and there must be from 0 to 10000`},
		{"too many", head + "1s endpoints a=10001\n", `line 3: endpoints: zone "a": 10001 is not allowed; there are 3, and there must be from 0 to 10000`},
		{"too many more", head + "1s endpoints a=+9998\n", `line 3: endpoints: zone "a": +9998 is not allowed; there are 3, and there must be from 0 to 10000`},
		{"overflow", head + "1s nodes a=1\n1s nodes a=+9223372036854775807\n", `line 4: nodes: zone "a": +9223372036854775807 is not allowed; there are 1, and there must be from 0 to 100000`},
		{"retire", head + "1s retire a=4\n", `line 3: retire: zone "a": 4 is not allowed; it must be a number from 1 to the 3 endpoints there are, without a sign`},
		{"retire sign", head + "1s retire a=+1\n", `line 3: retire: zone "a": +1 is not allowed; it must be a number from 1 to the 3 endpoints there are, without a sign`},
		{"traffic", head + "1s traffic a=-1\n", `line 3: traffic: zone "a": -1 is not allowed; it must be a number from 0 to 1000000000, without a sign`},
		{"no traffic", head + "1s traffic a=0 b=0\n", `line 3: traffic: all shares are 0; one at least must be more, or write "traffic" alone for traffic by nodes`},
		{"long line", head + strings.Repeat("x", 70_000), "line 3: bufio.Scanner: token too long"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := ReadScenarios(strings.NewReader(test.text))
			if err == nil || err.Error() != test.want {
				t.Errorf("got  %v\nwant %s", err, test.want)
			}
		})
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

func FuzzReadScenarios(f *testing.F) {
	for _, name := range ScenarioNames() {
		scenario, err := NamedScenario(name, small())
		if err != nil {
			f.Fatal(err)
		}
		f.Add(scenario.String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		read, err := ReadScenarios(strings.NewReader(text))
		if err != nil {
			return
		}
		var again strings.Builder
		for _, scenario := range read {
			if err := scenario.Validate(); err != nil {
				t.Fatalf("what was read is not valid: %v", err)
			}
			again.WriteString(scenario.String())
		}
		back, err := ReadScenarios(strings.NewReader(again.String()))
		if err != nil {
			t.Fatalf("cannot read what was written: %v\n%s", err, again.String())
		}
		if !reflect.DeepEqual(back, read) {
			t.Fatalf("read back as\n%v\ninstead of\n%v", back, read)
		}
	})
}
