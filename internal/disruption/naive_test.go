package disruption

import (
	"slices"
	"time"

	"pgregory.net/rapid"
)

// naive is a second, slow implementation of the rules. It counts everything again for each question.
type naive struct {
	s   *State
	now time.Time
}

func (n naive) domains() []string {
	names := slices.Clone(n.s.Domains)
	for _, p := range n.s.Pods {
		if p.Place == Covered && !slices.Contains(names, p.Domain) {
			names = append(names, p.Domain)
		}
	}
	return names
}

func (n naive) reserved(p Pod) bool {
	return slices.ContainsFunc(n.s.Reservations, func(r Reservation) bool { return r.UID == p.UID && r.Expires.After(n.now) })
}

func (n naive) serves(p Pod) bool { return p.Ready && !p.Pending && !p.Terminating && !p.Finished }

func (n naive) podsOf(keep func(p Pod) bool) (pods []Pod) {
	for _, p := range n.s.Pods {
		if !p.Finished && keep(p) {
			pods = append(pods, p)
		}
	}
	return pods
}

func (n naive) owner(p Pod) *Owner {
	for i := range n.s.Owners {
		if p.Owner != "" && n.s.Owners[i].ID == p.Owner {
			return &n.s.Owners[i]
		}
	}
	return nil
}

// counts has the numbers of a group.
type counts struct {
	expected, missing, anywhere, unknown, down, healthy int
	domains                                             map[string]*DomainMeasure
	disturbed, shifted                                  []string
}

func (n naive) count(group string) counts {
	c := counts{domains: map[string]*DomainMeasure{}}
	names := n.domains()
	for _, name := range names {
		c.domains[name] = &DomainMeasure{Group: group, Domain: name}
	}
	size, forgivable := map[string]int{}, map[string]int{}
	inGroup := n.podsOf(func(p Pod) bool { return p.Group == group && p.Place == Covered })
	for _, p := range inGroup {
		size[p.Domain]++
		if n.serves(p) && !n.reserved(p) {
			c.domains[p.Domain].Healthy++
		} else {
			c.domains[p.Domain].Down++
		}
		if !n.serves(p) {
			forgivable[p.Domain]++
		}
	}
	asked, ofAny := 0, 0
	for i := range n.s.Owners {
		o := &n.s.Owners[i]
		mine := func(keep func(p Pod) bool) int {
			return len(n.podsOf(func(p Pod) bool { return n.owner(p) == o && p.Place != Unplaced && keep(p) }))
		}
		there := func(p Pod) bool { return p.Place == Covered && (o.ManyGroups || p.Group == o.Group) }
		stays := mine(func(p Pod) bool { return there(p) && !p.Terminating })
		ends := mine(func(p Pod) bool { return there(p) && p.Terminating })
		elsewhere := mine(func(p Pod) bool { return !there(p) && !p.Terminating })
		switch {
		case o.ManyGroups:
			ofAny += max(0, o.Replicas-stays-ends-elsewhere)
		case o.Group == group:
			asked += max(o.Replicas-elsewhere, min(o.Replicas, stays), 0)
		}
	}
	asIs := func(p Pod) bool { o := n.owner(p); return o == nil || o.ManyGroups || o.Group != p.Group }
	for _, p := range inGroup {
		if asIs(p) {
			asked++
		}
	}
	unplaced := n.podsOf(func(p Pod) bool { return p.Group == group && p.Place == Unplaced && !p.Terminating })
	for _, p := range unplaced {
		if n.owner(p) == nil {
			asked++
		}
	}
	c.missing, c.expected = max(0, asked-len(inGroup)), asked
	surplus := len(inGroup) - asked

	d := len(names)
	ends := map[string]int{}
	lacking, replaced := asked-len(inGroup), 0
	for _, p := range inGroup {
		if p.Terminating && !asIs(p) {
			ends[p.Domain]++
			lacking++
			// The first of them that are over the share.
			if d*size[p.Domain]-c.expected > d*(ends[p.Domain]-1) {
				replaced++
			}
		}
	}
	elsewhere := max(0, min(replaced, lacking-c.missing))
	for ; surplus > 0; surplus-- {
		best, excess := "", 0
		for _, name := range names {
			m := c.domains[name]
			if e := d*(size[name]-m.Surplus) - c.expected; forgivable[name] > m.Surplus && e > excess {
				best, excess = name, e
			}
		}
		if excess == 0 {
			break
		}
		c.domains[best].Surplus++
		c.domains[best].Down--
	}
	left := c.missing + elsewhere
	for _, name := range names {
		for _, p := range unplaced {
			if p.Domain != "" && p.Domain == name && left > 0 {
				c.domains[name].Missing++
				left--
			}
		}
	}
	deficit := func(name string) int { return c.expected - d*(size[name]+c.domains[name].Missing) }
	was := func(name string) bool { return slices.Contains(n.s.Disturbed, DomainKey{group, name}) }
	for left > 0 {
		best := ""
		found := false
		for _, name := range names {
			if deficit(name) < d {
				continue
			}
			if !found || deficit(name) > deficit(best) || deficit(name) == deficit(best) && was(name) && !was(best) {
				best, found = name, true
			}
		}
		if !found {
			break
		}
		c.domains[best].Missing++
		left--
	}
	c.anywhere = left + ofAny
	c.unknown = c.anywhere
	c.down = c.anywhere - elsewhere
	for _, name := range names {
		m := c.domains[name]
		m.Down += m.Missing
		m.Anywhere = c.anywhere
		c.down += m.Down
		c.healthy += m.Healthy
		m.Disturbed = m.Missing > 0
		if c.anywhere > 0 && was(name) && deficit(name)+d*ends[name] > 0 {
			m.Disturbed, c.unknown = true, 0
		}
		for _, p := range inGroup {
			if p.Domain == name && (!n.serves(p) || n.reserved(p) || p.ReadySince.Add(n.s.Budget.Settle).After(n.now)) {
				m.Disturbed = true
			}
			if p.Domain == name && p.Shift.Until.After(n.now) && m.Shift == "" {
				m.Shift = p.Shift.Name
			}
		}
		if m.Disturbed {
			c.disturbed = append(c.disturbed, name)
		}
		if m.Shift != "" {
			c.shifted = append(c.shifted, name)
		}
	}
	c.expected += ofAny
	c.missing += ofAny
	return c
}

