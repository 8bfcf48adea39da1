package allocate

import "math"

// steady is the part of a zone's traffic below which a change does not justify a write, and the
// overload below which weights may stay.
const steady = 0.01

// flow moves no endpoint. The endpoints of a home zone are one group, and each takes the even share
// of the traffic. A zone uses its own endpoints up to that share, and sends the excess to zones
// with room, those of its region first.
//
// Weights are relative: the greatest of a zone is 1, that of its own endpoints if it has any, so
// that an event changes few of them. The weights of a zone stay while each part of its traffic is
// within 1 % of its target, unless they overload an endpoint.
func (p *Planner) flow(threshold float64) verdict {
	f := &p.flows
	f.load(p)
	if f.inForce {
		f.nearest(p)
	} else {
		f.sweep(p, true)
		f.sweep(p, false)
	}
	f.weigh(p)
	rule := RulePlanned
	if f.inForce && !p.Eager && f.keepSteady(p, min(steady, threshold)) {
		rule = RuleKept
	}
	f.build(p)
	return verdict{rule: rule}
}

// flows is the scratch memory of flow. Its matrices have a row for each source zone and a column
// for each home. The unit of traffic is the even share of an endpoint.
type flows struct {
	zones int
	lacks []float64 // the traffic that a zone sends elsewhere, or has room for if negative
	sends []float64
	// weights are those of the plan.
	weights []float64
	// inForce reports that a previous plan exists. byHome reports that each of its groups has one
	// home zone, so that its weights may stay.
	inForce, byHome bool
	before          []float64 // traffic that the previous plan sends
	given           []float64 // weights of the previous plan
	kept            []bool    // zones whose weights stay
	groups          []int     // of the previous plan, by home
	transport       transport
}

// rounding is how far below 1 a weight may be and still count as 1.
const rounding = 1e-6

// load sends each zone's traffic to its own endpoints where they have room, and reads the previous
// plan.
func (f *flows) load(p *Planner) {
	n := len(p.zones)
	f.zones = n
	f.lacks, f.sends, f.weights = grow(f.lacks, n), grow(f.sends, n*n), grow(f.weights, n*n)
	for z := range p.zones {
		endpoints := float64(p.zones[z].Endpoints)
		f.sends[z*n+z] = min(p.expected[z], endpoints)
		f.lacks[z] = p.expected[z] - endpoints
	}
	f.inForce = len(p.prior.Groups) > 0 && !p.Forgetful
	if f.inForce {
		f.read(p)
	}
}

// read computes the traffic that the weights in force send, with the present endpoints.
func (f *flows) read(p *Planner) {
	n := f.zones
	f.before, f.given, f.kept = grow(f.before, n*n), grow(f.given, n*n), grow(f.kept, n)
	f.groups = grow(f.groups, n)
	f.byHome = true
	for i := range p.prior.Groups {
		for _, m := range p.prior.Groups[i].Members {
			f.groups[m.Zone]++
			f.byHome = f.byHome && f.groups[m.Zone] == 1 && len(p.prior.Groups[i].Members) == 1
		}
	}
	for i := range p.prior.Groups {
		g := &p.prior.Groups[i]
		for _, m := range g.Members {
			endpoints := m.Endpoints
			if f.byHome {
				endpoints = p.zones[m.Zone].Endpoints
			}
			for _, c := range g.Consumers {
				f.given[c.Zone*n+m.Zone] = c.Weight
				f.before[c.Zone*n+m.Zone] += c.Weight * float64(endpoints)
			}
		}
	}
	for z := range n {
		row, sum := f.before[z*n:(z+1)*n], 0.0
		for _, width := range row {
			sum += width
		}
		for home := range row {
			if sum > 0 {
				row[home] *= p.expected[z] / sum
			}
		}
	}
}

// sweep sends the excess of zones to zones with room; if near, only within their region. With two
// distances, the near one first, no order of zones finds a shorter way.
func (f *flows) sweep(p *Planner, near bool) {
	for z := range f.lacks {
		for home := range f.lacks {
			if f.lacks[z] <= tolerance*p.expected[z] {
				break
			}
			if f.lacks[home] < 0 && (!near || p.near(z, home)) {
				amount := min(f.lacks[z], -f.lacks[home])
				f.sends[z*f.zones+home] += amount
				f.lacks[z] -= amount
				f.lacks[home] += amount
			}
		}
	}
}

