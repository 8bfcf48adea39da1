package explain

import (
	"fmt"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// No plans are made to find a change for what no change can make better.
func TestNoAdviceForAPlanWithoutAFlaw(t *testing.T) {
	var region allocate.Region
	for z := range 40 {
		region.Zones = append(region.Zones, allocate.Zone{Name: fmt.Sprintf("zone-%d", z), Capacity: 1, Endpoints: 125})
	}
	q := Question{
		Region: region, CPU: region, Delivery: allocate.DeliveryHints,
		Asked: allocate.Intent{Tiers: topology.Tiers{topology.Zone, topology.Anywhere}},
	}
	c, err := Compare(q)
	if err != nil {
		t.Fatal(err)
	}
	allocations := testing.AllocsPerRun(3, func() {
		if advice, err := Advise(q, c.Options[c.Asked]); err != nil || advice != nil {
			t.Errorf("got %v: %v", advice, err)
		}
	})
	if allocations > 100 {
		t.Errorf("it takes %g allocations", allocations)
	}
}
