package allocate

import "math"

// localShared is local with groups that several zones share: one for all zones
// without endpoints, and one for zones that stay at or above the threshold because
// they lack less than a whole endpoint each.
//
// The proposal leaves open what a zone must keep and when a move is worth it; with
// the constants below the figures are those that were published.
func (p *Planner) localShared(threshold float64) verdict {
	if p.endpoints < p.active {
		return verdict{rule: RuleFewEndpoints}
	}
	s := &p.sharing
	s.start(p, 1+threshold)
	// The zones without endpoints come first.
	for u := range s.units {
		u = (u + s.empty) % s.units
		for need := s.need(u); need > 0; need-- {
			giver := s.giver(mustKeep)
			if giver < 0 {
				return verdict{rule: RuleNothingToSpare, zone: s.firstZone(p, u)}
			}
			s.give(giver, u)
		}
	}
	if !s.fillPool() {
		return verdict{
			rule: RuleOverload, zone: s.firstZone(p, s.pool),
			overload: overload(s.expected[s.pool], s.size[s.pool]),
		}
	}
	for {
		giver, receiver := s.giver(math.Inf(-1)), s.shortest()
		if giver < 0 || giver == receiver || s.lack(receiver)-s.lack(giver) <= worthMoving+tolerance {
			break
		}
		s.give(giver, receiver)
	}
	s.write(p)
	return verdict{rule: RulePlanned}
}

const (
	// mustKeep is how many endpoints a zone must have above what it expects to
	// give one for the need of another: it keeps the expected number, rounded.
	mustKeep = 0.5
	// worthMoving is how far apart two groups must be, in endpoints, for one to
	// move without need: each move takes traffic out of its zone.
	worthMoving = 1.5
)

// sharing is the state of localShared. Its units are the zones, then the group of
// the zones without endpoints, then the pool of the zones above the threshold.
type sharing struct {
	limit              float64
	zones              int
	empty, pool, units int
	unit               []int     // of each zone: itself, empty or pool
	expected           []float64 // by unit
	size               []int     // by unit
	count              []int     // by unit and home zone
}

func (s *sharing) start(p *Planner, limit float64) {
	n := len(p.zones)
	s.limit, s.zones = limit, n
	s.empty, s.pool, s.units = n, n+1, n+2
	s.unit = grow(s.unit, n)
	s.expected = grow(s.expected, s.units)
	s.size = grow(s.size, s.units)
	s.count = grow(s.count, s.units*n)
	for z := range p.zones {
		s.unit[z] = z
		if p.zones[z].Endpoints == 0 {
			s.unit[z] = s.empty
		}
		s.expected[s.unit[z]] += p.expected[z]
		s.size[z] = p.zones[z].Endpoints
		s.count[z*n+z] = p.zones[z].Endpoints
	}
}

// lack is how many endpoints a unit has fewer than expected.
func (s *sharing) lack(u int) float64 {
	return s.expected[u] - float64(s.size[u])
}

// need is the number of endpoints that a unit must get from others.
func (s *sharing) need(u int) int {
	switch {
	case s.expected[u] == 0:
		return 0
	case u == s.empty:
		return int(math.Ceil(s.expected[u] - tolerance))
	}
	return max(0, int(math.Floor(s.lack(u)+tolerance)))
}

// giver is the zone with the most to spare among those that have at least the given
// number above what they expect, keep at least one and stay below the threshold; -1
// if there is none.
func (s *sharing) giver(spare float64) int {
	giver := -1
	for z := range s.zones {
		if s.unit[z] == z && s.size[z] > 1 && s.count[z*s.zones+z] > 0 && -s.lack(z) >= spare-tolerance &&
			!overloaded(s.expected[z], s.size[z]-1, s.limit) && (giver < 0 || s.lack(z) < s.lack(giver)-tolerance) {
			giver = z
		}
	}
	return giver
}

// shortest is the unit that lacks most.
func (s *sharing) shortest() int {
	shortest := 0
	for u := range s.units {
		if s.lack(u) > s.lack(shortest)+tolerance {
			shortest = u
		}
	}
	return shortest
}

// give moves one of the giver's own endpoints to the receiver.
func (s *sharing) give(giver, receiver int) {
	s.size[giver]--
	s.size[receiver]++
	s.count[giver*s.zones+giver]--
	s.count[receiver*s.zones+giver]++
}

// fillPool makes one group of all units at or above the threshold, with as many
// endpoints of others as bring it below. It reports whether that succeeded.
func (s *sharing) fillPool() bool {
	n := s.zones
	for u := range s.pool {
		if !overloaded(s.expected[u], s.size[u], s.limit) {
			continue
		}
		for home := range n {
			s.count[s.pool*n+home] += s.count[u*n+home]
			s.count[u*n+home] = 0
			if s.unit[home] == u {
				s.unit[home] = s.pool
			}
		}
		s.expected[s.pool] += s.expected[u]
		s.size[s.pool] += s.size[u]
		s.expected[u], s.size[u] = 0, 0
	}
	for overloaded(s.expected[s.pool], s.size[s.pool], s.limit) {
		giver := s.giver(math.Inf(-1))
		if giver < 0 {
			return false
		}
		s.give(giver, s.pool)
	}
	return true
}

// write adds the units as groups.
func (s *sharing) write(p *Planner) {
	for u := range s.units {
		for home, count := range s.count[u*s.zones : (u+1)*s.zones] {
			p.plan.member(home, count)
		}
		for z, unit := range s.unit {
			if unit == u {
				p.plan.consumer(z, 1)
			}
		}
		p.plan.close()
	}
}

// firstZone is the name of the first zone with traffic that uses a unit.
func (s *sharing) firstZone(p *Planner, u int) string {
	for z, unit := range s.unit {
		if unit == u && p.shares[z] > 0 {
			return p.zones[z].Name
		}
	}
	return ""
}