// broken returns the first rule that does not hold with a number of further pods down in a domain of a group.
func (n naive) broken(group, domain string, extra int) Rule {
	c, b := n.count(group), &n.s.Budget
	domains := len(n.domains())
	disturbed := slices.Clone(c.disturbed)
	if !slices.Contains(c.shifted, domain) {
		disturbed = append(disturbed, c.shifted...)
	}
	disturbed = append(disturbed, domain)
	slices.Sort(disturbed)
	disturbed = slices.Compact(disturbed)
	m := c.domains[domain]
	switch {
	case b.MaxUnavailable != nil && m.Down+c.anywhere+extra > b.MaxUnavailable.Of(c.expected, domains),
		b.MinAvailable != nil && m.Healthy-extra < b.MinAvailable.Of(c.expected, domains):
		return RuleDomain
	case b.MaxTotal != nil && c.down+extra > b.MaxTotal.Of(c.expected, 1):
		return RuleTotal
	case b.MaxDomains != nil && min(domains, len(disturbed)+c.unknown) > *b.MaxDomains:
		return RuleDomains
	}
	return ""
}

// decide returns the rule for a pod, and whether its eviction is admitted.
func (n naive) decide(uid string) (Rule, bool) {
	at := slices.IndexFunc(n.s.Pods, func(p Pod) bool { return p.UID == uid })
	if at < 0 {
		return RuleNotCovered, true
	}
	p := n.s.Pods[at]
	switch {
	case p.Finished || p.Terminating:
		return RuleGone, true
	case n.now.Before(n.s.Budget.BreakGlass.Until):
		return RuleBreakGlass, true
	case n.s.Budget.Invalid != "":
		return RuleInvalid, false
	case p.Place == Uncovered:
		return RuleNotCovered, true
	case n.reserved(p):
		for _, r := range n.s.Reservations {
			if r.UID == uid && r.Expires.Sub(n.now) < EvictionTime+ClockSkew {
				return RuleExpiring, false
			}
		}
		if !n.serves(p) || p.Place != Covered {
			return RuleReserved, true
		}
	case p.Pending || p.Place == Unplaced:
		return RuleGone, true
	case !p.Ready && n.s.Budget.AlwaysAllowUnhealthy:
		return RuleUnhealthy, true
	}
	extra := 1
	if !p.Ready || n.reserved(p) {
		extra = 0
	}
	switch rule := n.broken(p.Group, p.Domain, extra); {
	case rule != "" && p.Ready:
		return rule, false
	case rule != "":
		return RuleUnhealthyNo, false
	}
	switch {
	case n.reserved(p):
		return RuleReserved, true
	case p.Ready:
		return RuleWithin, true
	}
	return RuleUnhealthy, true
}

// retryAt returns when time alone admits the eviction of a denied pod.
func (n naive) retryAt(uid string) time.Time {
	var times []time.Time
	for _, r := range n.s.Reservations {
		times = append(times, r.Expires)
	}
	for _, p := range n.s.Pods {
		times = append(times, p.ReadySince.Add(n.s.Budget.Settle))
	}
	slices.SortFunc(times, time.Time.Compare)
	for _, at := range times {
		if !at.After(n.now) {
			continue
		}
		if _, ok := (naive{n.s, at}).decide(uid); ok {
			return at
		}
	}
	return time.Time{}
}