// near reports whether two zones are in the same region.
func (p *Planner) near(a, b int) bool {
	return p.zones[a].Region != "" && p.zones[a].Region == p.zones[b].Region
}

// fine is the number of units of a transport in the traffic of one endpoint.
const fine = 1 << 28

// nearest sends the excess of zones over the least distance and, second, as much of it as possible
// to its previous destination.
func (f *flows) nearest(p *Planner) {
	n, t := f.zones, &f.transport
	t.clear(n, n)
	for z, lack := range f.lacks {
		if units := int(math.Round(lack * fine)); units > 0 {
			t.supply[z] = units
		} else {
			t.demand[z] = -units
		}
	}
	for z := range n {
		for home := range n {
			if p.near(z, home) {
				// A path visits each zone at most twice, so all its kept units are worth less than
				// one unit that stays in the region.
				t.worth[z*n+home] = 4 * (n + 1)
			}
			t.keep[z*n+home] = int(math.Round(f.before[z*n+home] * fine))
		}
	}
	t.solve()
	for cell, units := range t.sent {
		f.sends[cell] += float64(units) / fine
	}
}

// weigh computes the weights from the traffic of zones.
func (f *flows) weigh(p *Planner) {
	for z := range f.zones {
		row, weights, most := f.row(f.sends, z), f.row(f.weights, z), 0.0
		for home, amount := range row {
			if amount > tolerance*p.expected[z] {
				weights[home] = amount / float64(p.zones[home].Endpoints)
				most = max(most, weights[home])
			}
		}
		for home := range weights {
			switch {
			case most > 0:
				weights[home] /= most
				if weights[home] > 1-rounding {
					weights[home] = 1
				}
			case p.expected[z] > 0 || home == z:
				// This covers traffic lost in rounding, and clients without capacity.
				weights[home] = 1
			}
		}
	}
}

func (f *flows) row(matrix []float64, zone int) []float64 {
	return matrix[zone*f.zones : (zone+1)*f.zones]
}

// keepSteady keeps the weights in force of zones where they are good enough. It reports whether it
// kept all.
func (f *flows) keepSteady(p *Planner, limit float64) bool {
	for z := range f.kept {
		f.kept[z] = f.byHome && f.isSteady(p, z)
	}
	for f.dropUneven(p, limit) {
	}
	all := true
	for z := range f.kept {
		if f.kept[z] {
			copy(f.row(f.weights, z), f.row(f.given, z))
		} else if p.expected[z] > 0 {
			all = false
		}
	}
	return all
}

// isSteady reports whether the weights in force send nearly all of a zone's traffic to its targets.
func (f *flows) isSteady(p *Planner, z int) bool {
	if p.expected[z] == 0 {
		return false
	}
	sends, before, given, most := f.row(f.sends, z), f.row(f.before, z), f.row(f.given, z), 0.0
	for home := range sends {
		if math.Abs(sends[home]-before[home]) >= steady*p.expected[z] {
			return false
		}
		if p.zones[home].Endpoints > 0 {
			most = max(most, given[home])
		}
	}
	return most == 1
}

// dropUneven drops weights in force that load an endpoint too much or too little. It reports
// whether it dropped any. Without these weights every load is 1, so repeating it ends.
func (f *flows) dropUneven(p *Planner, limit float64) (dropped bool) {
	n := f.zones
	for home := range n {
		if p.zones[home].Endpoints == 0 {
			continue
		}
		load := 0.0
		for z := range n {
			if f.kept[z] {
				load += f.before[z*n+home]
			} else {
				load += f.sends[z*n+home]
			}
		}
		load /= float64(p.zones[home].Endpoints)
		for z := range n {
			cell := z*n + home
			if f.kept[z] && (load > 1+limit-tolerance && f.before[cell] > f.sends[cell] ||
				load < 1-limit+tolerance && f.before[cell] < f.sends[cell]) {
				f.kept[z], dropped = false, true
			}
		}
	}
	return dropped
}

// build makes the groups.
func (f *flows) build(p *Planner) {
	p.plan.atHome = true
	for home := range p.zones {
		p.plan.member(home, p.zones[home].Endpoints)
		for z := range p.zones {
			if weight := f.weights[z*f.zones+home]; weight > 0 {
				p.plan.consumer(z, weight)
			}
		}
		p.plan.close()
	}
}
