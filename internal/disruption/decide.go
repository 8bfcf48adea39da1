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
	// Domain has the numbers of the pod's domain before the eviction.
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
	var g *group
	at := t.places[i]
	if p.Place == Covered {
		g = t.group(p.Group)
		t.describe(&d, g, at)
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
	case p.Place == Uncovered:
		return d.allow(RuleNotCovered)
	case reserved && !r.outlastsEviction(t.now):
		d.Rule, d.RetryAt = RuleExpiring, r.Expires
		return d
	case reserved && p.Place == Covered && p.isHealthy(): // the budget may allow less by now
		if t.refuse(&d, g, at, 0); d.Rule == "" {
			return d.reserve(RuleReserved)
		}
		d.RetryAt = time.Time{} // unknown, because the pod's own reservation counts as down
		return d
	case reserved:
		return d.reserve(RuleReserved)
	case p.Pending || p.Place == Unplaced: // reserve, because it may be ready when it is evicted
		return d.reserve(RuleGone)
	case !p.Ready && b.AlwaysAllowUnhealthy:
		return d.reserve(RuleUnhealthy)
	case !p.Ready:
		if t.refuse(&d, g, at, 0); d.Rule == "" {
			return d.reserve(RuleUnhealthy)
		}
		d.Rule, d.Exceeded = RuleUnhealthyNo, d.Rule
		return d
	}
	if t.refuse(&d, g, at, 1); d.Rule == "" {
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

// describe sets the numbers of a decision about a pod of a domain.
func (t *Tally) describe(d *Decision, g *group, at int32) {
	d.Domain = t.measure(g, at)
	d.Total = DomainMeasure{
		Group: g.name, Expected: g.expected, Healthy: g.healthy, Down: g.down,
		Missing: g.missing, Anywhere: g.anywhere, Disturbed: g.disturbed+g.shifted > 0,
	}
	if g.maxTotal >= 0 {
		d.Total.Desired, d.Total.Allowed = max(0, g.expected-g.maxTotal), max(0, g.maxTotal-g.down)
	}
	d.MaxDown, d.MaxTotal, d.MaxDomains = g.maxDown, g.maxTotal, g.maxDomains
	d.DisturbedAnywhere = g.unknown
	isShifted := g.domains[at].shift != ""
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
	by   int
}

// refuse sets the rule of a decision and its details if the given number of further pods must not go down in a domain. The number is 1
// for a healthy pod and 0 for a pod that is down already.
func (t *Tally) refuse(d *Decision, g *group, at int32, pods int) {
	breaches := g.breaches(at, pods)
	if len(breaches) == 0 {
		return
	}
	d.Rule = breaches[0].rule
	t.list(d, g, at)
	for _, b := range breaches {
		ends, possible := g.ends(b, at)
		if !possible {
			d.RetryAt = time.Time{}
			return
		}
		if ends.After(d.RetryAt) {
			d.RetryAt = ends
		}
	}
}

func (g *group) breaches(at int32, pods int) (found []breach) {
	if room := g.room(at); room < pods {
		found = append(found, breach{RuleDomain, pods - room})
	}
	if down := g.down + pods; g.maxTotal >= 0 && down > g.maxTotal {
		found = append(found, breach{RuleTotal, down - g.maxTotal})
	}
	if domains := g.disturbedAfter(at); g.maxDomains >= 0 && domains > g.maxDomains {
		found = append(found, breach{RuleDomains, domains - g.maxDomains})
	}
	return found
}

// list adds the pods that cause the rule of a decision.
func (t *Tally) list(d *Decision, g *group, at int32) {
	from := g.domains
	if d.Rule == RuleDomain {
		from = from[at : at+1]
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
		if d.Rule == RuleDomains {
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
func (g *group) ends(b breach, at int32) (time.Time, bool) {
	switch b.rule {
	case RuleDomain:
		return nth(slices.Clone(g.domains[at].ends), b.by)
	case RuleTotal:
		var ends []time.Time
		for i := range g.domains {
			ends = append(ends, g.domains[i].ends...)
		}
		return nth(ends, b.by)
	}
	// Whether the pod's own domain settles makes no difference.
	others, known, isShifted := []time.Time{}, 0, g.domains[at].shift != ""
	for i := range g.domains {
		d := &g.domains[i]
		switch {
		case i == int(at), d.shift != "" && !isShifted:
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
	g := t.groups[p.Group]
	if g == nil || p.Place != Covered {
		return
	}
	d := &g.domains[t.places[i]]
	at, _ := slices.BinarySearch(d.downPods, i)
	d.downPods = slices.Insert(d.downPods, at, i)
	if at, found := slices.BinarySearch(d.settling, i); found {
		d.settling = slices.Delete(d.settling, at, at+1)
	}
	d.healthy--
	d.down++
	d.ends = append(d.ends, r.Expires)
	g.healthy--
	g.down++
	if !d.disturbed {
		g.disturbed++
		if d.shift != "" {
			g.shifted--
		}
	}
	d.disturb(r.Expires)
}