// most returns how many pods can be evicted one after the other in the best order.
func (n naive) most(seen map[string]int) int {
	key := ""
	for _, r := range n.s.Reservations {
		key += r.UID + " "
	}
	if known, found := seen[key]; found {
		return known
	}
	best := 0
	for _, p := range n.s.Pods {
		if rule, _ := n.decide(p.UID); rule != RuleWithin {
			continue
		}
		s := *n.s
		s.Reservations = append(slices.Clone(s.Reservations), Reservation{UID: p.UID, Pod: p.Name, Expires: n.now.Add(ReservationTime)})
		slices.SortFunc(s.Reservations, func(a, b Reservation) int {
			if a.UID < b.UID {
				return -1
			}
			return 1
		})
		best = max(best, 1+naive{&s, n.now}.most(seen))
	}
	seen[key] = best
	return best
}

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// drawState draws a state with a bounded number of pods.
func drawState(t *rapid.T, most int) *State {
	s := &State{Domains: []string{"a", "b", "c", "d"}[:rapid.IntRange(0, 4).Draw(t, "domains")]}
	amount := func(name string, most int) *Amount {
		if rapid.Bool().Draw(t, name+"IsPercent") {
			return &Amount{Value: rapid.SampledFrom([]int{0, 1, 20, 34, 50, 80, 100}).Draw(t, name), Percent: true}
		}
		return &Amount{Value: rapid.IntRange(0, most).Draw(t, name)}
	}
	if rapid.Bool().Draw(t, "min") {
		s.Budget.MinAvailable = amount("minAvailable", 4)
	} else {
		s.Budget.MaxUnavailable = amount("maxUnavailable", 4)
	}
	if rapid.IntRange(0, 2).Draw(t, "hasTotal") == 0 {
		s.Budget.MaxTotal = amount("total", 6)
	}
	if rapid.Bool().Draw(t, "hasDomains") {
		most := rapid.IntRange(0, 4).Draw(t, "maxDomains")
		s.Budget.MaxDomains = &most
	}
	s.Budget.Settle = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "settle")
	s.Budget.AlwaysAllowUnhealthy = rapid.IntRange(0, 4).Draw(t, "policy") == 0
	groups := []string{"", "g", "h"}[:rapid.IntRange(1, 3).Draw(t, "groups")]
	owners := []string{""}
	for i := range rapid.IntRange(0, 3).Draw(t, "owners") {
		o := Owner{ID: string(rune('A' + i)), Replicas: rapid.IntRange(0, 7).Draw(t, "replicas"), Group: rapid.SampledFrom(groups).Draw(t, "ownerGroup")}
		o.ManyGroups = rapid.IntRange(0, 4).Draw(t, "many") == 0
		s.Owners, owners = append(s.Owners, o), append(owners, o.ID)
	}
	places := append([]string{"elsewhere"}, s.Domains...)
	shifts := map[string]Shift{}
	for _, name := range places {
		if rapid.IntRange(0, 2).Draw(t, "isShifted") == 0 {
			shifts[name] = Shift{"out-" + name, start.Add(rapid.SampledFrom([]time.Duration{0, time.Hour, time.Hour}).Draw(t, "shiftLasts"))}
		}
	}
	for i := range rapid.IntRange(0, most).Draw(t, "pods") {
		p := Pod{UID: string(rune('k' + i)), Name: "web-" + string(rune('k'+i)), Owner: rapid.SampledFrom(owners).Draw(t, "owner"), Place: Covered, Ready: true}
		p.Group = rapid.SampledFrom(groups).Draw(t, "group")
		if at := slices.IndexFunc(s.Owners, func(o Owner) bool { return o.ID == p.Owner && !o.ManyGroups }); at >= 0 && rapid.IntRange(0, 9).Draw(t, "stray") > 0 {
			p.Group = s.Owners[at].Group
		}
		p.Domain = rapid.SampledFrom(places).Draw(t, "domain")
		p.ReadySince = start.Add(-rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 50 * time.Second, time.Hour}).Draw(t, "readyFor"))
		switch rapid.IntRange(0, 11).Draw(t, "state") {
		case 0:
			p.Place, p.Pending, p.Ready = Unplaced, true, false
			if rapid.Bool().Draw(t, "unbound") {
				p.Domain = ""
			}
		case 1:
			p.Place, p.Domain = Uncovered, ""
		case 2:
			p.Terminating = true
		case 3:
			p.Finished, p.Ready = true, false
		case 4:
			p.Pending, p.Ready = true, false
		case 5:
			p.Ready = false
		case 6:
			s.Reservations = append(s.Reservations, Reservation{UID: p.UID, Pod: p.Name, Expires: start.Add(
				rapid.SampledFrom([]time.Duration{-time.Second, 40 * time.Second, 70 * time.Second, 100 * time.Second}).Draw(t, "expires"))})
		}
		if rapid.IntRange(0, 3).Draw(t, "onShiftedNode") > 0 {
			p.Shift = shifts[p.Domain]
		}
		s.Pods = append(s.Pods, p)
	}
	for _, name := range s.Domains {
		if rapid.IntRange(0, 3).Draw(t, "was") == 0 {
			s.Disturbed = append(s.Disturbed, DomainKey{rapid.SampledFrom(groups).Draw(t, "wasGroup"), name})
		}
	}
	return s
}
