package allocate

import "slices"

// remember translates the previous plan to the zones of the loaded region. It drops zones that are
// gone, and groups that only such zones consumed.
func (p *Planner) remember(previous Plan) {
	p.prior = Plan{}
	if len(previous.Groups) == 0 {
		return
	}
	index := make([]int, len(previous.Zones))
	for i, name := range previous.Zones {
		z, found := slices.BinarySearch(p.names, name)
		if !found {
			z = -1
		}
		index[i] = z
	}
	b := &p.memory
	b.reset()
	for i := range previous.Groups {
		g := &previous.Groups[i]
		consumed := false
		for _, c := range g.Consumers {
			if z := index[c.Zone]; z >= 0 {
				b.consumer(z, c.Weight)
				consumed = true
			}
		}
		for _, m := range g.Members {
			if z := index[m.Zone]; z >= 0 && consumed {
				b.member(z, m.Endpoints)
			}
		}
		b.close()
	}
	p.prior = b.plan(p.names)
}

// carryScratch is the scratch memory of carryOver.
type carryScratch struct {
	given  []int // endpoints by group and home zone
	placed []int // endpoints by home zone
}

// carryOver makes the plan in which all endpoints stay in their prior group and each new one joins
// the group of its own zone. It reports whether that plan exists. It does not for new endpoints of
// a zone that only shares groups, since these groups would grow for ever, nor if the prior plan
// divides nothing, since that state would never end.
func (p *Planner) carryOver() bool {
	if len(p.prior.Groups) == 0 || p.dividesNothing() {
		return false
	}
	c, n, groups := &p.carryScratch, len(p.zones), len(p.prior.Groups)
	// Each new zone may need one more group.
	c.given = grow(c.given, (groups+n)*n)
	c.placed = grow(c.placed, n)
	for g := range p.prior.Groups {
		for _, m := range p.prior.Groups[g].Members {
			c.given[g*n+m.Zone] += m.Endpoints
			c.placed[m.Zone] += m.Endpoints
		}
	}
	for z := range p.zones {
		arrived := p.zones[z].Endpoints - c.placed[z]
		if arrived < 0 {
			return false // the previous plan does not belong to this Service
		}
		if arrived == 0 {
			continue
		}
		own, reaches := ownGroup(p.prior, z)
		if own < 0 {
			if reaches || p.shares[z] == 0 {
				return false
			}
			own = groups + z
		}
		c.given[own*n+z] += arrived
	}
	p.plan.reset()
	for g := range groups + n {
		for home, count := range c.given[g*n : (g+1)*n] {
			p.plan.member(home, count)
		}
		if g < groups {
			p.plan.consumers = append(p.plan.consumers, p.prior.Groups[g].Consumers...)
		} else {
			p.plan.consumer(g-groups, 1)
		}
		p.plan.close()
	}
	return true
}

// dividesNothing reports whether the prior plan has all zones use all endpoints, although several
// have traffic.
func (p *Planner) dividesNothing() bool {
	traffic := 0
	for z := range p.zones {
		if p.shares[z] == 0 {
			continue
		}
		traffic++
		for g := range p.prior.Groups {
			if !p.prior.Groups[g].Consumes(z) {
				return false
			}
		}
	}
	return traffic > 1
}

// ownGroup returns the group that only this zone uses, or -1. It also reports whether the zone uses
// any group.
func ownGroup(plan Plan, zone int) (own int, reaches bool) {
	own = -1
	for g := range plan.Groups {
		if plan.Groups[g].Consumes(zone) {
			reaches = true
			if len(plan.Groups[g].Consumers) == 1 {
				own = g
			}
		}
	}
	return own, reaches
}

// settleScratch is the scratch memory of settle.
type settleScratch struct {
	transport
	own []int // endpoints in a group that their own zone uses, by group and home zone
}

// settle exchanges home zones between groups that consume neither, so that as many endpoints as
// possible stay in their prior group. This changes no figure.
func (p *Planner) settle() {
	if len(p.prior.Groups) == 0 {
		return
	}
	plan := p.plan.plan(p.names).Clone()
	n := len(p.zones)
	t := &p.settleScratch
	t.clear(n, len(plan.Groups))
	t.own = grow(t.own, n*len(plan.Groups))
	for g := range plan.Groups {
		for _, m := range plan.Groups[g].Members {
			if plan.Groups[g].Consumes(m.Zone) {
				t.own[g*n+m.Zone] = m.Endpoints
				continue
			}
			t.supply[m.Zone] += m.Endpoints
			t.demand[g] += m.Endpoints
		}
		for home := range n {
			if plan.Groups[g].Consumes(home) {
				t.worth[home*t.groups+g] = forbidden
			}
		}
	}
	for g := range plan.Groups {
		for i := range p.prior.Groups {
			if !sameConsumers(p.prior.Groups[i].Consumers, plan.Groups[g].Consumers) {
				continue
			}
			for _, m := range p.prior.Groups[i].Members {
				t.keep[m.Zone*t.groups+g] += m.Endpoints
			}
		}
	}
	t.stay()
	t.solve()
	p.plan.reset()
	for g := range plan.Groups {
		for home := range n {
			p.plan.member(home, t.own[g*n+home]+t.sent[home*t.groups+g])
		}
		p.plan.consumers = append(p.plan.consumers, plan.Groups[g].Consumers...)
		p.plan.close()
	}
}

// sameConsumers reports whether two groups serve the same zones. Weights do not count: an endpoint
// that changes only its weight does not move.
func sameConsumers(a, b []Consumer) bool {
	return slices.EqualFunc(a, b, func(a, b Consumer) bool { return a.Zone == b.Zone })
}
