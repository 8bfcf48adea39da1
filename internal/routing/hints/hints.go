// Package hints decides which hints the EndpointSlices of a Service should have, so that stock proxies follow a plan,
// and the next step towards them. It reads objects and returns values; it writes nothing and knows no clock. The plan,
// and the nodes that prefer endpoints of their own domain, are its input.
package hints

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Plan describes the hints of an address family. The zero value is no hints.
type Plan struct {
	// Wanted says that every endpoint has hints. Otherwise none has.
	Wanted bool
	// own gives each endpoint its own zone, whatever the plan says.
	own bool
	// zones has the zone hints of ready endpoints, by address, and nodes the names of their hinted nodes. Each is nil
	// if no endpoint gets such hints. Endpoints share the hints, which are never changed.
	zones map[string]*discoveryv1.EndpointHints
	nodes map[string][]string
	// skipped are the nodes that do not prefer endpoints of their own domain.
	skipped map[string]bool
	// homes has the zones of the few endpoints whose slices have another zone or an invalid one, by address.
	homes map[string]string
	// out are the endpoints that leave a shifted domain, by address.
	out map[string]bool
}

// Kinds are the kinds of hints of a Service. Homeless says that an endpoint is in no zone.
type Kinds struct{ Zones, Nodes, Homeless bool }

// Kinds returns the kinds of hints of the plan.
func (p *Plan) Kinds() Kinds { return Kinds{Zones: p.own || len(p.zones) > 0, Nodes: len(p.nodes) > 0} }

// Plans are the plans of the address families of a Service. Slices of other families stay unchanged.
type Plans map[corev1.IPFamily]*Plan

func (p Plans) of(slice *discoveryv1.EndpointSlice) *Plan {
	return p[corev1.IPFamily(slice.AddressType)]
}

// Apply returns the endpoints of a slice with the hints of the plan, and how many of them changed.
//
// A proxy uses hints only if all ready endpoints have some. So an endpoint that is not ready keeps its hints or gets
// its own zone, to be in force as soon as it becomes ready.
func (p Plans) Apply(slice *discoveryv1.EndpointSlice) (endpoints []discoveryv1.Endpoint, changed int) {
	plan := p.of(slice)
	if plan == nil {
		return slice.Endpoints, 0
	}
	return rewrite(slice, plan.hint)
}

// Bare returns the endpoints of a slice without hints.
func Bare(slice *discoveryv1.EndpointSlice) (endpoints []discoveryv1.Endpoint, changed int) {
	return rewrite(slice, func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints { return nil })
}

// rewrite replaces hints that differ in more than their order. Without changes it returns the endpoints of the slice.
func rewrite(slice *discoveryv1.EndpointSlice, hint func(*discoveryv1.Endpoint) *discoveryv1.EndpointHints) (endpoints []discoveryv1.Endpoint, changed int) {
	endpoints = slice.Endpoints
	for i := range slice.Endpoints {
		want := hint(&slice.Endpoints[i])
		if Same(slice.Endpoints[i].Hints, want) {
			continue
		}
		if changed == 0 {
			endpoints = slices.Clone(slice.Endpoints)
		}
		endpoints[i].Hints = want
		changed++
	}
	return endpoints, changed
}

func (p *Plan) hint(e *discoveryv1.Endpoint) *discoveryv1.EndpointHints {
	switch {
	case isLeaving(e) || len(e.Addresses) == 0:
		return e.Hints // no proxy uses them
	case p.out[e.Addresses[0]]:
		return outHints
	case !p.Wanted:
		return nil
	case p.own:
		return ownZoneHints(e, p.home(e))
	}
	hints, nodes := p.zones[e.Addresses[0]], p.nodes[e.Addresses[0]]
	if p.zones != nil && hints == nil {
		zones := slices.DeleteFunc(Zones(e), func(zone string) bool { return zone == NoZone })
		if home := p.home(e); len(zones) == 0 && home != "" {
			zones = []string{home}
		}
		hints = makeHints(zones, nil)
	}
	if p.nodes != nil && nodes == nil && e.NodeName != nil {
		nodes = []string{*e.NodeName}
		if p.skipped[*e.NodeName] {
			nodes = []string{NoNode}
		}
	}
	if len(nodes) == 0 {
		return hints
	}
	both := makeHints(nil, nodes)
	if hints != nil {
		both.ForZones = hints.ForZones
	}
	return both
}

