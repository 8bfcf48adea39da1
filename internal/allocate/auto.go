package allocate

import "math"

// autoScratch is the scratch memory of auto.
type autoScratch struct {
	minimum []int // endpoints that a zone needs
	size    []int // endpoints by group; that of zone z is group z
	given   []int // by group and home zone: endpoints received, less the group's own that were given away
}

// auto is Kubernetes' own heuristic: each zone should have the endpoints that its share of CPU
// expects, and at least the minimum that keeps it from being overloaded. autoMinimums must have set
// the minimums.
//
// auto differs from upstream in three ways. Ties go by name, not by the order of a map. A zone that
// upstream leaves below its minimum gets the missing endpoints. Endpoints of zones without nodes
// are all given away, the last ones to the zone with the most loaded endpoints. Upstream hints
// those to their own zone, which has no clients, and rejects such hints at the next sync.
func (p *Planner) auto() verdict {
	a, n := &p.autoScratch, len(p.zones)
	minimum := a.minimum
	a.size = grow(a.size, n)
	a.given = grow(a.given, n*n)
	for z := range p.zones {
		a.size[z] = p.zones[z].Endpoints
	}
	desired := func(z int) float64 { return max(p.expected[z], float64(minimum[z])) }
	for {
		giver, receiver := -1, -1
		var surplus, short float64
		for z := range a.size {
			if over := float64(a.size[z]) - desired(z); over > surplus+tolerance {
				giver, surplus = z, over
			} else if -over > short+tolerance {
				receiver, short = z, -over
			}
		}
		if giver < 0 || receiver < 0 || surplus < 1 && short < 1 || surplus < 0.5 || short < 0.5 {
			break
		}
		a.move(giver, giver, receiver)
	}
	for receiver := range a.size {
		for a.size[receiver] < minimum[receiver] {
			giver := -1
			for z := range a.size {
				if a.size[z] > minimum[z] && (giver < 0 || float64(a.size[z])-desired(z) > float64(a.size[giver])-desired(giver)+tolerance) {
					giver = z
				}
			}
			a.passOn(giver, receiver)
		}
	}
	for giver := range a.size {
		for p.shares[giver] == 0 && a.size[giver] > 0 {
			a.passOn(giver, p.mostLoaded())
		}
	}
	for z := range p.zones {
		for home, count := range a.given[z*n : (z+1)*n] {
			if home == z {
				count += p.zones[home].Endpoints
			}
			p.plan.member(home, count)
		}
		p.plan.consumer(z, 1)
		p.plan.close()
	}
	return verdict{rule: RulePlanned}
}

// mostLoaded returns the zone with the most loaded endpoints, the first by name among equals.
func (p *Planner) mostLoaded() int {
	most := -1
	load := func(z int) float64 { return p.expected[z] / float64(p.autoScratch.size[z]) }
	for z, share := range p.shares {
		if share > 0 && (most < 0 || load(z) > load(most)+tolerance) {
			most = z
		}
	}
	return most
}

// autoMinimums applies the safeguards of Auto, in upstream's order. If none refuses, it sets the
// minimum number of endpoints for each zone.
func (p *Planner) autoMinimums(threshold float64) (refused verdict) {
	withNodes := 0
	for _, share := range p.shares {
		if share > 0 {
			withNodes++
		}
	}
	switch {
	case p.region.NodesWithoutZone > 0:
		return verdict{rule: RuleNodeNoZone}
	case p.region.NodesWithoutCapacity > 0:
		return verdict{rule: RuleNodeNoCapacity}
	case withNodes < 2:
		return verdict{rule: RuleOneZone}
	case p.endpoints < withNodes:
		return verdict{rule: RuleFewEndpoints}
	}
	a := &p.autoScratch
	a.minimum = grow(a.minimum, len(p.zones))
	sum := 0
	for z, share := range p.shares {
		// This is upstream's formula to the letter, so that rounding agrees.
		a.minimum[z] = int(math.Ceil(share * float64(p.endpoints) * (1 / (1 + threshold))))
		sum += a.minimum[z]
	}
	if sum > p.endpoints {
		return verdict{rule: RuleMinimums, minimum: sum}
	}
	if len(p.zones) > 0 && p.zones[0].Name == "" && p.zones[0].Endpoints > 0 {
		return verdict{rule: RuleEndpointNoZone}
	}
	return verdict{}
}

// passOn moves one endpoint between groups: one that the giver received from others, if it has any,
// else one of its own.
func (a *autoScratch) passOn(giver, receiver int) {
	n := len(a.size)
	home := giver
	for z, count := range a.given[giver*n : (giver+1)*n] {
		if z != giver && count > 0 {
			home = z
			break
		}
	}
	a.move(home, giver, receiver)
}

// move moves one endpoint of a home zone from the giver's to the receiver's group.
func (a *autoScratch) move(home, giver, receiver int) {
	n := len(a.size)
	a.size[giver]--
	a.size[receiver]++
	a.given[receiver*n+home]++
	a.given[giver*n+home]--
}
