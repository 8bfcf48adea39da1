package allocate

import (
	"math"
	"math/bits"
	"slices"
)

// coverage is the state of cover.
//
// The search takes the zones one after the other. A zone chooses its width, the number of endpoints
// that it spreads its traffic over, and thereby the load that it adds to each of them. Then it
// chooses how many of them it takes from each existing cell. So the search meets each family of
// consumer sets, with its sizes, in exactly one way.
//
// It is fast because little may be lost against the best candidate so far. Let N be
// the number of endpoints, and of a zone let W be the width, T the expected and e
// the own endpoints, all divided by N. Let o be the greatest overload, and u and v
// the means of what loads are below and above one, which are equal in the end:
//
//	score = 0.45*inzone + 0.2*(1-o) + 0.2*(1-u-v)
//
// Of a zone, at most T*min(1, e/W) is in zone. Its ideal is min(T, e), which is an
// upper limit as long as W >= T. With W < T the zone may exceed its ideal, by at most
// g = min(T-W, o*e), because T/W <= 1+o; and not at all if e >= T. But then v grows
// by T-W at least: the endpoints that such zones use have, together, at least the
// zones' T as load, whatever else is on them. Let G be the sum of all g of zones
// whose turn is to come, and o, u and v be what the zones so far cause for certain.
// For any q from 0 to 1 the rest of the score is then at most the ideals and
//
//	0.45*G - 0.2*o' - 0.4*(q*u + (1-q)*(v+G))   where o' >= o, G <= o'*greed
//
// and greed is the sum of e over the zones to come with e < T. That is greatest at
// o' = o as long as (0.05+0.4*q)*greed <= 0.2. These are the bounds of step.loss, for
// q = 0 and for the greatest such q. With nothing chosen yet it follows that no score
// exceeds that of all zones at their ideal, and that overload alone costs at least
// 0.15*o.
//
// An endpoint's load is certain to stay too low when the lightest load that a zone
// to come can add would exceed the greatest load allowed.
type coverage struct {
	order [coverZones]int     // zones, the one with the fewest choices first
	least [coverZones]int     // width by zone
	most  [coverZones]int     // width by zone
	light [coverZones]float64 // the least load that the zone can add
	// greed and lightest are for the zones from a depth on.
	greed    [coverZones + 1]float64
	lightest [coverZones + 1]float64
	steps    [coverZones]step
	// cells are the cells that the zone of a depth finds. It takes from the same ones, or, if it is the last, from
	// sorted ones.
	cells  [coverZones + 1][1 << coverZones]cell
	count  [coverZones + 1]int
	sorted [1 << coverZones]cell
	from   [coverZones][]cell
	budget int // steps left to the current search
	left   int // steps left to all searches for a few zones
}

// step is the state of a zone at its turn.
type step struct {
	zone    int
	last    bool
	load    float64                // load that the zone adds
	ceiling float64                // greatest load allowed
	inZone  float64                // upper limit of the score, for the widths so far
	room    float64                // how much of inZone may still be lost
	after   [1<<coverZones + 1]int // endpoints that can be taken from this cell and those after it

	// For each of the two bounds, the price of overload. For the second also the weights of u and
	// v, and the price of u and v for one endpoint.
	overload1, overload2 float64
	under, over          float64
	each                 float64
}

// cover searches all families of consumer sets for one with a better score than the best candidate,
// or as good a score and fewer moves. With up to 6 endpoints in each of three, four or five zones,
// it improves on the score of partitions by 0.36, 0.55 and 0.66 points of 100 on average, and by up
// to 13 points. With up to 100 endpoints, as in the published data set, it improves by less than
// 0.01. Where a full search may take too long, cover starts with changes of a few zones at a time,
// or settles for them.
func (s *search) cover() {
	c := &s.covering
	c.left = totalBudget
	if s.zones > partitionZones {
		s.refine()
	}
	s.research(s.allZones(), fullBudget)
	if c.budget < 0 {
		s.refine()
	}
}

// refine searches again for some zones, with the others as in the best candidate, until no such
// search finds a better one.
func (s *search) refine() {
	for few := 3; few <= min(4, s.zones-1); few++ {
		for better := true; better; {
			before := s.top
			for some := range s.allZones() {
				if bits.OnesCount32(some) != few {
					continue
				}
				s.research(some, refineBudget)
				s.covering.left -= refineBudget - s.covering.budget
				if s.covering.left < 0 {
					return
				}
			}
			better = s.top > before+tolerance
		}
	}
}

