package disruption

import (
	"maps"
	"slices"
	"time"
)

// DomainMeasure has the numbers of one domain of one group.
type DomainMeasure struct {
	Group, Domain string
	Expected      int // the share of all, rounded up
	Healthy       int // without reserved pods
	Desired       int // pods that must stay healthy
	Down          int // without Anywhere
	Missing       int // pods of Down that have no place yet
	Anywhere      int // missing pods that may belong to any domain, and count as down in each
	Surplus       int // pods that are neither healthy nor down, because there are more than expected
	Allowed       int // pods that may be evicted now
	Disturbed     bool
	Shift         string // a ZoneShift that also disturbs the domain, for evictions elsewhere
}

// Measures are the numbers of a budget.
type Measures struct {
	Domains   []DomainMeasure // sorted by group, then by domain
	Expected  int
	Healthy   int
	Desired   int
	Allowed   int // pods that can be evicted one after the other in the best order
	Disturbed int // domains
	// Blocked lists the domains where no pod can be evicted even if all pods are healthy.
	Blocked []DomainMeasure
}

// Measure computes the numbers of a budget.
func Measure(s *State, now time.Time) Measures { return NewTally(s, now).Measures() }

// measuring bounds concurrent computations, because the numbers of many groups and domains take memory.
var measuring = make(chan struct{}, 4)

// Measures computes the numbers of the budget.
func (t *Tally) Measures() Measures {
	measuring <- struct{}{}
	defer func() { <-measuring }()
	var m Measures
	for _, name := range t.groupNames() {
		g := t.groups[name]
		if g == nil {
			g = t.count(name) // not kept, because there may be many groups
		}
		m.Expected += g.expected
		m.Healthy += g.healthy
		m.Disturbed += g.disturbed + g.shifted
		m.Allowed += g.allowed()
		desired := 0
		for i := range g.domains {
			measured := t.measure(g, int32(i))
			desired += measured.Desired
			m.Domains = append(m.Domains, measured)
			if t.state.Budget.Invalid == "" && g.isBlocked(int32(i)) {
				m.Blocked = append(m.Blocked, measured)
			}
		}
		if g.maxTotal >= 0 {
			desired = max(desired, g.expected-g.maxTotal)
		}
		m.Desired += desired
	}
	return m
}

func (t *Tally) groupNames() []string { return slices.Sorted(maps.Keys(t.state.groups())) }

// Groups returns the number of groups that have or can have pods.
func (s *State) Groups() int { return len(s.groups()) }

func (s *State) groups() map[string]bool {
	names := map[string]bool{}
	for i := range s.Pods {
		if p := &s.Pods[i]; !p.Finished {
			names[p.Group] = true
		}
	}
	for i := range s.Owners {
		if owner := &s.Owners[i]; !owner.ManyGroups {
			names[owner.Group] = true
		}
	}
	if len(names) == 0 {
		names[""] = true
	}
	return names
}

func (t *Tally) measure(g *group, domain int32) DomainMeasure {
	d, domains := &g.domains[domain], len(g.domains)
	return DomainMeasure{
		Group: g.name, Domain: t.domains[domain],
		Expected: (g.expected + domains - 1) / domains,
		Healthy:  d.healthy, Desired: max(0, d.healthy-g.room(domain)),
		Down: d.down, Missing: d.missing, Anywhere: g.anywhere, Surplus: d.surplus,
		Allowed: g.allowedIn(domain), Disturbed: d.disturbed, Shift: d.shift,
	}
}

// allowedIn returns how many pods of a domain may be evicted now.
func (g *group) allowedIn(domain int32) int {
	d := &g.domains[domain]
	if g.maxDomains >= 0 && g.disturbedAfter(domain) > g.maxDomains {
		return 0
	}
	allowed := min(g.room(domain), d.healthy)
	if g.maxTotal >= 0 {
		allowed = min(allowed, g.maxTotal-g.down)
	}
	return max(0, allowed)
}

// allowed returns how many pods of a group may be evicted one after the other.
func (g *group) allowed() int {
	allowed, shifted, quiet := 0, []int{}, []int{}
	for i := range g.domains {
		switch d := &g.domains[i]; {
		case d.disturbed:
			allowed += g.allowedIn(int32(i))
		case d.shift != "":
			shifted = append(shifted, g.allowedIn(int32(i)))
		default:
			quiet = append(quiet, g.allowedIn(int32(i)))
		}
	}
	// If a quiet domain may be disturbed, all shifted ones may.
	allowed += g.bestOf(shifted, g.disturbed) + g.bestOf(quiet, g.disturbed+g.shifted)
	if g.maxTotal >= 0 {
		allowed = min(allowed, max(0, g.maxTotal-g.down))
	}
	return allowed
}

// bestOf returns how many pods may be evicted in undisturbed domains, by what each allows, while a number of others is disturbed.
func (g *group) bestOf(allowed []int, disturbed int) (pods int) {
	slices.Sort(allowed)
	slices.Reverse(allowed)
	for more, n := range allowed {
		if g.maxDomains >= 0 && g.disturbedWith(disturbed+more+1) > g.maxDomains {
			break
		}
		pods += n
	}
	return pods
}

// isBlocked reports whether the limits leave no room for a pod of a domain even if all pods are healthy.
func (g *group) isBlocked(domain int32) bool {
	d := &g.domains[domain]
	pods := d.size + d.missing
	return pods > 0 && g.expected > 0 && (g.maxDown == 0 || g.minHealthy >= pods || g.maxTotal == 0 || g.maxDomains == 0)
}
