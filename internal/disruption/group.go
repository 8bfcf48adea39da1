package disruption

import (
	"cmp"
	"slices"
	"time"
)

// group has the numbers of a group of pods.
type group struct {
	name    string
	domains []domain

	expected int
	missing  int // expected pods without a place
	// elsewhere is the number of further missing pods if terminating pods have been replaced already. They count in each domain, but
	// not in the total.
	elsewhere int
	anywhere  int // missing and elsewhere pods that may belong to any domain
	// unknown is the number of anywhere pods that may belong to domains that do not count as disturbed.
	unknown int

	healthy, down, disturbed int
	// shifted is the number of further domains that only ZoneShifts disturb.
	shifted int

	// The limits, -1 for none.
	minHealthy, maxDown, maxTotal, maxDomains int
}

// domain has the numbers of one domain of a group.
type domain struct {
	size    int // pods placed there that are not finished
	healthy int
	down    int // without the anywhere pods
	missing int // also counted in down
	surplus int // unhealthy pods that do not count as down, because there are more pods than expected
	// unhealthy counts pods that are not ready or are terminating, and so may be surplus.
	unhealthy int

	disturbed bool
	// stuck means that time alone does not end the disturbance. Otherwise it ends at settledAt.
	stuck     bool
	settledAt time.Time
	// shift names a ZoneShift that takes pods of the domain out of service. It disturbs the domain for evictions elsewhere.
	shift string

	downPods []int32     // sorted
	settling []int32     // pods that have not been ready for long enough, sorted
	ends     []time.Time // of the reservations that alone keep pods down
}

// census has the numbers of a group beyond those of its domains, while it is counted.
type census struct {
	expected int
	placed   int
	// bound counts pods without a place that fit only one domain, by domain.
	bound []int
	// ending counts terminating pods of owners by domain.
	ending []int
}

func (t *Tally) count(name string) *group {
	g := &group{name: name, domains: make([]domain, len(t.domains))}
	c := census{bound: make([]int, len(t.domains)), ending: make([]int, len(t.domains))}
	for _, i := range t.byGroup[name] {
		t.countPod(g, &c, i)
	}
	ofAnyGroup := 0
	for i := range t.state.Owners {
		switch owner := &t.state.Owners[i]; {
		case owner.ManyGroups:
			count := t.owners[i]
			ofAnyGroup += max(0, owner.Replicas-count.covered-count.terminating-count.elsewhere)
		case owner.Group == name:
			c.expected += t.expects(i)
		}
	}
	g.expected = c.expected
	g.missing = max(0, c.expected-c.placed)
	g.forgive(c.placed - c.expected)
	g.suspect(c.ending, c.expected-c.placed)
	g.attribute(&c, t.wasDisturbed(name), ofAnyGroup)
	g.sum()
	g.limit(&t.state.Budget)
	return g
}

func (t *Tally) countPod(g *group, c *census, i int32) {
	p, owner := &t.state.Pods[i], t.ownerOf[i]
	if p.Place == Uncovered || p.Place == Unplaced && p.Terminating {
		return
	}
	if p.Place == Unplaced {
		if owner < 0 {
			c.expected++
		}
		if t.places[i] >= 0 {
			c.bound[t.places[i]]++
		}
		return
	}
	c.placed++
	asIs := owner < 0 || t.state.Owners[owner].ManyGroups || t.state.Owners[owner].Group != p.Group
	switch {
	case asIs:
		c.expected++
	case p.Terminating:
		c.ending[t.places[i]]++
	}
	d := &g.domains[t.places[i]]
	if d.shift == "" && p.Shift.Until.After(t.now) {
		d.shift = p.Shift.Name
	}
	r, reserved := t.reserved[p.UID]
	settled := p.ReadySince.Add(t.state.Budget.Settle)
	switch {
	case !p.isHealthy():
		d.downPods = append(d.downPods, i)
		d.disturbed, d.stuck = true, true
	case reserved:
		d.downPods = append(d.downPods, i)
		d.disturb(r.Expires)
		d.disturb(settled)
	case settled.After(t.now):
		d.settling = append(d.settling, i)
		d.disturb(settled)
	}
	d.size++
	switch {
	case !p.isHealthy():
		d.unhealthy++
		d.down++
	case reserved:
		d.ends = append(d.ends, r.Expires)
		d.down++
	default:
		d.healthy++
	}
}

// disturb marks the domain as disturbed at least until a time.
func (d *domain) disturb(until time.Time) {
	d.disturbed = true
	if until.After(d.settledAt) {
		d.settledAt = until
	}
}

// wasDisturbed returns, by domain, whether the stored status of a group has it as disturbed.
func (t *Tally) wasDisturbed(group string) []bool {
	was := make([]bool, len(t.domains))
	names := map[string]bool{}
	for _, key := range t.state.Disturbed {
		if key.Group == group {
			names[key.Domain] = true
		}
	}
	for i, name := range t.domains {
		was[i] = names[name]
	}
	return was
}

// suspect counts pods that may be missing in another domain although the total is right: terminating pods of a domain with more than
// its share may have been replaced elsewhere already. lacking is the number of missing pods with terminating pods counted as present.
// It may be negative.
func (g *group) suspect(ending []int, lacking int) {
	domains, replaced := len(g.domains), 0
	for i := range g.domains {
		excess := domains*g.domains[i].size - g.expected
		replaced += max(0, min(ending[i], (excess+domains-1)/domains))
		lacking += ending[i]
	}
	g.elsewhere = max(0, min(replaced, lacking-g.missing))
}

