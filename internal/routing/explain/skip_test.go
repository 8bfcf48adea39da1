package explain

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// Options with tiers finer than zones include the choices of nodes in figures, loads and sentences. Advice does not,
// because the nodes of its pods are unknown.
func TestCompareIncludesNodeChoices(t *testing.T) {
	q := Question{
		Region: allocate.Region{Zones: []allocate.Zone{{Name: "a", Capacity: 2, Endpoints: 8}, {Name: "b", Capacity: 2, Endpoints: 8}}},
		Asked: allocate.Intent{
			Tiers: topology.Tiers{topology.Hostname, topology.Zone, topology.Anywhere},
			Bound: &allocate.Bound{Algorithm: allocate.Optimal, OverloadThreshold: 0.5},
		},
		Algorithms: []allocate.Algorithm{allocate.Balanced, allocate.Optimal}, Delivery: allocate.DeliveryHints,
	}
	q.CPU = q.Region
	q.Nodes = &allocate.NodeTiers{Keys: []string{topology.Hostname}}
	for i, name := range []string{"a-1", "a-2", "b-1", "b-2"} {
		q.Nodes.Nodes = append(q.Nodes.Nodes, allocate.Node{Name: name, Zone: name[:1], Share: 0.25, Domains: []string{name}})
		for j := range []int{2, 6, 4, 4}[i] {
			q.Nodes.Endpoints = append(q.Nodes.Endpoints, allocate.Endpoint{ID: fmt.Sprint(name, j), Zone: name[:1]})
			q.Nodes.Places = append(q.Nodes.Places, allocate.Place{Node: i, Domains: []string{name}})
		}
	}
	comparison, err := Compare(q)
	if err != nil {
		t.Fatal(err)
	}
	asked := comparison.Options[comparison.Asked]
	if got := Skips(asked); len(got) != 1 || !strings.HasPrefix(got[0], "a-1 holds 2 of 16 endpoints and 25 % of the traffic: it would load them to 2 times") {
		t.Errorf("skips %q", got)
	}
	// a-1 spreads its quarter over the eight endpoints of its zone, and a-2 uses its own.
	if got := plaintext.Percent(asked.Figures.Overload); got != "16.7 %" || plaintext.Percent(asked.Outcome.Figures.Overload) != got {
		t.Errorf("overload %s", got)
	}
	row := Plan(q.Region, asked).Rows[0]
	if got := row[len(row)-1]; got != "50.0 to 116.7" {
		t.Errorf("loads of a %q", got)
	}
	if balanced := comparison.Options[slices.IndexFunc(comparison.Options, func(o Option) bool { return o.Algorithm == allocate.Balanced })]; balanced.Nodes != nil {
		t.Errorf("hints let nodes of a balanced Service use their own: %+v", balanced.Nodes)
	}
	advice, err := Advise(q, asked)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range advice {
		if a.Before.Nodes != nil {
			t.Errorf("%s compares what nodes do", a)
		}
	}
}
