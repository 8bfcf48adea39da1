package allocate

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
)

// coverZones is the greatest number of zones with traffic for which optimal considers consumer sets
// that overlap.
const coverZones = 8

// partitionZones is the greatest number of zones that have only few partitions.
const partitionZones = 5

// Step budgets. A search that exhausts its budget ends without a result: fullBudget is for a full
// search, refineBudget for a search over a few of the zones, totalBudget for all of the latter
// together. They count steps, not time, so that the outcome is the same on every machine.
const (
	fullBudget   = 400_000
	refineBudget = 10_000
	totalBudget  = 600_000
)

// The weights of the score that optimal maximises; slices do not matter to plans that are delivered
// as hints. Overload and deviation have the same weight.
const (
	inZoneWeight = 0.45
	evenWeight   = 0.20
)

// slack absorbs rounding inside the search. It is well below tolerance.
const slack = 1e-11

// optimal finds the plan with the best score below the threshold among all plans without weights:
// every endpoint gets a consumer set, and sets may overlap. The score is linear here: an overload
// above one would count less than nothing.
//
// With up to five zones that have traffic, cover proves that the plan is the best of all, unless it
// exhausts its budget of steps. The steps grow with the number of ways in which zones can share
// endpoints. With three zones the budget is enough for some thousand endpoints; with four for
// fifty, and nearly always for hundreds; with five for ten, and nearly always for thirty. Beyond
// that, and with up to eight zones, no change of any three or four zones improves the plan, unless
// that search exhausts its budget too. With more zones consumer sets do not overlap, and no change
// of a single zone or endpoint improves the plan: see gather.
//
// Plans with the same score are compared by, in this order: the fewest moved endpoints of the prior
// plan (with up to eight zones), more traffic in zone, less overload, fewer groups, and then
// preference for the zones with more traffic, more endpoints, and the first name.
//
// A zone that has traffic consumes each endpoint, even where the score would be better if some were
// left idle. Zones without traffic consume nothing unless all zones consume everything.
func (p *Planner) optimal(threshold float64) verdict {
	s := &p.search
	s.load(p, threshold)
	if s.zones > coverZones {
		s.gather(p)
		s.many.build(p, s.traffic)
		return verdict{rule: RulePlanned}
	}
	s.start(p)
	if s.zones > partitionZones {
		s.gather(p)
		s.offerGathered()
	} else {
		s.partitions(0, 0)
	}
	s.cover()
	s.homing.load(p, s.byName(), s.traffic)
	s.homing.solve()
	s.homing.build(p, s.traffic)
	return verdict{rule: RulePlanned}
}

// cell is a number of endpoints with the same consumer set. Bit i of the mask is the i-th zone with
// traffic.
type cell struct {
	mask  uint32
	count int
	// load of each endpoint so far, while a search makes the cell.
	load float64
}

// candidate is a plan without its home zones, and its figures.
type candidate struct {
	cells    [1 << coverZones]cell // in the order of masks
	count    int
	score    float64
	kept     int // endpoints that stay where the prior plan has them
	inZone   float64
	overload float64
}

// search is the scratch memory of optimal.
type search struct {
	planner   *Planner
	traffic   []int // the zones with traffic; all fields below number zones in this order
	zones     int
	endpoints int
	limit     float64 // greatest overload allowed

	share    [coverZones]float64
	expected [coverZones]float64 // endpoints
	own      [coverZones]int     // endpoints

	groups [coverZones]cell // of the partition in the making
	trial  candidate
	best   candidate
	top    float64 // the best score so far; the score of best may be less by the tolerance
	bound  float64 // no plan's score is greater
	prior  []int   // by mask: endpoints of the prior plan with these consumers
	placed int     // endpoints of the prior plan in all

	covering coverage
	many     gathering
	homing   homing
}

// load finds the zones with traffic.
func (s *search) load(p *Planner, threshold float64) {
	s.planner = p
	s.endpoints = p.endpoints
	s.limit = max(0, threshold-2*tolerance)
	s.traffic = s.traffic[:0]
	for z, share := range p.shares {
		if share > 0 {
			s.traffic = append(s.traffic, z)
		}
	}
	s.zones = len(s.traffic)
}

// start prepares the search for overlapping sets. Its first candidate is the balanced plan.
func (s *search) start(p *Planner) {
	// In this order nothing depends on names, unless zones are all the same.
	slices.SortStableFunc(s.traffic, func(a, b int) int {
		if p.shares[a] != p.shares[b] {
			return cmp.Compare(p.shares[b], p.shares[a])
		}
		return cmp.Compare(p.zones[b].Endpoints, p.zones[a].Endpoints)
	})
	s.bound = 2 * evenWeight
	for i, z := range s.traffic {
		s.share[i], s.expected[i], s.own[i] = p.shares[z], p.expected[z], p.zones[z].Endpoints
		s.bound += inZoneWeight * s.ideal(i)
	}
	s.remember(p)
	s.top = math.Inf(-1)
	s.best.score, s.best.count, s.best.kept = s.top, 0, 0
	s.trial.cells[0] = cell{mask: s.allZones(), count: s.endpoints}
	s.offer(1)
}

