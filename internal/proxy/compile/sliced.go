package compile

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/routing/kubeproxy"
)

// sliced is the directory of a Service with slices, which it reads like kube-proxy.
type sliced struct {
	endpointIndex
	slices []*discoveryv1.EndpointSlice
}

func newSliced(all []*discoveryv1.EndpointSlice, family ruleset.Family, node *Node, notes *[]string) *sliced {
	d := &sliced{}
	n := 0
	for _, s := range all {
		if string(s.AddressType) == family.Name() {
			d.slices = append(d.slices, s)
			n += len(s.Endpoints)
		}
	}
	d.endpointIndex = newEndpointIndex(family, node, len(d.slices), n)
	for i, s := range d.slices {
		d.readPorts(i, s.Ports)
		var ignored ignoredEndpoints
		for j := range s.Endpoints {
			// Further addresses of an endpoint are alternatives. kube-proxy ignores them too.
			text := ""
			if e := &s.Endpoints[j]; len(e.Addresses) > 0 {
				text = e.Addresses[0]
			}
			d.add(text, d.state(&s.Endpoints[j]), i, j, &ignored)
		}
		ignored.note(notes, "EndpointSlice", s.Name, family)
	}
	d.sort()
	return d
}

// readPorts reads the ports of a slice. Like kube-proxy it ignores ports without a name or number.
func (d *sliced) readPorts(i int, ports []discoveryv1.EndpointPort) {
	for j := range ports {
		p := &ports[j]
		if p.Name == nil || p.Port == nil {
			continue
		}
		protocol := corev1.ProtocolTCP
		if p.Protocol != nil {
			protocol = *p.Protocol
		}
		d.addPort(i, *p.Name, protocol, *p.Port)
	}
}

// state reads the conditions of an endpoint, whether it is on the node, and its hints.
func (d *sliced) state(e *discoveryv1.Endpoint) uint64 {
	state := uint64(endpoint.StateOf(e)) << stateShift
	if e.NodeName != nil && *e.NodeName != "" && *e.NodeName == d.node.Name {
		state |= onNode
	}
	if e.Hints != nil {
		state |= hintsOf(e.Hints, d.node)
	}
	return state
}

// hintsOf reads the hints of an endpoint.
func hintsOf(hints *discoveryv1.EndpointHints, node *Node) uint64 {
	var state uint64
	for i := range hints.ForNodes {
		state |= nodeHints
		if hints.ForNodes[i].Name == node.Name {
			state |= forNode
		}
	}
	for i := range hints.ForZones {
		state |= zoneHints
		if hints.ForZones[i].Name == node.Zone {
			state |= forZone
		}
	}
	return state
}

func (d *sliced) at(r endpointEntry) *discoveryv1.Endpoint {
	return &d.slices[r.object()].Endpoints[r.index()]
}

func (d *sliced) endpoints() Endpoints {
	return d.places(func(r endpointEntry) string {
		if zone := d.at(r).Zone; zone != nil {
			return *zone
		}
		return ""
	})
}

// supply returns the ready endpoints that hints allow, and the ready endpoints on the node for traffic that stays there. Both
// fall back to terminating endpoints that still serve.
func (d *sliced) supply(port portKey, n need) supply {
	d.choosePort(port)
	var seen census
	var ready kubeproxy.Ready
	d.visit(func(same []endpointEntry, _ uint16) {
		seen.count(same[0])
		if same[0].ready() {
			count(&ready, same[0])
		}
	})
	hint, allowed := bestHint(ready)
	if ready.UsesTerminating() {
		allowed = seen.leaving
	}
	got := seen.supply(n, allowed)
	d.visit(func(same []endpointEntry, number uint16) {
		r := same[0]
		if n.cluster && r.taking(ready.UsesTerminating()) && r.order&hint == hint {
			got.cluster = append(got.cluster, r.target(number))
		}
		if n.local && seen.local(r) {
			got.local = append(got.local, r.target(number))
		}
	})
	d.known(&got, "")
	return got
}

// count counts a ready endpoint by its hints.
func count(ready *kubeproxy.Ready, r endpointEntry) {
	ready.Endpoints++
	ready.WithNodeHints += int(r.order & nodeHints / nodeHints)
	ready.WithZoneHints += int(r.order & zoneHints / zoneHints)
	ready.ForNode += int(r.order & forNode / forNode)
	ready.ForZone += int(r.order & forZone / forZone)
}

// bestHint returns the hint that a used endpoint must have, zero for none, and the number of endpoints with it.
func bestHint(ready kubeproxy.Ready) (hint uint64, endpoints int) {
	switch ready.Mode() {
	case kubeproxy.SameNode:
		return forNode, ready.ForNode
	case kubeproxy.SameZone:
		return forZone, ready.ForZone
	case kubeproxy.All:
	}
	return 0, ready.Endpoints
}
