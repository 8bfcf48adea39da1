package groups

import (
	"math/rand/v2"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

// Groups carry the weights of a plan in thousandths. docs/concepts/algorithms.md says what
// that costs 20,000 Services of each size.
func TestThousandthsKeepLoadsEven(t *testing.T) {
	services := 20000
	if testing.Short() {
		services = 2000
	}
	bound := allocate.DefaultBound(allocate.Flow)
	for _, size := range []struct {
		endpoints int     // of a zone, fewer than
		most      float64 // by which a load may be above that of the plan
	}{{10, 0.01}, {100, 0.03}, {1000, 0.08}, {10000, 0.08}} {
		random := rand.New(rand.NewPCG(1, 2))
		worst := 0.0
		for range services {
			var region allocate.Region
			capacity := 0.0
			for z := range 2 + random.IntN(4) {
				zone := allocate.Zone{Name: string(rune('a' + z)), Capacity: float64(1 + random.IntN(100)), Endpoints: random.IntN(size.endpoints)}
				region.Zones = append(region.Zones, zone)
				capacity += zone.Capacity
			}
			plan, outcome, err := allocate.Allocate(region, allocate.Intent{Bound: &bound}, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			if outcome.State != allocate.Allocated {
				continue
			}
			plan = plan.Clone()
			for _, group := range plan.Groups {
				for i := range group.Consumers {
					weight := &group.Consumers[i].Weight
					*weight = float64(thousandths(*weight)) / fullWeight
				}
			}
			shares := make([]float64, len(region.Zones))
			for z := range shares { // which are in the order of the plan's
				shares[z] = region.Zones[z].Capacity / capacity
			}
			var meter allocate.Meter
			worst = max(worst, meter.Measure(plan, shares).Overload-outcome.Figures.Overload)
		}
		t.Logf("fewer than %d endpoints in a zone: a load is %.2f %% of the even share above the plan at most", size.endpoints, 100*worst)
		if worst > size.most {
			t.Errorf("fewer than %d endpoints in a zone: %.2f %%, want at most %.0f %%", size.endpoints, 100*worst, 100*size.most)
		}
	}
}
