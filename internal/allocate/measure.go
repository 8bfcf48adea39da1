package allocate

import "math"

// Figures predict the traffic of a plan, as fractions: 0.5 is 50 %.
type Figures struct {
	// InZone is the share of traffic whose source zone is the endpoint's home.
	InZone float64
	// SameNode is the share of traffic whose source is the endpoint's node. It is zero without
	// tiers within zones.
	SameNode float64
	// Overload is the greatest load of an endpoint above the even share.
	Overload float64
	// Deviation is the mean distance of the endpoints' loads from the even share.
	Deviation float64
	// Unreached counts zones that have traffic and reach no endpoint. A plan with any is invalid,
	// except where hard tiers ask for it.
	Unreached int
}

// Meter measures plans and reuses its memory. The zero value is ready.
type Meter struct {
	// width is the weighted number of endpoints that a zone uses, by zone.
	width []float64
}

// widen computes the widths and returns the number of endpoints.
func (m *Meter) widen(plan Plan) (endpoints int) {
	m.width = grow(m.width, len(plan.Zones))
	for i := range plan.Groups {
		g := &plan.Groups[i]
		size := g.Size()
		endpoints += size
		for _, c := range g.Consumers {
			m.width[c.Zone] += c.Weight * float64(size)
		}
	}
	return endpoints
}

// Measure computes the figures of a plan for traffic that comes from the plan's
// zones in the given shares, which add up to one.
func (m *Meter) Measure(plan Plan, shares []float64) Figures {
	endpoints := m.widen(plan)
	var figures Figures
	for z, share := range shares {
		if share > 0 && m.width[z] == 0 {
			figures.Unreached++
		}
	}
	if endpoints == 0 {
		return figures
	}
	total, deviation := float64(endpoints), 0.0
	for i := range plan.Groups {
		g := &plan.Groups[i]
		load, size, home := 0.0, 0, 0
		for _, c := range g.Consumers {
			if m.width[c.Zone] == 0 {
				continue // all its weights are zero
			}
			each := shares[c.Zone] * c.Weight / m.width[c.Zone]
			load += each
			// Both lists are in the order of zones.
			for home < len(g.Members) && g.Members[home].Zone < c.Zone {
				home++
			}
			if home < len(g.Members) && g.Members[home].Zone == c.Zone {
				figures.InZone += each * float64(g.Members[home].Endpoints)
			}
		}
		for _, member := range g.Members {
			size += member.Endpoints
		}
		load *= total
		figures.Overload = max(figures.Overload, load-1)
		deviation += math.Abs(load-1) * float64(size)
	}
	figures.Deviation = deviation / total
	return figures
}

// Loads computes the load of each group's endpoints, relative to the even share.
func (m *Meter) Loads(plan Plan, shares []float64) []float64 {
	endpoints := m.widen(plan)
	loads := make([]float64, len(plan.Groups))
	for i := range plan.Groups {
		for _, c := range plan.Groups[i].Consumers {
			if m.width[c.Zone] > 0 {
				loads[i] += shares[c.Zone] * c.Weight / m.width[c.Zone] * float64(endpoints)
			}
		}
	}
	return loads
}

// Shares returns the share of traffic that the region expects from each zone of the plan.
func (r Region) Shares(zones []string) []float64 {
	shares := make([]float64, len(zones))
	total := 0.0
	capacity := make(map[string]float64, len(r.Zones))
	for _, z := range r.Zones {
		capacity[z.Name] = z.Capacity
	}
	for _, name := range zones {
		total += capacity[name]
	}
	if total > 0 {
		for i, name := range zones {
			shares[i] = capacity[name] / total
		}
	}
	return shares
}

// Weights are the weights of the parts of a score. They need not add up to one.
type Weights struct {
	InZone, Overload, Deviation, Slices float64
}

// DefaultWeights returns the weights of the published study, which the optimal algorithm maximises.
func DefaultWeights() Weights {
	return Weights{InZone: 0.45, Overload: 0.20, Deviation: 0.20, Slices: 0.15}
}

// Score rates figures from 0 to 100. slices is the least number of slices, relative to the number that the plan takes.
func (w Weights) Score(f Figures, slices float64) float64 {
	sum := w.InZone + w.Overload + w.Deviation + w.Slices
	return 100 * (w.InZone*f.InZone +
		w.Overload*max(0, 1-f.Overload) +
		w.Deviation*max(0, 1-f.Deviation) +
		w.Slices*slices) / sum
}

// grow returns a zeroed slice of n elements, s itself where it is large enough.
func grow[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	s = s[:n]
	clear(s)
	return s
}
