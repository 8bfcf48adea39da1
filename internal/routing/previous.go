package routing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// assignedBefore returns the zones that use each endpoint, by address, according to the last decision, or else the groups
// or slices. Endpoints that the last decision does not know may have hints in their slice. A decision that could not
// be delivered does not count.
func assignedBefore(in Input, delivery allocate.Delivery, family corev1.IPFamily) map[string]allocate.ConsumerSet {
	var assigned map[string]allocate.ConsumerSet
	if delivery == allocate.DeliveryGroups {
		assigned = groups.Assigned(in.Groups, family)
	}
	if len(assigned) == 0 {
		assigned = hints.Assigned(in.Slices, family)
	}
	if len(assigned) == 0 && delivery != allocate.DeliveryGroups {
		assigned = groups.Assigned(in.Groups, family)
	}
	last := in.Last.family(family)
	if last == nil || last.Outcome.State != allocate.Allocated || in.Last.Undelivered {
		return assigned
	}
	for address, set := range last.Assigned {
		if !set.IsZero() {
			assigned[address] = set
		}
	}
	return assigned
}

// assignToAll assigns the endpoints to all zones of the region. A plan by which all zones use all endpoints has no hints,
// so a restarted controller reads it from their absence. Without a previous plan it could choose an equally good one
// and move endpoints for nothing.
func assignToAll(assigned map[string]allocate.ConsumerSet, endpoints []intent.Endpoint, region allocate.Region) {
	zones := make([]string, len(region.Zones))
	for i := range region.Zones {
		zones[i] = region.Zones[i].Name
	}
	all := allocate.NewConsumerSet(zones...)
	for i := range endpoints {
		assigned[endpoints[i].Address] = all
	}
}

// Essence returns the parts that the next decision and Stay need, for callers that keep decisions of many Services.
func (d Decision) Essence() *Decision {
	kept := &Decision{Delivery: d.Delivery, Undelivered: d.Undelivered, Families: make([]FamilyDecision, len(d.Families))}
	for i := range d.Families {
		f := &d.Families[i]
		kept.Families[i] = FamilyDecision{Family: f.Family, Outcome: f.Outcome, Assigned: f.Assigned, hints: f.hints}
		if f.Nodes != nil {
			kept.Families[i].Nodes = &allocate.NodePlan{Skips: f.Nodes.Skips}
		}
	}
	if d.Meanwhile != nil {
		kept.Meanwhile = d.Meanwhile.Essence()
	}
	return kept
}

// Stay counts the endpoints of a slice that still have the hints of the decision, perhaps with others, and the endpoints
// that lost them.
func (d Decision) Stay(slice *discoveryv1.EndpointSlice) (stayed, lost int) {
	f := d.family(corev1.IPFamily(slice.AddressType))
	if f == nil {
		return 0, 0
	}
	return f.hints.Stay(slice, func(address string) bool {
		_, known := f.Assigned[address]
		return known
	})
}

// HasRule reports whether a rule decided any plan, of groups or of hints.
func (d *Decision) HasRule(rule allocate.Rule) bool {
	return d != nil && (d.Meanwhile.HasRule(rule) || slices.ContainsFunc(d.Families, func(f FamilyDecision) bool { return f.Outcome.Rule == rule }))
}

// improves reports whether the new plans are better than the kept ones as they are delivered: nodes that use their own
// endpoints change the figures of a plan, and hints cannot express every plan.
func (d *Decision) improves(kept *Decision) bool {
	if d.Meanwhile.HasRule(allocate.RuleRenewed) && !d.Meanwhile.improves(kept.Meanwhile) {
		return false
	}
	for i := range d.Families {
		f := &d.Families[i]
		if f.Outcome.Rule != allocate.RuleRenewed {
			continue
		}
		before := kept.family(f.Family)
		if before.hints.Wanted && !f.hints.Wanted || !allocate.Renews(f.Outcome.Figures, before.Outcome.Figures) {
			return false
		}
	}
	return true
}

// noteKeptFigures notes the figures of the kept plans in the new ones.
func (d *Decision) noteKeptFigures(kept *Decision) {
	if d.Meanwhile.HasRule(allocate.RuleRenewed) {
		d.Meanwhile.noteKeptFigures(kept.Meanwhile)
	}
	for i := range d.Families {
		if f := &d.Families[i]; f.Outcome.Rule == allocate.RuleRenewed {
			f.Outcome.Before = kept.family(f.Family).Outcome.Figures
		}
	}
}
