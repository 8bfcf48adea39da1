package allocate

import (
	"cmp"
	"slices"
)

// byRegion divides each region on its own, where the region is a tier. If regions are not hard and
// one cannot serve itself within the bound, it divides all zones as one. It measures the gain of
// new plans over all traffic.
func (p *Planner) byRegion(bound *Bound, hard bool) verdict {
	p.strays = regionKey{}
	if !hard {
		p.strays = p.largestRegion()
	}
	kept, served := p.regions(bound, hard, false)
	if !served {
		kept, served = p.regions(bound, hard, true)
	}
	switch {
	case !served:
		return p.divide(bound)
	case !p.renew || kept.rule != RuleKept:
		return kept
	}
	if renewed, served := p.regions(bound, hard, true); served && renewed.planned() && Renews(renewed.figures, kept.figures) {
		renewed.rule, renewed.before = RuleRenewed, kept.figures
		return renewed
	}
	kept, _ = p.regions(bound, hard, false)
	return kept
}

// regions divides each region's endpoints among its own zones, by a new plan if it is eager. It reports whether each
// region serves itself; hard regions must.
func (p *Planner) regions(bound *Bound, hard, eager bool) (whole verdict, served bool) {
	var regions []regionKey
	for i := range p.zones {
		if key := p.keyOf(p.zones[i]); !slices.Contains(regions, key) {
			regions = append(regions, key)
		}
	}
	slices.SortFunc(regions, regionKey.compare)
	p.plan.reset()
	p.plan.atHome = bound.Algorithm == Flow
	for _, key := range regions {
		decided := p.oneRegion(bound, key, eager)
		if decided.rule == "" {
			continue
		}
		switch {
		case decided.rule == RulePlanned, whole.rule == "", !whole.planned() && decided.planned():
			whole = decided
		}
		if !decided.planned() && !hard {
			return verdict{}, false
		}
	}
	if !whole.planned() {
		return whole, true
	}
	whole.figures = p.measured()
	return whole, hard || bound.allows(whole.figures)
}

// regionKey identifies a region. A zone without a known region is one of its own.
type regionKey struct{ region, zone string }

// keyOf returns the region of a zone. Endpoints without a zone count to the largest region, unless
// regions are hard: a region of their own would leave them idle.
func (p *Planner) keyOf(z Zone) regionKey {
	switch {
	case z.Region != "":
		return regionKey{region: z.Region}
	case z.Capacity == 0 && p.strays != regionKey{}:
		return p.strays
	}
	return regionKey{zone: z.Name}
}

// largestRegion returns the region that sends the most traffic.
func (p *Planner) largestRegion() regionKey {
	capacity := map[regionKey]float64{}
	var largest regionKey
	for _, z := range p.zones {
		if z.Capacity == 0 {
			continue
		}
		key := p.keyOf(z)
		capacity[key] += z.Capacity
		if more := capacity[key] - capacity[largest]; more > 0 || more == 0 && key.compare(largest) < 0 {
			largest = key
		}
	}
	return largest
}

func (k regionKey) compare(other regionKey) int {
	return cmp.Or(cmp.Compare(k.region, other.region), cmp.Compare(k.zone, other.zone))
}

// oneRegion adds the groups of one region to the plan. The verdict has no rule if
// the region has neither endpoints nor traffic.
func (p *Planner) oneRegion(bound *Bound, key regionKey, eager bool) verdict {
	if p.child == nil {
		p.child = &Planner{}
	}
	child := p.child
	child.Eager, child.Forgetful = p.Eager || eager, p.Forgetful
	part := Region{NodesWithoutZone: p.region.NodesWithoutZone, NodesWithoutCapacity: p.region.NodesWithoutCapacity}
	for i := range p.zones {
		if p.keyOf(p.zones[i]) == key {
			part.Zones = append(part.Zones, p.zones[i])
		}
	}
	child.take(part)
	child.remember(p.prior)
	child.plan.reset()
	var decided verdict
	switch {
	case child.active == 0:
		return verdict{}
	case child.endpoints == 0:
		return verdict{rule: RuleNoEndpoints}
	case child.withoutTraffic() || child.active == 1:
		decided.rule = RulePlanned // there is nothing to choose
		if len(p.prior.Groups) > 0 {
			decided.rule = RuleKept
		}
	default:
		decided = child.divide(bound)
	}
	if !decided.planned() || len(child.plan.ends) == 0 {
		child.plan.reset()
		child.addAll()
	}
	plan := child.plan.plan(child.names)
	for i := range plan.Groups {
		for _, m := range plan.Groups[i].Members {
			p.plan.member(p.index(plan.Zones[m.Zone]), m.Endpoints)
		}
		for _, c := range plan.Groups[i].Consumers {
			p.plan.consumer(p.index(plan.Zones[c.Zone]), c.Weight)
		}
		p.plan.close()
	}
	return decided
}

func (p *Planner) index(zone string) int {
	i, _ := slices.BinarySearch(p.names, zone)
	return i
}
