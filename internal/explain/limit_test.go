package explain

import (
	"os"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

func TestLimits(t *testing.T) {
	zone := func(name string, capacity float64, endpoints int) allocate.Zone {
		return allocate.Zone{Name: name, Capacity: capacity, Endpoints: endpoints}
	}
	for _, test := range []struct {
		name  string
		zones []allocate.Zone
		want  []string
	}{
		{"nothing to say", []allocate.Zone{zone("a", 1, 2), zone("b", 1, 2)}, nil},
		{"one endpoint", []allocate.Zone{zone("a", 1, 1), zone("b", 1, 0)}, []string{LimitOneEndpoint}},
		{"one zone has all", []allocate.Zone{zone("a", 1, 3), zone("b", 1, 0)}, []string{LimitEndpointsInOneZone}},
		{
			"fewer than zones",
			[]allocate.Zone{zone("a", 1, 1), zone("b", 1, 1), zone("c", 1, 0)},
			[]string{LimitFewEndpoints},
		},
		{"no zone", []allocate.Zone{zone("", 0, 1), zone("a", 1, 3), zone("b", 1, 3)}, []string{LimitEndpointsNoZone}},
		{"no node", []allocate.Zone{zone("a", 1, 3), zone("b", 1, 3), zone("c", 0, 3)}, []string{LimitZonesWithoutNodes}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got, texts []string
			region := allocate.Region{Zones: test.zones}
			for _, limit := range Limits(region) {
				got, texts = append(got, limit.Name), append(texts, limit.Text)
			}
			if !slices.Equal(got, test.want) || !slices.Equal(texts, Warnings(region)) {
				t.Errorf("got %q, want %q; warnings are %q", got, test.want, Warnings(region))
			}
		})
	}
}

func TestTrafficFromOneZone(t *testing.T) {
	region := allocate.Region{Zones: []allocate.Zone{
		{Name: "a", Capacity: 2, Endpoints: 6}, {Name: "b", Capacity: 1, Endpoints: 2}, {Name: "c", Endpoints: 1},
	}}
	nearest := allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}}
	for _, test := range []struct {
		name   string
		region allocate.Region
		intent allocate.Intent
		want   string
	}{
		{"zones use different endpoints", region, nearest, "the plan expects 33.3 % of the traffic from b: if all of it came from there, an endpoint would get 4.5 times its even share"},
		{"zones use all", region, allocate.Intent{}, ""},
		{"no endpoint", allocate.Region{Zones: []allocate.Zone{{Name: "a", Capacity: 1}}}, nearest, ""},
	} {
		plan, _, err := allocate.Allocate(test.region, test.intent, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		limit, found := TrafficFromOneZone(test.region, plan)
		if limit.Text != test.want || found != (test.want != "") || found && limit.Name != LimitTrafficFromOneZone {
			t.Errorf("%s: got %+v", test.name, limit)
		}
	}
}

// Every limit has a section that its link leads to, and every section is of a limit.
func TestLimitsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../docs/concepts/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for line := range strings.Lines(string(text)) {
		if heading, found := strings.CutPrefix(strings.TrimSpace(line), "## "); found {
			sections = append(sections, strings.ReplaceAll(strings.ToLower(heading), " ", "-"))
		}
	}
	if !slices.Equal(sections, LimitNames()) {
		t.Errorf("the sections are %q, the limits are %q", sections, LimitNames())
	}
	if got, want := Autoscaled([]string{"HorizontalPodAutoscaler web"}).Link(), "docs/concepts/limits.md#autoscaling-by-one-zone"; got != want {
		t.Errorf("got link %q, want %q", got, want)
	}
}

func TestUses(t *testing.T) {
	for _, test := range []struct {
		byHome    map[string]int
		zone      string
		endpoints int
		want      string
	}{
		{map[string]int{"a": 3, "b": 1}, "a", 12, "3 own + 1 of b"},
		{map[string]int{"b": 2, "c": 1}, "a", 12, "2 of b + 1 of c"},
		{map[string]int{"a": 3, "b": 1}, "a", 4, "all 4"},
		{map[string]int{"a": 4}, "a", 4, "4 own"},
		{map[string]int{"a": 4}, "b", 4, "all 4"},
		{map[string]int{"": 2, "a": 1}, "", 4, "2 of (none) + 1 of a"},
		{map[string]int{"": 3}, "a", 3, "all 3"},
		{map[string]int{"b\x1b[31m\n": 2}, "a", 4, `2 of "b\x1b[31m\n"`},
		{map[string]int{"": 2, "b": 1}, "a", 4, "2 of (none) + 1 of b"},
		{map[string]int{}, "a", 4, "none"},
	} {
		if got := Uses(test.byHome, test.zone, test.endpoints); got != test.want {
			t.Errorf("%v from %q: got %q, want %q", test.byHome, test.zone, got, test.want)
		}
	}
}

func TestComparisonOfWhatWasDecidedElsewhere(t *testing.T) {
	q := Question{
		Region: allocate.Region{Zones: []allocate.Zone{{Name: "a", Capacity: 1, Endpoints: 6}, {Name: "b", Capacity: 1, Endpoints: 6}}},
		Asked: allocate.Intent{
			Tiers: topology.Tiers{topology.Zone, topology.Anywhere},
			Bound: &allocate.Bound{Algorithm: allocate.Optimal, OverloadThreshold: 0.5},
		},
		Algorithms: []allocate.Algorithm{allocate.Balanced, allocate.Optimal}, Delivery: "hints",
	}
	comparison, err := Compare(q)
	if err != nil {
		t.Fatal(err)
	}
	everything, outcome, err := allocate.Allocate(q.Region, allocate.Intent{}, allocate.Previous{})
	if err != nil {
		t.Fatal(err)
	}
	before := comparison.Options[comparison.Asked]
	comparison.Decide(q, everything, outcome, nil, nil)
	after := comparison.Options[comparison.Asked]
	if before.Figures.InZone != 1 || after.Figures.InZone != 0.5 || after.Outcome.Rule != allocate.RuleAsked || after.Total >= before.Total {
		t.Errorf("before %+v, after %+v", before, after)
	}
}
