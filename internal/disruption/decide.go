package disruption

import (
	"slices"
	"time"
)

// Rule names the reason of a decision.
type Rule string

// The rules.
const (
	RuleNotCovered  Rule = "NotCovered"  // the budget does not cover the pod
	RuleGone        Rule = "Gone"        // the pod is pending, finished, terminating or on a deleted node, so nothing is lost
	RuleReserved    Rule = "Reserved"    // admitted before
	RuleExpiring    Rule = "Expiring"    // admitted before, but the reservation ends too soon for another try
	RuleBreakGlass  Rule = "BreakGlass"  // break-glass admits everything
	RuleUnit        Rule = "Unit"        // the pod's unit is down already
	RuleUnhealthy   Rule = "Unhealthy"   // the pod is down already, and the budget holds without it
	RuleWithin      Rule = "Within"      // the budget allows it
	RuleInvalid     Rule = "Invalid"     // the budget is invalid
	RuleDomain      Rule = "Domain"      // the pod's domain can spare no pod
	RuleTotal       Rule = "Total"       // too many are down in all domains
	RuleDomains     Rule = "Domains"     // too many other domains are disturbed
	RuleUnhealthyNo Rule = "UnhealthyNo" // the pod is down already, and the budget is exceeded
)

// Decision is the answer about a pod, with its numbers.
type Decision struct {
	Budget  string
	Pod     string // its name, empty if the State lacks it
	Allowed bool
	// Reserve says that the eviction may be admitted only after the reservation of Tally.Reserve is stored.
	Reserve bool
	Rule    Rule
	// Exceeded is the limit behind RuleUnhealthyNo: RuleDomain, RuleTotal or RuleDomains.
	Exceeded Rule
	// Limits are the limits as written.
	Limits *Budget
	// Domain has the numbers of the pod's domain before the eviction. For a unit in several domains, it is the first without room.
	Domain DomainMeasure
	// Total has the numbers of all domains of the pod's group. Desired and Allowed follow from MaxTotal and are 0 without it.
	Total DomainMeasure
	// Domains is the number of domains.
	Domains int
	// Disturbed lists the domains of the group that count as disturbed.
	Disturbed []string
	// Shifts names, for each of Disturbed that a ZoneShift takes out of service, the ZoneShift. It is empty for pods that one takes out of
	// service.
	Shifts map[string]string
	// DisturbedAnywhere is the number of further domains that may be disturbed, because missing pods may belong to any.
	DisturbedAnywhere int
	// Down lists the pods that are down in the pod's domain, by name. For RuleTotal and RuleDomains it lists those of all domains, domain
	// by domain. For RuleDomains it includes pods that have not settled. DownMore counts the pods beyond the list.
	Down     []DownPod
	DownMore int
	// The limits as numbers, -1 for none: of pods down in the domain, of pods down in all, of disturbed domains.
	MaxDown, MaxTotal, MaxDomains int
	// RetryAt, if not zero, is when time alone changes the answer: a domain settles, a reservation expires, or break-glass ends. The end
	// of a ZoneShift is not foretold, because people end and extend them.
	RetryAt time.Time
	Reason  string // of break-glass, or of the invalid budget
}

const maxListed = 20

// DownPod is a pod that counts as down.
type DownPod struct {
	Name string
	Why  Why
}

// Why is the reason that a pod counts as down.
type Why string

// The reasons.
const (
	WhyNotReady    Why = "not ready"
	WhyTerminating Why = "terminating"
	WhyReserved    Why = "about to be evicted"
	WhySettling    Why = "only just ready" // disturbs its domain without being down
)

// Decide decides whether a pod may be evicted now. For many decisions about one State, make a Tally.
func Decide(s *State, uid string, now time.Time) Decision {
	return NewTally(s, now).Decide(uid)
}

