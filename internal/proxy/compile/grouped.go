package compile

import (
	"net/netip"
	"slices"
	"strings"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// fullWeight is the weight of an endpoint that only one zone uses.
const fullWeight = ruleset.MostWeight

// grouped is the directory of a Service with groups.
type grouped struct {
	endpointIndex
	groups []*v1alpha1.EndpointGroup
	uses   []endpoint.Use
	// weights has the weight of the endpoints of each group.
	weights []int
	// choice chooses among the endpoints of the groups for the node.
	choice endpoint.Choice
	// anyReady means that an endpoint is ready somewhere.
	anyReady bool
	// view is the node's zone if a group is not for all zones, otherwise empty.
	view string
	// weighted means that weights differ.
	weighted bool
}

// newGrouped reads the groups of a family. It returns nil without any.
func newGrouped(all []*v1alpha1.EndpointGroup, family ruleset.Family, node *Node, notes *[]string) *grouped {
	d := &grouped{}
	n := 0
	for _, g := range all {
		if string(g.Spec.AddressType) == family.Name() {
			d.groups = append(d.groups, g)
			n += len(g.Spec.Endpoints)
		}
	}
	if len(d.groups) == 0 {
		return nil
	}
	d.endpointIndex = newEndpointIndex(family, node, len(d.groups), n)
	d.uses = make([]endpoint.Use, len(d.groups))
	d.weights = make([]int, len(d.groups))
	d.choice = endpoint.NewChoice(endpoint.Client{Node: node.Name, Zone: node.Zone, Labels: node.Labels})
	for i, g := range d.groups {
		d.uses[i] = d.choice.Read(g)
		d.anyReady = d.anyReady || d.uses[i].Visible && g.Spec.AnyReady
		if d.uses[i].Used() {
			d.weights[i] = weightOf(d.uses[i])
			d.weighted = d.weighted || d.weights[i] != fullWeight
		}
		for label := range g.Labels {
			if strings.HasPrefix(label, v1alpha1.LabelNotForPrefix) {
				d.view = node.Zone
			}
		}
		for j := range g.Spec.Ports {
			p := &g.Spec.Ports[j]
			d.addPort(i, p.Name, p.Protocol, p.Port)
		}
		d.readEndpoints(i, g, notes)
	}
	d.sort()
	return d
}

func (d *grouped) readEndpoints(i int, g *v1alpha1.EndpointGroup, notes *[]string) {
	var ignored ignoredEndpoints
	for j := range g.Spec.Endpoints {
		e := &g.Spec.Endpoints[j]
		state := uint64(endpoint.StateInGroup(e)) << stateShift
		if e.Node != "" && e.Node == d.node.Name {
			state |= onNode
		}
		if e.Zone != d.node.Zone {
			state |= otherZone
		}
		state |= uint64(d.choice.Rank(d.uses[i], e)) << rankShift
		d.add(e.Address, state, i, j, &ignored)
	}
	ignored.note(notes, "EndpointGroup", g.Name, d.family)
}

// weightOf returns the weight of a group for the node's zone, fullWeight by default.
func weightOf(use endpoint.Use) int {
	if use.Weight <= 0 || use.Weight > fullWeight {
		return fullWeight
	}
	return int(use.Weight)
}

func (d *grouped) at(r endpointEntry) *v1alpha1.GroupEndpoint {
	return &d.groups[r.object()].Spec.Endpoints[r.index()]
}

func (d *grouped) endpoints() Endpoints {
	return d.places(func(r endpointEntry) string { return d.at(r).Zone })
}

// supply returns the nearest endpoints that the node's zone may use for traffic that may go anywhere, and all endpoints
// on the node for traffic that stays there.
func (d *grouped) supply(port portKey, n need) supply {
	d.choosePort(port)
	var seen census
	d.visit(func(same []endpointEntry, _ uint16) { seen.count(same[0]) })
	got := seen.supply(need{local: n.local}, 0)
	got.exists = got.exists || d.anyReady
	if n.cluster {
		// Terminating endpoints are used if the zone may use no ready one. Otherwise connections would be refused until the
		// controller gives the zone a ready one, or forever with hard tiers.
		if seen.ready > 0 {
			d.cluster(&got, false, seen.ready)
		}
		if len(got.cluster) == 0 && seen.leaving > 0 {
			d.cluster(&got, true, seen.leaving)
		}
		got.beyond = d.choice.Hard() && got.exists && len(got.cluster) == 0
	}
	if n.local {
		d.visit(func(same []endpointEntry, number uint16) {
			if seen.local(same[0]) {
				got.local = append(got.local, same[0].target(number))
			}
		})
	}
	d.known(&got, d.view)
	got.known.Drained = d.drained()
	return got
}

// drained returns the endpoints with the chosen port whose connections end.
func (d *grouped) drained() (targets []netip.AddrPort) {
	for i, g := range d.groups {
		for _, text := range g.Spec.Drained {
			if address, ok := parseAddress(text); ok && d.ports[i] != 0 {
				targets = append(targets, netip.AddrPortFrom(address, d.ports[i]))
			}
		}
	}
	return targets
}

// cluster finds the endpoints for traffic that may go anywhere. most is an upper bound.
func (d *grouped) cluster(got *supply, lastResort bool, most int) {
	if d.choice.Begin() {
		most = 0
		d.visit(func(same []endpointEntry, _ uint16) {
			if same[0].taking(lastResort) {
				most += d.approach(same)
			}
		})
	}
	if most > 0 {
		got.cluster = make([]netip.AddrPort, 0, most)
	}
	got.weights = nil
	if d.weighted {
		got.weights = make([]uint32, 0, most)
	}
	d.visit(func(same []endpointEntry, number uint16) {
		if !same[0].taking(lastResort) {
			return
		}
		weight := d.weight(same)
		if weight == 0 {
			return
		}
		got.cluster = append(got.cluster, same[0].target(number))
		if d.weighted {
			got.weights = append(got.weights, uint32(weight))
		}
	})
	if n := len(got.weights); n > 0 && slices.Max(got.weights) == slices.Min(got.weights) {
		got.weights = nil
	}
}

// approach considers the rank of an endpoint. It returns 1 if the endpoint may be among the nearest.
func (d *grouped) approach(same []endpointEntry) int {
	more := 0
	for _, r := range same {
		if d.isSameEndpoint(r, same[0]) && d.choice.Consider(d.uses[r.object()], r.rank()) {
			more = 1
		}
	}
	return more
}

// weight returns the weight of an endpoint: the highest of its groups, or zero if the node does not use it.
func (d *grouped) weight(same []endpointEntry) int {
	weight := 0
	for _, r := range same {
		if i := r.object(); d.weights[i] > weight && d.choice.Takes(d.uses[i], r.rank()) && d.isSameEndpoint(r, same[0]) {
			weight = d.weights[i]
		}
	}
	return weight
}

// isSameEndpoint reports whether two entries of one address are about the same endpoint.
func (d *grouped) isSameEndpoint(a, b endpointEntry) bool {
	return a == b || endpoint.Same(d.at(a), d.at(b))
}