// byName renumbers the zones in the order of names, and returns the cells of the best candidate in
// the resulting order.
func (s *search) byName() []cell {
	cells := s.best.cells[:s.best.count]
	for i := range cells {
		mask := uint32(0)
		for rest := cells[i].mask; rest != 0; rest &= rest - 1 {
			place := 0
			for _, z := range s.traffic {
				if z < s.traffic[bits.TrailingZeros32(rest)] {
					place++
				}
			}
			mask |= 1 << place
		}
		cells[i].mask = mask
	}
	slices.Sort(s.traffic)
	slices.SortFunc(cells, compareMasks)
	return cells
}

func (s *search) allZones() uint32 {
	return 1<<s.zones - 1
}

// ideal returns the greatest in-zone share of a zone's traffic at an even load.
func (s *search) ideal(z int) float64 {
	return min(s.share[z], float64(s.own[z])/float64(s.endpoints))
}

// remember sums up the groups of the prior plan by consumers.
func (s *search) remember(p *Planner) {
	s.placed = 0
	if len(p.prior.Groups) == 0 {
		return
	}
	s.prior = grow(s.prior, 1<<s.zones)
	for i := range p.prior.Groups {
		g := &p.prior.Groups[i]
		if mask := consumerMask(p, g, s.traffic); mask != 0 {
			s.prior[mask] += g.Size()
			s.placed += g.Size()
		}
	}
}

// consumerMask returns the mask for the consumers of a group of the prior plan, or zero if no mask
// has them.
func consumerMask(p *Planner, g *Group, traffic []int) uint32 {
	if p.isForAll(g) {
		return 1<<len(traffic) - 1
	}
	mask := uint32(0)
	for _, c := range g.Consumers {
		i := slices.Index(traffic, c.Zone)
		if i < 0 {
			return 0
		}
		mask |= 1 << i
	}
	if mask == 1<<len(traffic)-1 {
		return 0 // a new group with this mask is for all zones
	}
	return mask
}

// isForAll reports whether all zones use a group of the prior plan. The group may leave out the
// unknown zone: a plan read back from hints does, since hints cannot name that zone.
func (p *Planner) isForAll(g *Group) bool {
	missing := len(p.zones) - len(g.Consumers)
	return missing == 0 || missing == 1 && p.names[0] == "" && p.shares[0] == 0 && !g.Consumes(0)
}

// partitions offers the plans with disjoint consumer sets whose groups have their expected size,
// rounded down or up. It puts zone into each existing group, and into a new one. A good candidate
// from here lets cover skip nearly everything else.
func (s *search) partitions(zone, groups int) {
	if zone == s.zones {
		s.sizes(groups)
		return
	}
	for g := range groups + 1 {
		if g == groups {
			s.groups[g] = cell{}
		}
		before := s.groups[g]
		s.groups[g].mask |= 1 << zone
		s.groups[g].load += s.expected[zone]
		s.partitions(zone+1, max(groups, g+1))
		s.groups[g] = before
	}
}

// sizes offers all ways to round the sizes of the groups.
func (s *search) sizes(groups int) {
	rest := s.endpoints
	for g := range groups {
		s.groups[g].count = max(1, int(s.groups[g].load+tolerance))
		rest -= s.groups[g].count
	}
	if rest < 0 || rest > groups {
		return
	}
	for up := range 1 << groups {
		if bits.OnesCount(uint(up)) != rest {
			continue
		}
		for g := range groups {
			s.trial.cells[g] = s.groups[g]
			s.trial.cells[g].count += up >> g & 1
		}
		s.offer(groups)
	}
}

// offerGathered offers the partition that gather found.
func (s *search) offerGathered() {
	m, n := &s.many.best, 0
	for g, size := range m.size {
		if size == 0 {
			continue
		}
		c := cell{count: size}
		for z := range m.of {
			if m.of[z] == g {
				c.mask |= 1 << z
			}
		}
		s.trial.cells[n] = c
		n++
	}
	s.offer(n)
}

// offer makes the trial the best candidate if it is better.
func (s *search) offer(count int) {
	t := &s.trial
	t.count = count
	s.assess()
	if t.overload > s.limit+slack || t.score < s.top-tolerance {
		return
	}
	s.top = max(s.top, t.score)
	slices.SortFunc(t.cells[:count], compareMasks)
	if s.isBetter() {
		b := &s.best
		copy(b.cells[:], t.cells[:count])
		b.count, b.score, b.kept, b.inZone, b.overload = count, t.score, t.kept, t.inZone, t.overload
	}
}