// Decide decides whether a pod may be evicted now.
func (t *Tally) Decide(uid string) Decision {
	b := &t.state.Budget
	d := Decision{Budget: b.Name, Limits: b, Domains: len(t.domains), MaxDown: -1, MaxTotal: -1, MaxDomains: -1}
	i, known := t.pods[uid]
	if !known {
		return d.allow(RuleNotCovered)
	}
	p := &t.state.Pods[i]
	d.Pod = p.Name
	if p.Finished || p.Terminating {
		return d.allow(RuleGone)
	}
	cells := t.cells(i)
	if len(cells) > 0 {
		t.describe(&d, cells[0], cells)
	}
	r, reserved := t.reserved[uid]
	switch {
	case t.now.Before(b.BreakGlass.Until):
		// Without a reservation: this must work for thousands of evictions at once, and when nothing can be stored.
		d.Reason, d.RetryAt = b.BreakGlass.Reason, b.BreakGlass.Until
		return d.allow(RuleBreakGlass)
	case b.Invalid != "":
		d.Rule, d.Reason = RuleInvalid, b.Invalid
		return d
	case len(cells) == 0 && p.Place == Uncovered:
		return d.allow(RuleNotCovered)
	case reserved && !r.outlastsEviction(t.now):
		d.Rule, d.RetryAt = RuleExpiring, r.Expires
		return d
	case reserved && p.isHealthy(): // the budget may allow less by now
		if t.refuse(&d, cells, 0); d.Rule == "" {
			return d.reserve(RuleReserved)
		}
		d.RetryAt = time.Time{} // unknown, because the pod's own reservation counts as down
		return d
	case reserved:
		return d.reserve(RuleReserved)
	case p.Pending || p.Place == Unplaced: // reserve, because it may be ready when it is evicted
		return d.reserve(RuleGone)
	case p.Unit != "" && t.units[p.Unit].isDown:
		return d.reserve(RuleUnit)
	case !p.Ready && b.AlwaysAllowUnhealthy:
		return d.reserve(RuleUnhealthy)
	case !p.Ready:
		if t.refuse(&d, cells, 0); d.Rule == "" {
			return d.reserve(RuleUnhealthy)
		}
		d.Rule, d.Exceeded = RuleUnhealthyNo, d.Rule
		return d
	}
	if t.refuse(&d, cells, 1); d.Rule == "" {
		return d.reserve(RuleWithin)
	}
	return d
}

func (d Decision) allow(rule Rule) Decision {
	d.Allowed, d.Rule = true, rule
	return d
}

func (d Decision) reserve(rule Rule) Decision {
	d.Reserve = true
	return d.allow(rule)
}

// describe sets the numbers of a decision to those of one of the pod's cells.
func (t *Tally) describe(d *Decision, at cell, cells []cell) {
	g := t.group(at.group)
	d.Domain = t.measure(g, at.domain)
	d.Total = DomainMeasure{
		Group: g.name, Expected: g.expected, Healthy: g.healthy, Down: g.down,
		Missing: g.missing, Anywhere: g.anywhere, Disturbed: g.disturbed+g.shifted > 0,
	}
	if g.maxTotal >= 0 {
		d.Total.Desired, d.Total.Allowed = max(0, g.expected-g.maxTotal), max(0, g.maxTotal-g.down)
	}
	d.MaxDown, d.MaxTotal, d.MaxDomains = g.maxDown, g.maxTotal, g.maxDomains
	d.Disturbed, d.Shifts, d.DisturbedAnywhere = nil, nil, g.unknown
	isShifted := g.isShifted(cells)
	for i := range g.domains {
		in := &g.domains[i]
		d.Total.Surplus += in.surplus
		counts := in.shift != "" && !isShifted
		if in.disturbed || counts {
			d.Disturbed = append(d.Disturbed, t.domains[i])
		}
		if counts {
			if d.Shifts == nil {
				d.Shifts = map[string]string{}
			}
			d.Shifts[t.domains[i]] = in.shift
		}
	}
}

// breach is a limit that an eviction would exceed.
type breach struct {
	rule Rule
	at   cell
	by   int
}

// refuse sets the rule of a decision and its details if the given number of further pods must not go down in each of the cells. The
// number is 1 for a healthy pod and 0 for a pod that is down already.
func (t *Tally) refuse(d *Decision, cells []cell, pods int) {
	breaches := t.breaches(cells, pods)
	if len(breaches) == 0 {
		return
	}
	first := breaches[0]
	t.describe(d, first.at, cells)
	d.Rule = first.rule
	t.list(d, first)
	for _, b := range breaches {
		ends, possible := t.ends(b, cells)
		if !possible {
			d.RetryAt = time.Time{}
			return
		}
		if ends.After(d.RetryAt) {
			d.RetryAt = ends
		}
	}
}

func (t *Tally) breaches(cells []cell, pods int) (found []breach) {
	for _, at := range cells {
		if room := t.group(at.group).room(at.domain); room < pods {
			found = append(found, breach{RuleDomain, at, pods - room})
		}
	}
	var disturbed []breach
	for i, at := range cells {
		if slices.ContainsFunc(cells[:i], func(c cell) bool { return c.group == at.group }) {
			continue
		}
		g := t.group(at.group)
		members := 0
		for _, c := range cells {
			if c.group == at.group {
				members++
			}
		}
		if down := g.down + pods*members; g.maxTotal >= 0 && down > g.maxTotal {
			found = append(found, breach{RuleTotal, at, down - g.maxTotal})
		}
		if domains := g.disturbedAfter(cells); g.maxDomains >= 0 && domains > g.maxDomains {
			disturbed = append(disturbed, breach{RuleDomains, at, domains - g.maxDomains})
		}
	}
	return append(found, disturbed...)
}

