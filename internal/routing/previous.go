package routing

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/groups"
)

// assignedBefore is, by address, what zones the endpoints are used by as far as the
// last decision, the slices or the groups say. What an endpoint that the last
// decision does not know has come with is in its slice, and what could not be delivered
// nobody uses.
func assignedBefore(in Input, delivery allocate.Delivery, family corev1.IPFamily) map[string]allocate.ConsumerSet {
	var assigned map[string]allocate.ConsumerSet
	if delivery == allocate.DeliveryGroups {
		assigned = groups.Assigned(in.Groups, family)
	}
	if len(assigned) == 0 {
		assigned = assignedByHints(in.Slices, family)
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

// assignedByHints reads the plan back from hints, without the zones that endpoints
// only keep for a while. Of an address in several slices the first slice with hints
// counts.
func assignedByHints(eps []*discoveryv1.EndpointSlice, family corev1.IPFamily) map[string]allocate.ConsumerSet {
	list := ofFamily(eps, family)
	assigned := make(map[string]allocate.ConsumerSet, endpointsOf(list))
	sets := map[string]allocate.ConsumerSet{} // few, so that endpoints share them
	for _, slice := range list {
		held := heldZones(slice)
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if len(e.Addresses) == 0 || e.Hints == nil || len(e.Hints.ForZones) == 0 {
				continue
			}
			address := e.Addresses[0]
			if _, found := assigned[address]; found {
				continue
			}
			key := e.Hints.ForZones[0].Name
			if len(e.Hints.ForZones) > 1 {
				zones := slices.DeleteFunc(hintedZones(e), func(zone string) bool { return slices.Contains(held[address], zone) })
				if len(zones) == 0 {
					continue
				}
				key = strings.Join(zones, ",")
			}
			set, found := sets[key]
			if !found {
				set = allocate.NewConsumerSet(strings.Split(key, ",")...)
				sets[key] = set
			}
			assigned[address] = set
		}
	}
	return assigned
}

// endpointsOf is the number of endpoints of all slices.
func endpointsOf(eps []*discoveryv1.EndpointSlice) int {
	n := 0
	for _, slice := range eps {
		n += len(slice.Endpoints)
	}
	return n
}

// hintedZones are the zones of an endpoint's hints, in the order of names.
func hintedZones(e *discoveryv1.Endpoint) []string {
	if e.Hints == nil || len(e.Hints.ForZones) == 0 {
		return nil
	}
	zones := make([]string, len(e.Hints.ForZones))
	for i, zone := range e.Hints.ForZones {
		zones[i] = zone.Name
	}
	slices.Sort(zones)
	return zones
}

// ofFamily are the slices of an address family, in the order of names.
func ofFamily(eps []*discoveryv1.EndpointSlice, family corev1.IPFamily) []*discoveryv1.EndpointSlice {
	var list []*discoveryv1.EndpointSlice
	for _, slice := range eps {
		if slice.AddressType == discoveryv1.AddressType(family) {
			list = append(list, slice)
		}
	}
	slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// Essence is what the next decision and Stay need of this one, so that a caller that
// keeps it for many Services keeps little.
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

// Stay counts the endpoints of a slice that the decision gave hints: those that have
// them still, maybe beside others, and those that have lost them.
func (d Decision) Stay(slice *discoveryv1.EndpointSlice) (stayed, lost int) {
	f := d.family(familyOf(slice))
	if f == nil || !f.hints.wanted {
		return 0, 0
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 {
			continue
		}
		if _, known := f.Assigned[e.Addresses[0]]; !known {
			continue
		}
		want := f.hints.of(e)
		if want == nil {
			continue
		}
		if containsAll(hintedZones(e), want.ForZones) && (e.Hints != nil || len(want.ForNodes) == 0) {
			stayed++
		} else {
			lost++
		}
	}
	return stayed, lost
}

func containsAll(zones []string, wanted []discoveryv1.ForZone) bool {
	for _, zone := range wanted {
		if !slices.Contains(zones, zone.Name) {
			return false
		}
	}
	return true
}
