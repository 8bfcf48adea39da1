package allocate

import (
	"math"
	"slices"
)

// gathering looks for a good partition of many zones into groups. Zones with little traffic share a
// group, because their share of endpoints cannot be rounded well. It tries all limits of "little"
// that make a difference, and then improves the best partition by single changes. The result is not
// proven to be the best.
type gathering struct {
	endpoints int
	limit     float64
	share     []float64
	expected  []float64
	own       []int
	order     []int // zones, in the order of what they lose by sharing, least first
	next      []int // by zone: the next zone of the group, which has less traffic, or -1
	trial     partition
	best      partition
	budget    int   // groups that may still be rated
	given     []int // by group and home zone: endpoints of the plan
	left      []int // by home zone: endpoints that are not given yet
}

// partition is a plan in which no zone uses two groups.
type partition struct {
	of      []int     // group, by zone
	first   []int     // zone with the most traffic, by group; -1 if the group is empty
	traffic []float64 // expected endpoints, by group
	size    []int     // endpoints, by group
	value   []float64 // what the group contributes to the score
	score   float64
}

// gatherBudget limits the improvement of a partition.
const gatherBudget = 4_000_000

func (m *partition) copy(from *partition) {
	m.of = append(m.of[:0], from.of...)
	m.first = append(m.first[:0], from.first...)
	m.traffic = append(m.traffic[:0], from.traffic...)
	m.size = append(m.size[:0], from.size...)
	m.value = append(m.value[:0], from.value...)
	m.score = from.score
}

// gather finds a partition of all zones with traffic.
func (s *search) gather(p *Planner) {
	m := &s.many
	m.load(s, p)
	m.best.score = math.Inf(-1)
	m.pack(math.Inf(1), false)
	m.fit() // always possible
	for limit := 0.5; ; limit *= 1.5 {
		m.pack(limit, true)
		m.fit()
		m.pack(limit, false)
		m.fit()
		if len(m.trial.first) == 1 {
			break
		}
	}
	m.trial.copy(&m.best)
	m.link()
	m.budget = gatherBudget
	for m.spare(); m.improve(); m.spare() {
	}
	m.best.copy(&m.trial)
}

// spare ensures that one group is without zones, as a target for moves.
func (m *gathering) spare() {
	t := &m.trial
	if slices.Contains(t.first, -1) {
		return
	}
	t.first, t.size = append(t.first, -1), append(t.size, 0)
	t.traffic, t.value = append(t.traffic, 0), append(t.value, 0)
}

func (m *gathering) load(s *search, p *Planner) {
	n := s.zones
	m.endpoints, m.limit = s.endpoints, s.limit+slack
	m.share, m.expected, m.own = grow(m.share, n), grow(m.expected, n), grow(m.own, n)
	m.order, m.next = grow(m.order, n), grow(m.next, n)
	for i, z := range s.traffic {
		m.share[i], m.expected[i], m.own[i], m.order[i] = p.shares[z], p.expected[z], p.zones[z].Endpoints, i
	}
	slices.SortStableFunc(m.order, func(a, b int) int {
		switch emptyA, emptyB := m.own[a] == 0, m.own[b] == 0; {
		case emptyA && !emptyB:
			return -1
		case emptyB && !emptyA:
			return 1
		case m.share[a] < m.share[b]:
			return -1
		case m.share[a] > m.share[b]:
			return 1
		}
		return m.own[a] - m.own[b]
	})
}

// pack makes the trial of groups that each expect at least limit endpoints. Only smaller zones have
// to share a group; with empty set, only those without own endpoints.
func (m *gathering) pack(limit float64, empty bool) {
	t := &m.trial
	t.of = grow(t.of, len(m.own))
	t.traffic = t.traffic[:0]
	open, full := -1, -1 // shared groups
	for _, z := range m.order {
		g := len(t.traffic)
		switch shares := m.expected[z] < limit && (!empty || m.own[z] == 0); {
		case !shares:
			t.traffic = append(t.traffic, 0)
		case open >= 0:
			g = open
		default:
			t.traffic = append(t.traffic, 0)
			open = g
		}
		t.of[z] = g
		t.traffic[g] += m.expected[z]
		if g == open && t.traffic[g] >= limit {
			open, full = -1, g
		}
	}
	// The rest joins a full shared group.
	if open >= 0 && full >= 0 {
		last := len(t.traffic) - 1
		t.traffic[full] += t.traffic[open]
		t.traffic[open] = t.traffic[last]
		for z, g := range t.of {
			if g == open {
				t.of[z] = full
			}
		}
		for z, g := range t.of {
			if g == last && open != last {
				t.of[z] = open
			}
		}
		t.traffic = t.traffic[:last]
	}
	t.first = grow(t.first, len(t.traffic))
	t.size = grow(t.size, len(t.traffic))
	t.value = grow(t.value, len(t.traffic))
	m.link()
}