// research searches all families in which only some zones differ from the best candidate; bit i is
// the i-th zone in the order of turns. It ends without a result once the budget of steps is spent.
func (s *search) research(some uint32, budget int) {
	c := &s.covering
	c.budget = budget
	if s.isPerfect() {
		return
	}
	for z := range s.zones {
		s.reach(z)
	}
	var turns [coverZones]int
	for z := range s.zones {
		j := z
		for ; j > 0 && s.isWider(turns[j-1], z); j-- {
			turns[j] = turns[j-1]
		}
		turns[j] = z
	}
	first := s.zones - bits.OnesCount32(some)
	before, after := 0, first
	for i, z := range turns[:s.zones] {
		if some>>i&1 == 0 {
			c.order[before] = z
			before++
		} else {
			c.order[after] = z
			after++
		}
	}
	s.price()
	s.place(first, s.keep(first))
}

// price sets the prices of overload and uneven loads at each depth.
func (s *search) price() {
	c := &s.covering
	c.greed[s.zones], c.lightest[s.zones] = 0, math.Inf(1)
	for d := s.zones - 1; d >= 0; d-- {
		z := c.order[d]
		c.greed[d], c.lightest[d] = c.greed[d+1], min(c.lightest[d+1], c.light[z])
		if float64(s.own[z]) < s.expected[z] {
			c.greed[d] += float64(s.own[z]) / float64(s.endpoints)
		}
		c.steps[d].price(s.zones-d-1, c.greed[d+1], s.endpoints)
		c.steps[d].zone = z
	}
}

// keep makes the cells of the best candidate without the zones from a depth on. It returns an upper
// limit of the score, for any choices of those zones.
func (s *search) keep(depth int) float64 {
	c, b := &s.covering, &s.best
	inZone := s.bound
	var load [coverZones]float64
	kept := uint32(0)
	for _, z := range c.order[:depth] {
		width := 0
		for i := range b.cells[:b.count] {
			width += b.cells[i].count * int(b.cells[i].mask>>z&1)
		}
		load[z] = s.expected[z] / float64(width)
		inZone += inZoneWeight * (s.share[z]*min(1, float64(s.own[z])/float64(width)) - s.ideal(z))
		kept |= 1 << z
	}
	cells := c.cells[depth][:0]
	for i := range b.cells[:b.count] {
		from := cell{mask: b.cells[i].mask & kept, count: b.cells[i].count}
		for rest := from.mask; rest != 0; rest &= rest - 1 {
			from.load += load[bits.TrailingZeros32(rest)]
		}
		same := slices.IndexFunc(cells, func(to cell) bool { return to.mask == from.mask })
		if same < 0 {
			cells = append(cells, from)
		} else {
			cells[same].count += from.count
		}
	}
	c.count[depth] = len(cells)
	return inZone
}

// isPerfect reports whether no candidate can be better than the best.
func (s *search) isPerfect() bool {
	if s.top < s.bound-tolerance {
		return false
	}
	return s.placed == 0 || s.kept(&s.best) == s.placed
}

// reach finds the possible widths of a zone.
func (s *search) reach(z int) {
	c := &s.covering
	lost := s.bound - s.top + 2*tolerance
	c.least[z] = max(1, s.width(z, 1+min(s.limit, lost/(evenWeight-0.05))))
	c.most[z] = s.endpoints
	if least := s.ideal(z) - lost/inZoneWeight; least > 0 {
		c.most[z] = int(min(float64(s.endpoints), s.share[z]*float64(s.own[z])/least+tolerance))
	}
	c.light[z] = s.expected[z] / float64(c.most[z])
}

// isWider reports whether zone a has its turn after b, although its number is less.
func (s *search) isWider(a, b int) bool {
	c := &s.covering
	if x, y := c.most[a]-c.least[a], c.most[b]-c.least[b]; x != y {
		return x > y
	}
	if s.own[a] != s.own[b] {
		return s.own[a] < s.own[b]
	}
	return s.share[a] > s.share[b]
}

// price sets the prices of overload and uneven loads for the number of zones whose turn is to come.
func (t *step) price(zones int, greed float64, endpoints int) {
	part := 1.0
	if greed > 0 {
		part = min(1, (evenWeight/greed-0.05)/(2*evenWeight))
	}
	t.last = zones == 0
	t.each = 2 * evenWeight / float64(endpoints)
	t.overload1 = evenWeight - 0.05*greed
	t.overload2 = evenWeight - (0.05+2*evenWeight*part)*greed
	t.under, t.over = part, 1-part
}