// assess computes the figures of the trial.
func (s *search) assess() {
	t := &s.trial
	cells := t.cells[:t.count]
	var width [coverZones]int
	spread := 0
	for i := range cells {
		for rest := cells[i].mask; rest != 0; rest &= rest - 1 {
			width[bits.TrailingZeros32(rest)] += cells[i].count
			spread += cells[i].count
		}
	}
	var load [coverZones]float64
	for z := range s.zones {
		load[z] = s.expected[z] / float64(width[z])
	}
	t.overload = 0
	deviation := 0.0
	for i := range cells {
		sum := 0.0
		for rest := cells[i].mask; rest != 0; rest &= rest - 1 {
			sum += load[bits.TrailingZeros32(rest)]
		}
		t.overload = max(t.overload, sum-1)
		deviation += math.Abs(sum-1) * float64(cells[i].count)
	}
	deviation /= float64(s.endpoints)
	if spread == s.endpoints {
		t.inZone = s.inZoneDisjoint(cells)
	} else {
		t.inZone = s.inZoneOverlapping(cells, load[:s.zones])
	}
	t.score = inZoneWeight*t.inZone + evenWeight*(1-t.overload) + evenWeight*(1-deviation)
}

// inZoneDisjoint returns the in-zone traffic if no zone uses two groups. Each group takes its
// zones' own endpoints, those of the zone with the most traffic first.
func (s *search) inZoneDisjoint(cells []cell) float64 {
	sum := 0.0
	for i := range cells {
		rest, traffic := cells[i].count, 0.0
		for mask := cells[i].mask; mask != 0; mask &= mask - 1 {
			z := bits.TrailingZeros32(mask)
			home := min(rest, s.own[z])
			rest -= home
			traffic += s.share[z] * float64(home)
		}
		sum += traffic / float64(cells[i].count)
	}
	return sum
}

// inZoneOverlapping returns the in-zone traffic of any cells. An endpoint that stays at home adds
// its zone's load, in any cell. The numbers of endpoints that zones can keep at home form a
// polymatroid, so a greedy choice is right: zone after zone keeps as many as it can, the one with
// the greatest load first. A set of zones A can keep the least number, over all subsets B of A, of
// the endpoints that A without B owns plus the endpoints that B uses.
func (s *search) inZoneOverlapping(cells []cell, load []float64) float64 {
	var order [coverZones]int
	for z := range load {
		j := z
		for ; j > 0 && load[order[j-1]] < load[z]; j-- {
			order[j] = order[j-1]
		}
		order[j] = z
	}
	sum, kept, before := 0.0, 0, uint32(0)
	for _, z := range order[:len(load)] {
		most := kept + s.own[z]
		for part := before; ; part = (part - 1) & before {
			can, used := 0, part|1<<z
			for rest := before &^ part; rest != 0; rest &= rest - 1 {
				can += s.own[bits.TrailingZeros32(rest)]
			}
			for i := range cells {
				if cells[i].mask&used != 0 {
					can += cells[i].count
				}
			}
			most = min(most, can)
			if part == 0 {
				break
			}
		}
		sum += load[z] * float64(most-kept)
		kept = most
		before |= 1 << z
	}
	return sum / float64(s.endpoints)
}

func compareMasks(a, b cell) int { return cmp.Compare(a.mask, b.mask) }

// isBetter reports whether the trial should replace the best candidate. Its score is at least as
// good.
func (s *search) isBetter() bool {
	t, b := &s.trial, &s.best
	t.kept = unknown
	if t.score > b.score+tolerance {
		return true
	}
	if s.placed > 0 {
		if s.keepable(t) < s.kept(b) {
			return false
		}
		if s.kept(t) != s.kept(b) {
			return t.kept > b.kept
		}
	}
	switch {
	case math.Abs(t.inZone-b.inZone) > tolerance:
		return t.inZone > b.inZone
	case math.Abs(t.overload-b.overload) > tolerance:
		return t.overload < b.overload
	case t.count != b.count:
		return t.count < b.count
	}
	for i := range t.cells[:t.count] {
		if t.cells[i].mask != b.cells[i].mask {
			return t.cells[i].mask < b.cells[i].mask
		}
		if t.cells[i].count != b.cells[i].count {
			return t.cells[i].count > b.cells[i].count
		}
	}
	return false
}

// unknown means that the number of kept endpoints is not computed yet.
const unknown = -1

// keepable returns a quick upper limit on the endpoints that a candidate keeps in their groups.
func (s *search) keepable(t *candidate) int {
	sum := 0
	for _, c := range t.cells[:t.count] {
		sum += min(c.count, s.prior[c.mask])
	}
	return sum
}

// kept returns the number of endpoints that a candidate keeps in their groups.
func (s *search) kept(t *candidate) int {
	if t.kept == unknown {
		s.homing.load(s.planner, t.cells[:t.count], s.traffic)
		s.homing.solve()
		t.kept = s.homing.kept()
		s.covering.budget -= 10 * t.count * len(s.planner.zones)
	}
	return t.kept
}
