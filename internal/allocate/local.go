package allocate

import "math"

// local lets each zone start with its own endpoints. While a zone is at or above
// the threshold the zone with the most to spare gives it one; then zones with a
// whole endpoint to spare give to zones that are short of one.
func (p *Planner) local(threshold float64) verdict {
	n := len(p.zones)
	p.size = grow(p.size, n)
	p.given = grow(p.given, n*n)
	size, expected := p.size, p.expected
	for z := range p.zones {
		size[z] = p.zones[z].Endpoints
	}
	limit := 1 + threshold
	for {
		receiver, giver := -1, -1
		for z := range size {
			if overloaded(expected[z], size[z], limit) && (receiver < 0 || p.lack(z) > p.lack(receiver)+tolerance) {
				receiver = z
			}
			if size[z] > 1 && !overloaded(expected[z], size[z]-1, limit) && (giver < 0 || p.lack(z) < p.lack(giver)-tolerance) {
				giver = z
			}
		}
		if receiver < 0 {
			break
		}
		if giver < 0 {
			return verdict{rule: RuleOverload, zone: p.zones[receiver].Name, overload: overload(expected[receiver], size[receiver])}
		}
		p.give(giver, receiver)
	}
	for {
		giver, receiver := p.extremes()
		if p.lack(receiver) < 1-tolerance || p.lack(giver) > -whole+tolerance || p.size[giver] == 1 && expected[giver] > 0 {
			break
		}
		p.passOn(giver, receiver)
	}
	for z := range p.zones {
		p.members(z)
		p.plan.consumer(z, 1)
		p.plan.close()
	}
	return verdict{rule: RulePlanned}
}

// whole is how many endpoints more than expected count as a whole one to spare. It
// is a little less than one: with that the figures of both tables of the published
// study come out.
const whole = 0.875

// give moves one endpoint from the giver's own to the receiver's group. The giver
// must not have received any.
func (p *Planner) give(giver, receiver int) {
	p.size[giver]--
	p.size[receiver]++
	p.given[receiver*len(p.zones)+giver]++
	p.given[giver*len(p.zones)+giver]--
}

// passOn moves one endpoint between groups: one that the giver got from others, if
// it has any, else one of its own.
func (p *Planner) passOn(giver, receiver int) {
	n := len(p.zones)
	home := giver
	for z, count := range p.given[giver*n : (giver+1)*n] {
		if z != giver && count > 0 {
			home = z
			break
		}
	}
	p.given[giver*n+home]--
	p.given[receiver*n+home]++
	p.size[giver]--
	p.size[receiver]++
}

// members adds the members of the group in row g of given, in which the group's
// own endpoints are counted from those of zone g.
func (p *Planner) members(g int) {
	n := len(p.zones)
	for home, count := range p.given[g*n : (g+1)*n] {
		if home == g {
			count += p.zones[home].Endpoints
		}
		p.plan.member(home, count)
	}
}

// overloaded reports whether a group is at or above the threshold; limit is the
// threshold plus one.
func overloaded(expected float64, size int, limit float64) bool {
	return expected > 0 && expected >= limit*float64(size)-tolerance
}

// overload is the load of the endpoints above the even share.
func overload(expected float64, size int) float64 {
	if size == 0 {
		return math.Inf(1)
	}
	return expected/float64(size) - 1
}
