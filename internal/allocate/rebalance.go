package allocate

import "slices"

// remember translates the previous plan to the zones of the region at hand. Zones
// that are gone are dropped, and with them the groups that only they consumed.
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

// carryOver makes the plan in which everyone stays where the prior plan had them
// and each new endpoint joins the group of its own zone. It reports whether there
// is such a plan. A zone that has no group of its own does not get one by and by:
// what it shares would grow for ever. A plan that divides nothing, as is made while a
// single zone has traffic, would never end.
func (p *Planner) carryOver() bool {
	if len(p.prior.Groups) == 0 || p.dividesNothing() {
		return false
	}
	n, groups := len(p.zones), len(p.prior.Groups)
	// One more group may be needed for each zone that is new.
	p.given = grow(p.given, (groups+n)*n)
	p.size = grow(p.size, n) // endpoints placed, by home
	for g := range p.prior.Groups {
		for _, m := range p.prior.Groups[g].Members {
			p.given[g*n+m.Zone] += m.Endpoints
			p.size[m.Zone] += m.Endpoints
		}
	}
	for z := range p.zones {
		arrived := p.zones[z].Endpoints - p.size[z]
		if arrived < 0 {
			return false // the previous plan is not one of this Service
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
		p.given[own*n+z] += arrived
	}
	p.plan.reset()
	for g := range groups + n {
		for home, count := range p.given[g*n : (g+1)*n] {
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

// dividesNothing reports whether the prior plan has all zones use all endpoints, though
// there are several that have traffic.
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

// ownGroup is the group that only the zone uses, or -1, and whether the zone uses
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

// settle exchanges home zones between groups that consume neither, which changes
// no figure, so that as many endpoints as possible stay in the group that the
// prior plan had them in.
func (p *Planner) settle() {
	if len(p.prior.Groups) == 0 {
		return
	}
	plan := p.plan.plan(p.names).Clone()
	n := len(p.zones)
	t := newTransport(n, len(plan.Groups))
	own := grow(p.given, n*len(plan.Groups))
	p.given = own
	for g := range plan.Groups {
		for _, m := range plan.Groups[g].Members {
			if plan.Groups[g].Consumes(m.Zone) {
				own[g*n+m.Zone] = m.Endpoints
				continue
			}
			t.supply[m.Zone] += m.Endpoints
			t.demand[g] += m.Endpoints
		}
		for home := range n {
			t.allowed[home*t.groups+g] = !plan.Groups[g].Consumes(home)
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
	t.solve()
	p.plan.reset()
	for g := range plan.Groups {
		for home := range n {
			p.plan.member(home, own[g*n+home]+t.flow[home*t.groups+g])
		}
		p.plan.consumers = append(p.plan.consumers, plan.Groups[g].Consumers...)
		p.plan.close()
	}
}

// sameConsumers reports whether two groups serve the same zones, whatever the
// weights: an endpoint that changes only its weight does not move.
func sameConsumers(a, b []Consumer) bool {
	return slices.EqualFunc(a, b, func(a, b Consumer) bool { return a.Zone == b.Zone })
}
