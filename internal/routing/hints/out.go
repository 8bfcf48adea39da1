package hints

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
)

// NoZone is the name of no zone. Endpoints that leave a shifted domain have hints for it.
const NoZone = "no-zone.vicinity.dev"

// outHints are the hints of endpoints that leave. A kube-proxy that finds a hint for its node on every endpoint does not
// look at zones, so they have one for no node, too.
var outHints = makeHints([]string{NoZone}, []string{NoNode})

// IsOut reports whether an endpoint has the hints of endpoints that leave.
func IsOut(e *discoveryv1.Endpoint) bool { return Same(e.Hints, outHints) }

// IsUsed reports whether proxies may use an endpoint. The hints of others do not matter.
func IsUsed(e *discoveryv1.Endpoint) bool { return !isLeaving(e) && len(e.Addresses) > 0 }

// TakeOut changes a plan: endpoints that leave get hints for no zone. Each zone gets a remaining endpoint, because a proxy
// uses all endpoints if none is hinted to its zone.
func (p *Plan) TakeOut(in Input, leaves func(*discoveryv1.Endpoint) bool) {
	p.out = map[string]bool{}
	list := endpoint.Slices(in.Slices, in.Family)
	for _, slice := range list {
		for i := range slice.Endpoints {
			if e := &slice.Endpoints[i]; len(e.Addresses) > 0 && leaves(e) {
				p.out[e.Addresses[0]] = true
			}
		}
	}
	if p.own {
		p.zones = map[string]*discoveryv1.EndpointHints{}
		for _, e := range in.Endpoints {
			if e.Zone != "" {
				p.zones[e.Address] = makeHints([]string{e.Zone}, nil)
			}
		}
	}
	zones := in.Cluster.Zones()
	// A zone needs an endpoint for each port, and the plan ignores ports.
	if !p.Wanted || len(p.zones) < len(in.Endpoints) || len(ByPort(list)) > 1 || !p.cover(zones) {
		p.zones = in.spread(zones)
	}
	p.Wanted, p.own, p.homes = true, false, homes(list, in.Cluster)
}

// cover adds the zones without an endpoint to the hints of all. It fails if an endpoint would get too many.
func (p *Plan) cover(zones []string) bool {
	covered := map[string]bool{}
	for _, hints := range p.zones {
		for _, zone := range hints.ForZones {
			covered[zone.Name] = true
		}
	}
	missing := slices.DeleteFunc(slices.Clone(zones), func(zone string) bool { return covered[zone] })
	if len(missing) == 0 {
		return true
	}
	made := map[*discoveryv1.EndpointHints]*discoveryv1.EndpointHints{}
	for address, hints := range p.zones {
		if made[hints] == nil {
			all := slices.Concat(Zones(&discoveryv1.Endpoint{Hints: hints}), missing)
			if len(all) > v1alpha1.MaxHints {
				return false
			}
			slices.Sort(all)
			made[hints] = makeHints(all, nil)
		}
		p.zones[address] = made[hints]
	}
	return true
}

// zoneGroup is a group of zones that share endpoints.
type zoneGroup struct {
	zones     []string
	capacity  float64
	endpoints int
	quota     int
}

// spread hints endpoints to all zones. Endpoints can have hints for few zones, so beyond that number zones form groups,
// each with endpoints of its own.
func (in *Input) spread(zones []string) map[string]*discoveryv1.EndpointHints {
	groups := in.groupZones(zones)
	before := Assigned(in.Slices, in.Family)
	spread := make(map[string]*discoveryv1.EndpointHints, len(in.Endpoints))
	for _, stays := range []bool{true, false} { // endpoints keep their group if they can
		for i := range groups {
			g := &groups[i]
			set, hints := allocate.NewConsumerSet(g.zones...), makeHints(g.zones, nil)
			for _, e := range in.Endpoints {
				if g.endpoints < g.quota && spread[e.Address] == nil && (!stays || before[e.Address] == set) {
					spread[e.Address] = hints
					g.endpoints++
				}
			}
		}
	}
	return spread
}

// leastCapacity is that of a zone whose nodes do not count, but may have clients.
const leastCapacity = 0.001

// groupZones divides zones into as few groups as hints allow, of about the same capacity, and endpoints among them.
func (in *Input) groupZones(zones []string) []zoneGroup {
	capacity := map[string]float64{}
	for _, zone := range in.Region.Zones {
		capacity[zone.Name] = zone.Capacity
	}
	largest := slices.Clone(zones)
	slices.SortFunc(largest, func(a, b string) int { return cmp.Or(cmp.Compare(capacity[b], capacity[a]), strings.Compare(a, b)) })
	groups := make([]zoneGroup, max(1, (len(zones)+v1alpha1.MaxHints-1)/v1alpha1.MaxHints))
	for _, zone := range largest {
		var least *zoneGroup
		for i := range groups {
			if g := &groups[i]; len(g.zones) < v1alpha1.MaxHints && (least == nil || g.capacity < least.capacity) {
				least = g
			}
		}
		least.zones, least.capacity = append(least.zones, zone), least.capacity+max(capacity[zone], leastCapacity)
	}
	for i := range groups {
		slices.Sort(groups[i].zones)
	}
	for range in.Endpoints {
		busiest := &groups[0]
		for i := range groups {
			if g := &groups[i]; g.capacity*float64(busiest.quota) > busiest.capacity*float64(g.quota) {
				busiest = g
			}
		}
		busiest.quota++
	}
	return groups
}

// BusiestGroup returns the load of the endpoints of the busiest group of zones, relative to the even share.
func (in *Input) BusiestGroup(zones []string) (load float64) {
	groups, all := in.groupZones(zones), 0.0
	for i := range groups {
		all += groups[i].capacity
	}
	for i := range groups {
		load = max(load, groups[i].capacity/all*float64(len(in.Endpoints))/float64(groups[i].quota))
	}
	return load
}

// ByPort returns the slices with each port, or all slices together if all have the same ports.
func ByPort(eps []*discoveryv1.EndpointSlice) (lists [][]*discoveryv1.EndpointSlice) {
	byPort, same := map[string][]*discoveryv1.EndpointSlice{}, true
	for _, slice := range eps {
		ports := portsOf(slice)
		same = same && slices.Equal(ports, portsOf(eps[0]))
		for _, port := range ports {
			byPort[port] = append(byPort[port], slice)
		}
	}
	if same {
		return [][]*discoveryv1.EndpointSlice{eps}
	}
	for _, port := range slices.Sorted(maps.Keys(byPort)) {
		lists = append(lists, byPort[port])
	}
	return lists
}
