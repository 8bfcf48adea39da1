package explain

import (
	"bytes"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/test/golden"
)

func bound(algorithm allocate.Algorithm) *allocate.Bound {
	return &allocate.Bound{Algorithm: algorithm, OverloadThreshold: 0.5}
}

var anyZone = topology.Tiers{topology.Zone, topology.Anywhere}

func TestTablesGolden(t *testing.T) {
	uneven := allocate.Region{Zones: []allocate.Zone{
		{Name: "zone-a", Region: "north", Capacity: 2, Endpoints: 6},
		{Name: "zone-b", Region: "north", Capacity: 2, Endpoints: 4},
		{Name: "zone-c", Capacity: 2, Endpoints: 3},
	}}
	homeless := allocate.Region{Zones: []allocate.Zone{
		{Name: "zone-b", Capacity: 7.91, Endpoints: 0},
		{Name: "", Endpoints: 1},
		{Name: "zone-a", Capacity: 3.92, Endpoints: 2},
	}}
	for _, test := range []struct {
		name   string
		region allocate.Region
		intent allocate.Intent
	}{
		{"local", uneven, allocate.Intent{Tiers: anyZone, Bound: bound(allocate.Local)}},
		{"local-weighted", uneven, allocate.Intent{Tiers: anyZone, Bound: bound(allocate.LocalWeighted)}},
		{"balanced", uneven, allocate.Intent{}},
		{"hard", allocate.Region{Zones: []allocate.Zone{homeless.Zones[0], homeless.Zones[2]}}, allocate.Intent{Tiers: topology.Tiers{topology.Zone}}},
		{"homeless", homeless, allocate.Intent{Tiers: anyZone}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, outcome, err := allocate.Allocate(test.region, test.intent, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			var text bytes.Buffer
			text.WriteString(Outcome(outcome) + "\n")
			for _, table := range []plaintext.Table{Region(test.region, "nodes"), Plan(test.region, Option{Plan: plan}), Groups(test.region, Option{Plan: plan})} {
				text.WriteString("\n")
				if err := table.Text(&text, "  "); err != nil {
					t.Fatal(err)
				}
			}
			golden.Compare(t, "testdata/"+test.name+".txt", text.String())
		})
	}
}
