package allocate

import "math"

// auto is Kubernetes' own heuristic: each zone should have the endpoints that its
// share of CPU expects, and at least the minimum that keeps it from being
// overloaded. It differs from upstream in three things. Where upstream follows the
// order of a map, ties here go by name. A zone that upstream leaves below its minimum
// gets what it lacks. And all endpoints of zones without nodes are given away, at last
// to the zone whose endpoints bear the most: upstream hints them to their own zone,
// where nobody uses them, and takes its own such hints for wrong at the next sync.
func (p *Planner) auto(threshold float64) verdict {
	minimum, refused := p.autoMinimums(threshold)
	if refused.rule != "" {
		return refused
	}
	n := len(p.zones)
	p.size = grow(p.size, n)
	p.given = grow(p.given, n*n)
	for z := range p.zones {
		p.size[z] = p.zones[z].Endpoints
	}
	desired := func(z int) float64 { return max(p.expected[z], float64(minimum[z])) }
	for {
		giver, receiver := -1, -1
		var surplus, short float64
		for z := range p.size {
			if over := float64(p.size[z]) - desired(z); over > surplus+tolerance {
				giver, surplus = z, over
			} else if -over > short+tolerance {
				receiver, short = z, -over
			}
		}
		if giver < 0 || receiver < 0 || surplus < 1 && short < 1 || surplus < 0.5 || short < 0.5 {
			break
		}
		p.give(giver, receiver)
	}
	for receiver := range p.size {
		for p.size[receiver] < minimum[receiver] {
			giver := -1
			for z := range p.size {
				if p.size[z] > minimum[z] && (giver < 0 || float64(p.size[z])-desired(z) > float64(p.size[giver])-desired(giver)+tolerance) {
					giver = z
				}
			}
			p.passOn(giver, receiver)
		}
	}
	for giver := range p.size {
		for p.shares[giver] == 0 && p.size[giver] > 0 {
			p.passOn(giver, p.mostLoaded())
		}
	}
	for z := range p.zones {
		p.members(z)
		p.plan.consumer(z, 1)
		p.plan.close()
	}
	return verdict{rule: RulePlanned}
}

// mostLoaded is the zone whose endpoints bear the most, the first by name of equals.
func (p *Planner) mostLoaded() int {
	most := -1
	load := func(z int) float64 { return p.expected[z] / float64(p.size[z]) }
	for z, share := range p.shares {
		if share > 0 && (most < 0 || load(z) > load(most)+tolerance) {
			most = z
		}
	}
	return most
}

// autoMinimums applies the safeguards of Auto, in upstream's order. If none
// refuses it returns the least number of endpoints for each zone.
func (p *Planner) autoMinimums(threshold float64) (minimum []int, refused verdict) {
	if p.region.NodesWithoutZone > 0 {
		return nil, verdict{rule: RuleNodeNoZone}
	}
	if p.region.NodesWithoutCapacity > 0 {
		return nil, verdict{rule: RuleNodeNoCapacity}
	}
	withNodes := 0
	for _, share := range p.shares {
		if share > 0 {
			withNodes++
		}
	}
	switch {
	case withNodes < 2:
		return nil, verdict{rule: RuleOneZone}
	case p.endpoints < withNodes:
		return nil, verdict{rule: RuleFewEndpoints}
	}
	p.minimum = grow(p.minimum, len(p.zones))
	sum := 0
	for z, share := range p.shares {
		// Upstream's formula to the letter, so that rounding agrees.
		p.minimum[z] = int(math.Ceil(share * float64(p.endpoints) * (1 / (1 + threshold))))
		sum += p.minimum[z]
	}
	if sum > p.endpoints {
		return nil, verdict{rule: RuleMinimums, minimum: sum}
	}
	if len(p.zones) > 0 && p.zones[0].Name == "" && p.zones[0].Endpoints > 0 {
		return nil, verdict{rule: RuleEndpointNoZone}
	}
	return p.minimum, verdict{}
}

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
