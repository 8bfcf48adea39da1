package allocate

import (
	"slices"

	"vicinity.dev/vicinity/internal/topology"
)

// nearest lets each zone use its nearest tier that has an endpoint, at any load. Nodes decide tiers
// finer than a zone: the zone gets all endpoints that its nodes may choose from.
func (p *Planner) nearest(outcome Outcome, tiers topology.Tiers) (Plan, Outcome) {
	p.plan.reset()
	reach := p.reach(tiers)
	n := len(p.zones)
	for home := range p.zones {
		if p.zones[home].Endpoints == 0 {
			continue
		}
		p.plan.member(home, p.zones[home].Endpoints)
		for zone := range p.zones {
			if reach[zone*n+home] {
				p.plan.consumer(zone, 1)
			}
		}
		p.plan.close()
	}
	p.plan.merge()
	outcome.State = Allocated
	return p.finish(outcome, RuleTiers)
}

// fallBack returns a plan without the bound: all endpoints for all zones, or as many of them as
// hard tiers allow.
func (p *Planner) fallBack(outcome Outcome, rule Rule, tiers topology.Tiers) (Plan, Outcome) {
	if !tiers.Hard() {
		return p.balanced(outcome, rule)
	}
	state := outcome.State
	// Use the widest tier, or a narrower one where it has no endpoint.
	widest := slices.Clone(tiers)
	slices.Reverse(widest)
	plan, outcome := p.nearest(outcome, widest)
	outcome.State, outcome.Rule = state, rule
	return plan, outcome
}

// choosesInZone reports whether a tier is finer than a zone, so that a cluster of one zone has a
// choice too.
func choosesInZone(tiers topology.Tiers) bool {
	return slices.ContainsFunc(tiers, func(key string) bool {
		return key != topology.Zone && key != topology.Region && key != topology.Anywhere
	})
}

// reach returns the home zones (columns) whose endpoints each zone (row) may use.
func (p *Planner) reach(tiers topology.Tiers) []bool {
	n := len(p.zones)
	reach := make([]bool, n*n)
	for zone := range p.zones {
		row := reach[zone*n : (zone+1)*n]
		for _, key := range tiers {
			if p.reachTier(row, zone, key) {
				break
			}
		}
	}
	return reach
}

// reachTier adds the endpoints that the zone's nodes can reach in one tier. It reports whether that
// tier is sure to serve every node of the zone, so that no wider tier counts.
func (p *Planner) reachTier(row []bool, zone int, key string) (served bool) {
	for home := range p.zones {
		if p.zones[home].Endpoints > 0 && p.inDomain(key, zone, home) {
			row[home] = true
			served = true
		}
	}
	return served && slices.Contains([]string{topology.Zone, topology.Region, topology.Anywhere}, key)
}

// inDomain reports whether nodes of zone may share a domain of key with nodes of home. A host is in
// one zone. Domains of any other key may span zones.
func (p *Planner) inDomain(key string, zone, home int) bool {
	switch key {
	case topology.Hostname, topology.Zone:
		return zone == home && p.zones[zone].Name != ""
	case topology.Region:
		return p.zones[zone].Region == p.zones[home].Region && p.zones[zone].Region != ""
	}
	return true
}
