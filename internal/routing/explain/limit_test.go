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

func TestLimitsAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/concepts/routing.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.ReplaceAll(strings.ToLower(string(text)), " ", "-")
	for _, name := range []string{
		LimitOneEndpoint, LimitEndpointsInOneZone, LimitFewEndpoints, LimitEndpointsNoZone,
		LimitZonesWithoutNodes, LimitTrafficFromOneZone, LimitAutoscaling,
	} {
		if !strings.Contains(sections, "\n###-"+name+"\n") {
			t.Errorf("no section has the link %s", newLimit(name, "").Link)
		}
	}
}
