package explain

import (
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

func TestIntent(t *testing.T) {
	optimal := &allocate.Bound{Algorithm: allocate.Optimal, OverloadThreshold: 0.5, Start: allocate.Start{PerZone: 3}, Padding: 3}
	auto := &allocate.Bound{Algorithm: allocate.Auto, OverloadThreshold: 0.2}
	for _, test := range []struct {
		intent      allocate.Intent
		long, short string
	}{
		{
			allocate.Intent{},
			"nothing: all zones use all endpoints",
			"-",
		},
		{
			allocate.Intent{Tiers: topology.Tiers{topology.Zone}},
			"the same zone, then nowhere else",
			"zone",
		},
		{
			allocate.Intent{Tiers: topology.Tiers{topology.Anywhere}},
			"anywhere",
			"*",
		},
		{
			allocate.Intent{Tiers: topology.Tiers{topology.Hostname, "example.com/rack", topology.Anywhere}},
			"the same node, then the same example.com/rack, then anywhere",
			"node,example.com/rack,*",
		},
		{
			allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Region}, Bound: optimal},
			"the same zone, then the same region, then nowhere else; divided by optimal, overload below 50 %, starting threshold 3x, padding 3",
			"zone,region optimal",
		},
		{
			allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}, Bound: auto},
			"the same zone, then anywhere; divided by auto, overload below 20 %",
			"zone,* auto",
		},
		{
			allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}, Bound: &allocate.Bound{Algorithm: allocate.Flow, OverloadThreshold: 0.5, Padding: 3}},
			"the same zone, then anywhere; by flow: own endpoints first, the excess by weights",
			"zone,* flow",
		},
		{
			allocate.Intent{Bound: auto},
			"anywhere; divided by auto, overload below 20 %",
			"auto",
		},
	} {
		if got := Intent(test.intent); got != test.long {
			t.Errorf("got  %q\nwant %q", got, test.long)
		}
		if got := ShortIntent(test.intent); got != test.short {
			t.Errorf("got  %q\nwant %q", got, test.short)
		}
	}
}

func TestWarnings(t *testing.T) {
	zones := func(list ...allocate.Zone) allocate.Region { return allocate.Region{Zones: list} }
	for _, test := range []struct {
		name   string
		region allocate.Region
		want   []string
	}{
		{
			name:   "nothing to say",
			region: zones(allocate.Zone{Name: "a", Capacity: 1, Endpoints: 2}, allocate.Zone{Name: "b", Capacity: 1, Endpoints: 2}),
		},
		{
			name:   "no endpoint",
			region: zones(allocate.Zone{Name: "a", Capacity: 1}),
		},
		{
			name:   "one zone",
			region: zones(allocate.Zone{Name: "a", Capacity: 1, Endpoints: 3}),
		},
		{
			name:   "one endpoint",
			region: zones(allocate.Zone{Name: "a", Capacity: 1, Endpoints: 1}, allocate.Zone{Name: "b", Capacity: 1}),
			want:   []string{"there is one endpoint only: when it fails, nothing is left"},
		},
		{
			name:   "all in one zone",
			region: zones(allocate.Zone{Name: "b", Capacity: 1}, allocate.Zone{Name: "a", Capacity: 1, Endpoints: 4}),
			want:   []string{"all 4 endpoints are in a: when it fails, nothing is left"},
		},
		{
			name:   "fewer than zones",
			region: zones(allocate.Zone{Name: "a", Capacity: 1, Endpoints: 1}, allocate.Zone{Name: "b", Capacity: 1, Endpoints: 1}, allocate.Zone{Name: "c", Capacity: 1}),
			want:   []string{"2 endpoints are fewer than the 3 zones: some traffic has to leave its zone"},
		},
		{
			name:   "without a zone",
			region: zones(allocate.Zone{Endpoints: 1}, allocate.Zone{Name: "a", Capacity: 1, Endpoints: 4}),
			want:   []string{"1 endpoint without a zone: no traffic to it counts as in-zone"},
		},
		{
			name:   "several without a zone",
			region: zones(allocate.Zone{Endpoints: 2}, allocate.Zone{Name: "a", Capacity: 1, Endpoints: 4}),
			want:   []string{"2 endpoints without a zone: no traffic to them counts as in-zone"},
		},
		{
			name:   "in a zone without nodes",
			region: zones(allocate.Zone{Name: "a", Capacity: 1, Endpoints: 4}, allocate.Zone{Name: "x", Endpoints: 2}),
			want:   []string{"endpoints are in zones without a node that counts: x"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := Warnings(test.region)
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("got %q, want %q", got[i], test.want[i])
				}
			}
		})
	}
}
