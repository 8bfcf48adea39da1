package explain

import (
	"slices"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

func TestExcess(t *testing.T) {
	region := threeZones(6, 4, 2)
	for algorithm, want := range map[allocate.Algorithm][]string{
		allocate.Optimal: nil,
		allocate.Flow:    {"zone-c sends 50 % of its traffic to zone-a, because it has 33.3 % of the traffic and 2 of 12 endpoints"},
	} {
		plan, _, err := allocate.Allocate(region, allocate.Intent{Bound: bound(algorithm)}, allocate.Previous{})
		if err != nil {
			t.Fatal(err)
		}
		if got := Excess(region, plan); !slices.Equal(got, want) {
			t.Errorf("%s: got %q, want %q", algorithm, got, want)
		}
	}
}
