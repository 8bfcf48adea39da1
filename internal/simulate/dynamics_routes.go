package simulate

import (
	"math"

	"vicinity.dev/vicinity/internal/allocate"
)

// routes has, for each endpoint, the part of each zone's traffic that it gets.
type routes map[string][]float64

// routes follows the assignments of endpoints. A zone without endpoints uses all, as in gauge.
func (w *world) routes() routes {
	zones := len(w.names)
	weights := map[allocate.ConsumerSet][]float64{{}: make([]float64, zones)}
	for z := range zones {
		weights[allocate.ConsumerSet{}][z] = 1
	}
	sums := make([]float64, zones)
	for i := range w.endpoints {
		set := w.endpoints[i].Assigned
		if weights[set] == nil {
			weights[set] = make([]float64, zones)
			for z, name := range w.names {
				weights[set][z] = set.Weight(name)
			}
		}
		for z, weight := range weights[set] {
			sums[z] += weight
		}
	}
	r := make(routes, len(w.endpoints))
	for i := range w.endpoints {
		parts := make([]float64, zones)
		for z := range parts {
			if sums[z] > 0 {
				parts[z] = weights[w.endpoints[i].Assigned][z] / sums[z]
			} else {
				parts[z] = 1 / float64(len(w.endpoints))
			}
		}
		r[w.endpoints[i].ID] = parts
	}
	return r
}

// rerouted returns the share of the present traffic that goes to other endpoints than before. It is
// 0 if no endpoint existed before or exists now.
func (r routes) rerouted(before routes, shares []float64) float64 {
	if len(r) == 0 || len(before) == 0 || shares == nil {
		return 0
	}
	// Count gains only: one endpoint's gain is another's loss.
	byZone := make([]float64, len(shares))
	for id, parts := range r {
		was := before[id]
		for z, part := range parts {
			if was != nil {
				part -= was[z]
			}
			byZone[z] += math.Round(max(0, part) * exact)
		}
	}
	sum := 0.0
	for z, share := range shares {
		sum += share * byZone[z] / exact
	}
	return sum
}

// exact converts fractions to whole numbers, whose sum does not depend on the order of a map.
const exact = 1 << 40