// Stay counts the known endpoints of a slice that have all hints of the plan, and the ones that lost some. Additional
// hints do not matter.
func (p *Plan) Stay(slice *discoveryv1.EndpointSlice, known func(address string) bool) (stayed, lost int) {
	if !p.Wanted {
		return 0, 0
	}
	for i := range slice.Endpoints {
		e := &slice.Endpoints[i]
		if len(e.Addresses) == 0 || !known(e.Addresses[0]) {
			continue
		}
		want := p.hint(e)
		if want == nil {
			continue
		}
		if containsAll(Zones(e), want.ForZones) && (e.Hints != nil || len(want.ForNodes) == 0) {
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

// isLeaving reports whether an endpoint terminates and gets no new connections while others are ready.
func isLeaving(e *discoveryv1.Endpoint) bool {
	state := endpoint.StateOf(e)
	return state.IsTerminating() && !state.IsReady()
}

func (p *Plan) home(e *discoveryv1.Endpoint) string {
	if zone, found := p.homes[e.Addresses[0]]; found {
		return zone
	}
	if e.Zone == nil {
		return ""
	}
	return *e.Zone
}

// homes returns the zones of endpoints whose slices have another zone, by address.
func homes(eps []*discoveryv1.EndpointSlice, cluster *intent.Cluster) map[string]string {
	homes := map[string]string{}
	for _, slice := range eps {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			zone := cluster.ZoneOf(e)
			if len(e.Addresses) == 0 || e.Zone == nil && zone == "" || e.Zone != nil && *e.Zone == zone {
				continue
			}
			homes[e.Addresses[0]] = zone
		}
	}
	return homes
}

// ownZoneHints replaces the zone hints, unless the endpoint's zone is unknown.
func ownZoneHints(e *discoveryv1.Endpoint, home string) *discoveryv1.EndpointHints {
	if home == "" {
		return e.Hints
	}
	hints := &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: home}}}
	if e.Hints != nil && !slices.Equal(e.Hints.ForNodes, outHints.ForNodes) {
		hints.ForNodes = e.Hints.ForNodes
	}
	return hints
}

func makeHints(zones, nodes []string) *discoveryv1.EndpointHints {
	if len(zones) == 0 && len(nodes) == 0 {
		return nil
	}
	hints := &discoveryv1.EndpointHints{}
	for _, zone := range zones {
		hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: zone})
	}
	for _, node := range nodes {
		hints.ForNodes = append(hints.ForNodes, discoveryv1.ForNode{Name: node})
	}
	return hints
}

// Same compares hints as sets. No hints and empty ones are the same.
func Same(a, b *discoveryv1.EndpointHints) bool {
	none := discoveryv1.EndpointHints{}
	if a == nil {
		a = &none
	}
	if b == nil {
		b = &none
	}
	zones := func(a, b discoveryv1.ForZone) int { return cmp.Compare(a.Name, b.Name) }
	nodes := func(a, b discoveryv1.ForNode) int { return cmp.Compare(a.Name, b.Name) }
	return sameSet(a.ForZones, b.ForZones, zones) && sameSet(a.ForNodes, b.ForNodes, nodes)
}

func sameSet[T comparable](a, b []T, compare func(a, b T) int) bool {
	if len(a) != len(b) {
		return false
	}
	if slices.Equal(a, b) {
		return true
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.SortFunc(a, compare)
	slices.SortFunc(b, compare)
	return slices.Equal(a, b)
}

// Zones returns the zones of an endpoint's hints, sorted.
func Zones(e *discoveryv1.Endpoint) []string {
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
