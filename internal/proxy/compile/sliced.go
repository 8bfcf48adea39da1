package compile

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/kubeproxy"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// sliced is the endpoints of a Service as its slices have them, read as kube-proxy
// does.
type sliced struct {
	roll
	node     *Node
	slices   []*discoveryv1.EndpointSlice
	hasPorts []bool
}

// slicesOf are the slices of a Service that count, in the order of names.
func slicesOf(in Input) []*discoveryv1.EndpointSlice {
	list := make([]*discoveryv1.EndpointSlice, 0, len(in.Slices))
	for _, s := range in.Slices {
		if s == nil || s.Namespace != in.Service.Namespace || s.Labels[discoveryv1.LabelServiceName] != in.Service.Name {
			continue
		}
		if _, headless := s.Labels[corev1.IsHeadlessService]; !headless {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *discoveryv1.EndpointSlice) int { return strings.Compare(a.Name, b.Name) })
	return list
}

func newSliced(all []*discoveryv1.EndpointSlice, family ruleset.Family, node *Node, notes *[]string) *sliced {
	d := &sliced{roll: roll{family: family}, node: node}
	n := 0
	for _, s := range all {
		if string(s.AddressType) == familyName(family) {
			d.slices = append(d.slices, s)
			n += len(s.Endpoints)
		}
	}
	d.rows = make([]row, 0, n)
	d.ports = make([]uint16, len(d.slices))
	d.hasPorts = make([]bool, len(d.slices))
	for i, s := range d.slices {
		d.readPorts(i, s, notes)
		var strange strangeEndpoints
		for j := range s.Endpoints {
			// An endpoint's further addresses are alternatives that nobody uses.
			text := ""
			if e := &s.Endpoints[j]; len(e.Addresses) > 0 {
				text = e.Addresses[0]
			}
			d.add(text, d.state(&s.Endpoints[j]), i, j, &strange)
		}
		strange.note(notes, "EndpointSlice", s.Name, family)
	}
	d.close()
	return d
}

// readPorts looks for ports that endpoints of the slice have.
func (d *sliced) readPorts(i int, s *discoveryv1.EndpointSlice, notes *[]string) {
	var strange ignored
	for j := range s.Ports {
		key, _, ok := slicePort(&s.Ports[j])
		if !ok {
			strange.add(key.name)
			continue
		}
		d.hasPorts[i] = true
	}
	strange.note(notes, "EndpointSlice", s.Name, "ports", "a name, and a protocol and number that a Service can have")
}

// slicePort reads a port of a slice.
func slicePort(p *discoveryv1.EndpointPort) (key portKey, number uint16, ok bool) {
	if p.Name == nil || p.Port == nil {
		return portKey{}, 0, false
	}
	key = portKey{*p.Name, ruleset.TCP}
	if p.Protocol != nil {
		if key.protocol, ok = protocolOf(*p.Protocol); !ok {
			return key, 0, false
		}
	}
	number, ok = portOf(*p.Port)
	return key, number, ok
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

// hintsOf reads whom an endpoint is for.
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

func (d *sliced) at(r row) *discoveryv1.Endpoint {
	return &d.slices[r.object()].Endpoints[r.index()]
}

func (d *sliced) endpoints() Endpoints {
	return d.places(func(r row) string {
		if zone := d.at(r).Zone; zone != nil {
			return *zone
		}
		return ""
	})
}

func (d *sliced) localReady() int { return d.roll.localReady(d.hasPorts) }

// supply takes for traffic that may go anywhere what hints allow among all that are
// ready, and for traffic that stays here all that are here. Each of the two falls back
// to endpoints that go but serve.
func (d *sliced) supply(port portKey, n need) supply {
	for i, s := range d.slices {
		d.ports[i] = 0
		for j := range s.Ports {
			if key, number, ok := slicePort(&s.Ports[j]); ok && key == port {
				d.ports[i] = number
				break
			}
		}
	}
	var seen census
	var ready kubeproxy.Ready
	d.visit(func(run []row, _ uint16) {
		seen.see(run[0])
		if run[0].ready() {
			count(&ready, run[0])
		}
	})
	hint, allowed := bestHint(ready)
	if ready.UsesTerminating() {
		allowed = seen.leaving
	}
	got := seen.supply(n, allowed)
	d.visit(func(run []row, number uint16) {
		r := run[0]
		if n.cluster && r.taking(ready.UsesTerminating()) && r.order&hint == hint {
			got.cluster = append(got.cluster, d.target(r, number))
		}
		if n.local && seen.local(r) {
			got.local = append(got.local, d.target(r, number))
		}
	})
	d.known(&got, "")
	return got
}

// count counts an endpoint that is ready by the hints that it has.
func count(ready *kubeproxy.Ready, r row) {
	ready.Endpoints++
	ready.WithNodeHints += int(r.order & nodeHints / nodeHints)
	ready.WithZoneHints += int(r.order & zoneHints / zoneHints)
	ready.ForNode += int(r.order & forNode / forNode)
	ready.ForZone += int(r.order & forZone / forZone)
}

// bestHint is the hint that an endpoint must have to be used, zero if none, and the number
// of endpoints that have it.
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