// link lists the zones of each group, those with the most traffic first.
func (m *gathering) link() {
	t := &m.trial
	for g := range t.first {
		t.first[g] = -1
	}
	for z := range t.of {
		m.insert(z, t.of[z])
	}
}

func (m *gathering) insert(z, g int) {
	at := &m.trial.first[g]
	for *at >= 0 && m.share[*at] >= m.share[z] {
		at = &m.next[*at]
	}
	m.next[z] = *at
	*at = z
}

func (m *gathering) remove(z, g int) {
	at := &m.trial.first[g]
	for *at != z {
		at = &m.next[*at]
	}
	*at = m.next[z]
}

// worth is the contribution of a group of so many endpoints to the score, without its overload.
func (m *gathering) worth(g, size int) float64 {
	rest, traffic := size, 0.0
	for z := m.trial.first[g]; z >= 0 && rest > 0; z = m.next[z] {
		home := min(rest, m.own[z])
		rest -= home
		traffic += m.share[z] * float64(home)
	}
	short := max(0, m.trial.traffic[g]-float64(size))
	return inZoneWeight*traffic/float64(size) - 2*evenWeight*short/float64(m.endpoints)
}

// least returns the least size of a group with at most this overload.
func (m *gathering) least(g int, overload float64) int {
	return max(1, int(math.Ceil(m.trial.traffic[g]/(1+overload)-slack)))
}

// fit finds good sizes for the groups of the trial, and keeps the trial if it is the best so far.
// It tries the least possible overload, and some that are greater.
func (m *gathering) fit() {
	t := &m.trial
	if !m.fits(m.limit) {
		return
	}
	low, high := 0.0, m.limit
	if m.fits(0) {
		high = 0
	}
	for range 40 {
		if middle := (low + high) / 2; m.fits(middle) {
			high = middle
		} else {
			low = middle
		}
	}
	for range max(1, min(8, 2000/len(t.size))) {
		m.fill(high)
		m.rate()
		if t.score > m.best.score+tolerance {
			m.best.copy(t)
		}
		more := math.Inf(1)
		for g := range t.size {
			if n := m.least(g, high); n > 1 {
				more = min(more, t.traffic[g]/float64(n-1)-1)
			}
		}
		if more > m.limit {
			return
		}
		high = more
	}
}

// fits reports whether there are enough endpoints for groups with at most this overload.
func (m *gathering) fits(overload float64) bool {
	sum := 0
	for g := range m.trial.size {
		sum += m.least(g, overload)
	}
	return sum <= m.endpoints
}

// fill sets the expected sizes, and corrects their sum where it costs least.
func (m *gathering) fill(overload float64) {
	t := &m.trial
	rest := m.endpoints
	for g := range t.size {
		t.size[g] = max(m.least(g, overload), int(t.traffic[g]+slack))
		rest -= t.size[g]
	}
	for ; rest != 0; rest -= sign(rest) {
		change, best, gain := sign(rest), -1, math.Inf(-1)
		for g, size := range t.size {
			if change < 0 && size <= m.least(g, overload) {
				continue
			}
			if more := m.worth(g, size+change) - m.worth(g, size); more > gain+slack {
				best, gain = g, more
			}
		}
		t.size[best] += change
	}
}

func sign(n int) int {
	if n < 0 {
		return -1
	}
	return 1
}

// rate computes the score of the trial.
func (m *gathering) rate() {
	t := &m.trial
	for g, size := range t.size {
		t.value[g] = m.worth(g, size)
	}
	t.score = m.total()
}

// total returns the score of the trial, minus infinity at the threshold.
func (m *gathering) total() float64 {
	t := &m.trial
	m.budget -= len(t.size)
	sum, overload := 2*evenWeight, 0.0
	for g, size := range t.size {
		if size > 0 {
			sum += t.value[g]
			overload = max(overload, t.traffic[g]/float64(size)-1)
		}
	}
	if overload > m.limit {
		return math.Inf(-1)
	}
	return sum - evenWeight*overload
}