// list adds the pods that cause a breach to a decision.
func (t *Tally) list(d *Decision, b breach) {
	g := t.group(b.at.group)
	from := g.domains
	if b.rule == RuleDomain {
		from = from[b.at.domain : b.at.domain+1]
	}
	add := func(pods []int32, why func(p *Pod) Why) {
		for at, i := range pods {
			if len(d.Down) == maxListed {
				d.DownMore += len(pods) - at
				return
			}
			p := &t.state.Pods[i]
			d.Down = append(d.Down, DownPod{Name: p.Name, Why: why(p)})
		}
	}
	for i := range from {
		add(from[i].downPods, whyDown)
		if b.rule == RuleDomains {
			add(from[i].settling, func(*Pod) Why { return WhySettling })
		}
	}
}

func whyDown(p *Pod) Why {
	switch {
	case p.Terminating:
		return WhyTerminating
	case p.isHealthy():
		return WhyReserved
	}
	return WhyNotReady
}

// ends returns when time alone ends a breach, if it does.
func (t *Tally) ends(b breach, cells []cell) (time.Time, bool) {
	g := t.group(b.at.group)
	switch b.rule {
	case RuleDomain:
		return nth(slices.Clone(g.domains[b.at.domain].ends), b.by)
	case RuleTotal:
		var ends []time.Time
		for i := range g.domains {
			ends = append(ends, g.domains[i].ends...)
		}
		return nth(ends, b.by)
	}
	// Whether the pod's own domains settle makes no difference.
	others, known, isShifted := []time.Time{}, 0, g.isShifted(cells)
	for i := range g.domains {
		d := &g.domains[i]
		switch {
		case slices.Contains(cells, cell{g.name, int32(i)}), d.shift != "" && !isShifted:
			known++
		case d.disturbed && !d.stuck:
			others = append(others, d.settledAt)
			known++
		case d.disturbed:
			known++
		}
	}
	for settled := 1; settled <= len(others); settled++ {
		if g.disturbedWith(known-settled) <= g.maxDomains {
			return nth(others, settled)
		}
	}
	return time.Time{}, false
}

// nth returns the n-th of some times, and sorts them.
func nth(times []time.Time, n int) (time.Time, bool) {
	if n > len(times) {
		return time.Time{}, false
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[n-1], true
}

// Reserve adds the reservation of an eviction that Decide says to reserve, and reports whether it must be stored. An existing
// reservation stays, and loses its holder if that differs.
func (t *Tally) Reserve(uid, holder string) (r Reservation, changed bool) {
	r, found := t.reserved[uid]
	if found {
		changed = r.Holder != "" && r.Holder != holder
		if changed {
			r.Holder = ""
			t.reserved[uid] = r
		}
		return r, changed
	}
	i, known := t.pods[uid]
	if !known {
		return Reservation{}, false
	}
	p := &t.state.Pods[i]
	r = Reservation{UID: uid, Pod: p.Name, Expires: t.now.Add(ReservationTime), Holder: holder}
	t.reserved[uid] = r
	if p.isHealthy() {
		t.takeDown(i, r)
	}
	return r, true
}

// takeDown counts a healthy pod with a reservation as down in all numbers counted so far.
func (t *Tally) takeDown(i int32, r Reservation) {
	p := &t.state.Pods[i]
	if g := t.groups[p.Group]; g != nil && p.Place == Covered {
		d := &g.domains[t.places[i]]
		d.downPods = insert(d.downPods, i)
		if at, found := slices.BinarySearch(d.settling, i); found {
			d.settling = slices.Delete(d.settling, at, at+1)
		}
		g.disturb(t.places[i], r.Expires)
	}
	if p.Unit != "" {
		u := t.units[p.Unit]
		if u.isDown {
			if !u.stuck && r.Expires.After(u.end) {
				for _, at := range u.cells {
					delete(t.groups, at.group)
				}
			}
			u.reserve(r)
			return
		}
		u.reserve(r)
	}
	for _, at := range t.cells(i) {
		g := t.groups[at.group]
		if g == nil {
			continue
		}
		d := &g.domains[at.domain]
		d.healthy--
		d.down++
		d.ends = append(d.ends, r.Expires)
		g.healthy--
		g.down++
		g.disturb(at.domain, r.Expires)
	}
}

func (g *group) disturb(domain int32, until time.Time) {
	d := &g.domains[domain]
	if !d.disturbed {
		g.disturbed++
		if d.shift != "" {
			g.shifted--
		}
	}
	d.disturb(until)
}

func insert(sorted []int32, i int32) []int32 {
	at, _ := slices.BinarySearch(sorted, i)
	return slices.Insert(sorted, at, i)
}
