package allocate

import "math"

// localOpt lets each zone have the whole part of what it expects, its own endpoints
// first. All endpoints beyond that are one group that every zone with traffic uses
// with the same weight.
func (p *Planner) localOpt() verdict {
	n, users := len(p.zones), 0
	p.size = grow(p.size, n)   // whole endpoints still lacking
	p.given = grow(p.given, n) // endpoints still to give away
	for z := range p.zones {
		if p.shares[z] > 0 {
			users++
		}
		floor := p.floor(z)
		p.size[z] = max(0, floor-p.zones[z].Endpoints)
		p.given[z] = max(0, p.zones[z].Endpoints-floor)
	}
	for z := range p.zones {
		for home := range p.zones {
			switch {
			case home == z:
				p.plan.member(z, min(p.zones[z].Endpoints, p.floor(z)))
			case p.size[z] > 0:
				amount := min(p.size[z], p.given[home])
				p.size[z] -= amount
				p.given[home] -= amount
				p.plan.member(home, amount)
			}
		}
		p.plan.consumer(z, 1)
		p.plan.close()
	}
	for z := range p.zones {
		p.plan.member(z, p.given[z])
		if p.shares[z] > 0 {
			p.plan.consumer(z, 1/float64(users))
		}
	}
	p.plan.close()
	return verdict{rule: RulePlanned}
}

// floor is the whole part of what the zone expects.
func (p *Planner) floor(z int) int {
	return int(math.Floor(p.expected[z] + tolerance))
}