// attribute distributes the missing pods over domains, by their deficits. A domain that lacks less than a whole pod of its share may be
// complete, so the remaining pods may belong to any domain: to domains that were disturbed before and have less than their share, else to
// an unknown one. A missing pod of an unknown group counts in every group, in any domain.
func (g *group) attribute(c *census, was []bool, ofAnyGroup int) {
	domains, left := len(g.domains), g.missing+g.elsewhere
	deficits := make([]int, domains) // multiplied by the number of domains, to stay whole
	for i := range g.domains {
		d := &g.domains[i]
		d.missing = min(left, c.bound[i])
		left -= d.missing
		deficits[i] = g.expected - domains*(d.size+d.missing)
	}
	for q := newQueue(deficits, was); left > 0 && domains > 0; left-- {
		i, deficit := q.next()
		if deficit < domains {
			break
		}
		g.domains[i].missing++
		q.lower(domains)
	}
	g.anywhere = left + ofAnyGroup
	g.unknown = g.anywhere
	for i := range g.domains {
		d := &g.domains[i]
		d.down += d.missing
		lacks := g.anywhere > 0 && was[i] && deficits[i]+domains*c.ending[i] > 0
		if lacks {
			g.unknown = 0
		}
		if d.missing > 0 || lacks {
			d.disturbed, d.stuck = true, true
		}
	}
	g.expected += ofAnyGroup
	g.missing += ofAnyGroup
}

// forgive finds surplus pods, as during a rollout of a Deployment: in a domain with more than its share, unhealthy pods do not count as
// down.
func (g *group) forgive(surplus int) {
	domains := len(g.domains)
	excess := make([]int, domains)
	for i := range g.domains {
		if d := &g.domains[i]; d.unhealthy > 0 {
			excess[i] = domains*d.size - g.expected
		}
	}
	for q := newQueue(excess, make([]bool, domains)); surplus > 0 && domains > 0; surplus-- {
		i, most := q.next()
		if most <= 0 {
			break
		}
		d := &g.domains[i]
		d.surplus++
		d.down--
		if d.surplus < d.unhealthy {
			q.lower(domains)
		} else {
			q.lower(most)
		}
	}
}

func (g *group) sum() {
	g.down = g.anywhere - g.elsewhere
	for i := range g.domains {
		d := &g.domains[i]
		g.healthy += d.healthy
		g.down += d.down
		if d.disturbed {
			g.disturbed++
		} else if d.shift != "" {
			g.shifted++
		}
	}
}

func (g *group) limit(b *Budget) {
	g.minHealthy, g.maxDown, g.maxTotal, g.maxDomains = -1, -1, -1, -1
	switch domains := len(g.domains); {
	case b.Invalid != "":
		g.maxDown = 0
	case b.MinAvailable != nil:
		g.minHealthy = b.MinAvailable.Of(g.expected, domains)
	case b.MaxUnavailable != nil:
		g.maxDown = b.MaxUnavailable.Of(g.expected, domains)
	}
	if b.MaxTotal != nil {
		g.maxTotal = b.MaxTotal.Of(g.expected, 1)
	}
	if b.MaxDomains != nil {
		g.maxDomains = *b.MaxDomains
	}
}

// room returns how many more pods may go down in a domain by its own limit. It is negative if too many are down.
func (g *group) room(domain int32) int {
	d := &g.domains[domain]
	if g.minHealthy >= 0 {
		return d.healthy - g.minHealthy
	}
	return g.maxDown - d.down - g.anywhere
}

// disturbedWith returns how many domains may be disturbed if a number is known to be.
func (g *group) disturbedWith(known int) int {
	return min(known+g.unknown, len(g.domains))
}

// disturbedAfter returns how many domains may be disturbed once a pod of a domain is down. Domains that only ZoneShifts disturb do not
// count for evictions in shifted domains.
func (g *group) disturbedAfter(at int32) int {
	known, d := g.disturbed, &g.domains[at]
	if !d.disturbed {
		known++
	}
	if d.shift == "" {
		known += g.shifted
	}
	return g.disturbedWith(known)
}

// queue orders domains by amount, the largest first. Ties go to domains in first, then to the order of domains.
type queue struct {
	amounts []int
	first   []bool
	order   []int // a heap
}

func newQueue(amounts []int, first []bool) *queue {
	q := &queue{amounts: amounts, first: first, order: make([]int, len(amounts))}
	for i := range q.order {
		q.order[i] = i
	}
	slices.SortFunc(q.order, q.compare)
	return q
}

func (q *queue) compare(a, b int) int {
	if c := cmp.Compare(q.amounts[b], q.amounts[a]); c != 0 {
		return c
	}
	if q.first[a] != q.first[b] {
		if q.first[a] {
			return -1
		}
		return 1
	}
	return cmp.Compare(a, b)
}

// next returns the domain with the largest amount. The queue must not be empty.
func (q *queue) next() (domain, amount int) { return q.order[0], q.amounts[q.order[0]] }

func (q *queue) lower(by int) {
	q.amounts[q.order[0]] -= by
	for at := 0; ; {
		largest := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(q.order); child++ {
			if q.compare(q.order[child], q.order[largest]) < 0 {
				largest = child
			}
		}
		if largest == at {
			return
		}
		q.order[at], q.order[largest] = q.order[largest], q.order[at]
		at = largest
	}
}