// loss is the least that a plan with the cells so far loses: under sums up what cells that get no more lack to load
// one, and over what others have above it.
func (t *step) loss(under, over, overload float64) float64 {
	return max(
		t.overload1*overload+t.each*over,
		t.overload2*overload+t.each*(t.under*under+t.over*over),
	)
}

// place tries all widths for the zone at its turn.
func (s *search) place(depth int, inZone float64) {
	t := &s.covering.steps[depth]
	if t.last {
		s.placeLast(depth, inZone)
		return
	}
	c, z := &s.covering, t.zone
	cells := c.cells[depth][:c.count[depth]]
	c.from[depth] = cells
	next := c.lightest[depth+1]
	// Where no other cell can take the zone, the cell without consumers gives all endpoints.
	alone := true
	ceiling := s.ceiling(t, inZone+inZoneWeight*(s.share[z]-s.ideal(z)))
	for i := range cells {
		if cells[i].mask != 0 && cells[i].load+c.light[z] <= ceiling {
			alone = false
		}
	}
	for width := c.least[z]; width <= c.most[z]; width++ {
		c.budget--
		if c.budget < 0 || !s.widen(t, inZone, width) {
			return
		}
		if t.load > t.ceiling {
			continue
		}
		if missing := float64(width) - s.expected[z]; alone && missing > 0 && t.load+next > t.ceiling && t.loss(missing, 0, 0) > t.room {
			// Scores fall with the width until the zone's load is so low that others fit in.
			if t.ceiling-next < slack {
				return
			}
			width = max(width, s.width(z, t.ceiling-next)-1)
			continue
		}
		s.divide(depth, width)
	}
}

// ceiling returns the greatest load that can lead to a good enough plan.
func (s *search) ceiling(t *step, inZone float64) float64 {
	room := inZone - s.top + tolerance
	return 1 + min(s.limit, max(0, room/t.overload1)) + slack
}

// widen sets the step up for a width. It reports whether a plan can be good enough; if not, no
// greater width leads to one.
func (s *search) widen(t *step, inZone float64, width int) bool {
	z := t.zone
	t.inZone = inZone + inZoneWeight*(s.share[z]*min(1, float64(s.own[z])/float64(width))-s.ideal(z))
	t.room = t.inZone - s.top + tolerance
	if t.room < 0 {
		return false
	}
	t.ceiling = s.ceiling(t, t.inZone)
	t.load = s.expected[z] / float64(width)
	return true
}

// placeLast tries the widths of the last zone. An endpoint that this zone leaves unused although
// there is room has a load that is too low by nearly the zone's load. A good plan can afford few
// such endpoints. So the width is close to the number of all endpoints up to some load, for one of
// the loads present.
//
// In detail: assume that the zone's load x fits on the cells up to the i-th, which have M
// endpoints, and on no other, and that the load missing in cells beyond them is known. Each of the
// M-W endpoints that it does not use misses at least x-d, if 1+d is the greatest load allowed. With
// x = T/W, and m as all the load that may be missing, this gives (M-W)*(T/W-d) <= m, hence W >=
// M*T/(T+d*M+m).
func (s *search) placeLast(depth int, inZone float64) {
	c := &s.covering
	t := &c.steps[depth]
	z := t.zone
	// The depth before still needs the cells in their order.
	cells := c.sorted[:copy(c.sorted[:], c.cells[depth][:c.count[depth]])]
	c.from[depth] = cells
	for i := 1; i < len(cells); i++ {
		for j := i; j > 0 && cells[j].load < cells[j-1].load; j-- {
			cells[j], cells[j-1] = cells[j-1], cells[j]
		}
	}
	first := c.least[z]
	if cells[0].mask == 0 {
		first = max(first, cells[0].count)
	}
	if !s.widen(t, inZone, first) {
		return
	}
	ceiling, affordable := t.ceiling, t.room/t.each
	beyond := 0.0 // load that unused cells lack
	for i := range cells {
		beyond += float64(cells[i].count) * max(0, 1-cells[i].load)
	}
	total := 0
	for i := range cells {
		total += cells[i].count
		beyond -= float64(cells[i].count) * max(0, 1-cells[i].load)
		if beyond > affordable+slack {
			continue
		}
		if ceiling-cells[i].load < slack {
			break
		}
		low, high := max(first, s.width(z, ceiling-cells[i].load)), min(total, c.most[z])
		if i+1 < len(cells) && ceiling-cells[i+1].load > slack {
			high = min(high, s.width(z, ceiling-cells[i+1].load)-1)
		}
		all := float64(total)
		low = max(low, int(math.Ceil(all*s.expected[z]/(s.expected[z]+(ceiling-1)*all+max(0, affordable-beyond))-tolerance)))
		for width := low; width <= high; width++ {
			c.budget--
			if c.budget < 0 || !s.widen(t, inZone, width) {
				return
			}
			s.divide(depth, width)
		}
	}
}

