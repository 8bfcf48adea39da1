package allocate_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

// someRegions are regions of so many zones, up to ten nodes and some dozen
// endpoints each; in every fourth zone there is no endpoint.
func someRegions(zones int) []allocate.Region {
	random := rand.New(rand.NewPCG(uint64(zones), 1))
	all := make([]allocate.Region, 64)
	for i := range all {
		for z := range zones {
			zone := allocate.Zone{Name: fmt.Sprintf("z%03d", z), Region: fmt.Sprint("r", z%2), Capacity: float64(1 + random.IntN(10))}
			if random.IntN(4) > 0 {
				zone.Endpoints = random.IntN(50)
			}
			all[i].Zones = append(all[i].Zones, zone)
		}
	}
	return all
}

func BenchmarkAllocate(b *testing.B) {
	for _, algorithm := range allocate.Algorithms() {
		for _, zones := range []int{3, 8, 100} {
			b.Run(fmt.Sprintf("%s/zones=%d", algorithm, zones), func(b *testing.B) {
				regions := someRegions(zones)
				intent := allocate.Intent{Bound: bound(algorithm)}
				var planner allocate.Planner
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if _, _, err := planner.Allocate(regions[i%len(regions)], intent, allocate.Previous{}); err != nil {
						b.Fatal(err)
					}
					i++
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cases/s")
			})
		}
	}
}
