package allocate

import "math"

// optScratch is the scratch memory of localOpt.
type optScratch struct {
	lacks []int // whole endpoints still lacking, by zone
	spare []int // endpoints still to give away, by zone
}

// localOpt gives each zone the whole part of its expected endpoints, its own endpoints first. All
// remaining endpoints are one group that every zone with traffic uses with the same weight.
func (p *Planner) localOpt() verdict {
	o, n, users := &p.optScratch, len(p.zones), 0
	o.lacks, o.spare = grow(o.lacks, n), grow(o.spare, n)
	for z := range p.zones {
		if p.shares[z] > 0 {
			users++
		}
		floor := p.floor(z)
		o.lacks[z] = max(0, floor-p.zones[z].Endpoints)
		o.spare[z] = max(0, p.zones[z].Endpoints-floor)
	}
	for z := range p.zones {
		for home := range p.zones {
			switch {
			case home == z:
				p.plan.member(z, min(p.zones[z].Endpoints, p.floor(z)))
			case o.lacks[z] > 0:
				amount := min(o.lacks[z], o.spare[home])
				o.lacks[z] -= amount
				o.spare[home] -= amount
				p.plan.member(home, amount)
			}
		}
		p.plan.consumer(z, 1)
		p.plan.close()
	}
	for z := range p.zones {
		p.plan.member(z, o.spare[z])
		if p.shares[z] > 0 {
			p.plan.consumer(z, 1/float64(users))
		}
	}
	p.plan.close()
	return verdict{rule: RulePlanned}
}

// floor returns the whole part of the zone's expected endpoints.
func (p *Planner) floor(z int) int {
	return int(math.Floor(p.expected[z] + tolerance))
}