// improve moves one zone to another group, or one endpoint, if that is better. It reports whether
// it did.
func (m *gathering) improve() bool {
	t := &m.trial
	// The order does not depend on names, so figures do not either.
	for _, z := range m.order {
		for g := range t.size {
			if g != t.of[z] && m.moveZone(z, g) {
				return true
			}
			if m.budget < 0 {
				return false
			}
		}
	}
	for from := range t.size {
		for to := range t.size {
			if from != to && t.size[from] > 1 && t.size[to] > 0 && m.resize(from, to, t.size[from]-1) {
				return true
			}
			if m.budget < 0 {
				return false
			}
		}
	}
	return false
}

// moveZone moves a zone to another group and divides the endpoints of both again, if that is
// better. A group that loses its last zone loses its endpoints too.
func (m *gathering) moveZone(z, to int) bool {
	t := &m.trial
	from := t.of[z]
	if t.first[to] < 0 && m.next[t.first[from]] < 0 {
		return false // it would be the same
	}
	m.transfer(z, from, to)
	both := t.size[from] + t.size[to]
	if t.first[from] < 0 {
		if m.resize(from, to, 0) {
			return true
		}
	} else {
		near := int(float64(both) * t.traffic[from] / (t.traffic[from] + t.traffic[to]))
		for size := near - 1; size <= near+2; size++ {
			if size >= 1 && size < both && m.resize(from, to, size) {
				return true
			}
		}
	}
	m.transfer(z, to, from)
	t.value[from], t.value[to] = m.valueOf(from), m.valueOf(to)
	return false
}

func (m *gathering) transfer(z, from, to int) {
	t := &m.trial
	m.remove(z, from)
	m.insert(z, to)
	t.of[z] = to
	t.traffic[from] -= m.expected[z]
	t.traffic[to] += m.expected[z]
}

func (m *gathering) valueOf(g int) float64 {
	if m.trial.size[g] == 0 {
		return 0
	}
	return m.worth(g, m.trial.size[g])
}

// resize sets the size of a group at the cost of another, if that is better.
func (m *gathering) resize(from, to, size int) bool {
	t := &m.trial
	before := t.size[from]
	t.size[from], t.size[to] = size, t.size[to]+before-size
	t.value[from], t.value[to] = m.valueOf(from), m.valueOf(to)
	if score := m.total(); score > t.score+tolerance {
		t.score = score
		return true
	}
	t.size[to] -= before - size
	t.size[from] = before
	t.value[from], t.value[to] = m.valueOf(from), m.valueOf(to)
	return false
}

// build makes the groups of the planner's plan. Each takes its zones' own endpoints, starting with the zone with the
// most traffic, and then the remaining ones.
func (m *gathering) build(p *Planner, traffic []int) {
	t := &m.trial
	t.copy(&m.best)
	m.link()
	groups, n := len(t.size), len(p.zones)
	m.given = grow(m.given, groups*n)
	m.left = grow(m.left, n)
	for z := range p.zones {
		m.left[z] = p.zones[z].Endpoints
	}
	for g := range groups {
		for z := t.first[g]; z >= 0; z = m.next[z] {
			home := min(t.size[g], m.own[z])
			m.given[g*n+traffic[z]] = home
			t.size[g] -= home
			m.left[traffic[z]] -= home
		}
	}
	home := 0
	for g := range groups {
		for t.size[g] > 0 {
			more := min(t.size[g], m.left[home])
			m.given[g*n+home] += more
			t.size[g] -= more
			m.left[home] -= more
			if m.left[home] == 0 {
				home++
			}
		}
	}
	whole := true
	for _, g := range t.of {
		whole = whole && g == t.of[0]
	}
	if whole {
		p.addAll()
		return
	}
	for i := range traffic {
		g := t.of[i]
		if slices.Index(t.of, g) != i {
			continue // done, in the order of first zones
		}
		for home, count := range m.given[g*n : (g+1)*n] {
			p.plan.member(home, count)
		}
		for j := i; j < len(traffic); j++ {
			if t.of[j] == g {
				p.plan.consumer(traffic[j], 1)
			}
		}
		p.plan.close()
	}
}