// width returns the least width at which the zone's load is not greater.
func (s *search) width(z int, load float64) int {
	return int(min(math.Ceil(s.expected[z]/load-slack), float64(s.endpoints+1)))
}

// divide tries all ways to take a width from the cells.
func (s *search) divide(depth, width int) {
	c := &s.covering
	t := &c.steps[depth]
	from := c.from[depth]
	t.after[len(from)] = 0
	for i := len(from) - 1; i >= 0; i-- {
		t.after[i] = t.after[i+1]
		if from[i].load+t.load <= t.ceiling {
			t.after[i] += from[i].count
		}
	}
	if t.after[0] < width {
		return
	}
	c.count[depth+1] = 0
	s.take(depth, 0, width, sums{})
}

// sums are the input of loss, of the cells so far.
type sums struct{ under, over, overload float64 }

// take takes rest endpoints from the cells from i on, and splits cells for that.
func (s *search) take(depth, i, rest int, sum sums) {
	c := &s.covering
	c.budget--
	if c.budget < 0 {
		return
	}
	t := &c.steps[depth]
	if i == len(c.from[depth]) {
		s.next(depth)
		return
	}
	from := c.from[depth][i]
	fewest, most := max(0, rest-t.after[i+1]), min(rest, from.count)
	loaded := from.load + t.load
	if loaded > t.ceiling {
		most = 0
	}
	if t.last && from.mask == 0 {
		fewest = from.count
	}
	// These are the loads that one endpoint adds to under, taken or left, if nothing more can fit
	// on it.
	var taken, left float64
	if loaded < 1 && loaded+c.lightest[depth+1] > t.ceiling {
		taken = 1 - loaded
	}
	if from.load < 1 && from.load+c.lightest[depth+1] > t.ceiling {
		left = 1 - from.load
	}
	if t.under > 0 {
		spare := t.room/(t.each*t.under) + slack - sum.under - left*float64(from.count)
		switch {
		case taken > left+slack:
			most = min(most, floor(spare/(taken-left)+slack))
		case taken < left-slack:
			fewest = max(fewest, -floor(spare/(left-taken)+slack))
		}
	}
	count := c.count[depth+1]
	for n := most; n >= fewest; n-- {
		rests := float64(from.count - n)
		next := sums{
			under:    sum.under + taken*float64(n) + left*rests,
			over:     sum.over + max(0, loaded-1)*float64(n) + max(0, from.load-1)*rests,
			overload: sum.overload,
		}
		to := c.cells[depth+1][:]
		end := count
		if n > 0 {
			to[end] = cell{mask: from.mask | 1<<t.zone, count: n, load: loaded}
			end++
			next.overload = max(next.overload, loaded-1)
		}
		if n < from.count {
			to[end] = cell{mask: from.mask, count: from.count - n, load: from.load}
			end++
			next.overload = max(next.overload, from.load-1)
		}
		if t.loss(next.under, next.over, next.overload) > t.room {
			continue
		}
		c.count[depth+1] = end
		s.take(depth, i+1, rest-n, next)
	}
	c.count[depth+1] = count
}

// floor returns the integer part of a number that may be outside the range of an int.
func floor(x float64) int {
	return int(math.Floor(max(-1e9, min(x, 1e9))))
}

// next continues with the next zone. After the last it offers the plan.
func (s *search) next(depth int) {
	c := &s.covering
	if !c.steps[depth].last {
		s.place(depth+1, c.steps[depth].inZone)
		return
	}
	n := c.count[depth+1]
	copy(s.trial.cells[:n], c.cells[depth+1][:n])
	s.offer(n)
}
