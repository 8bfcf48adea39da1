package translate

import (
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// shares divide the traffic of each zone among its selected nodes: by allocatable CPU where
// that is the capacity, and else in equal parts, also where an expression gives the capacity
// of zones.
func (c *Cluster) shares(capacity Capacity, known *capacities) map[string]float64 {
	counted := capacity.counted()
	total := 0.0
	for i := range c.zones {
		total += known.byZone[c.zones[i].name]
	}
	shares := make(map[string]float64, len(c.counted))
	if total == 0 {
		return shares
	}
	weight := func(n *countedNode) float64 {
		if capacity.Type == CapacityCPU {
			return n.cpu
		}
		return 1
	}
	sums := make([]float64, len(c.zones))
	selected := func(yield func(*countedNode)) {
		for i := range c.counted {
			if n := &c.counted[i]; n.zone >= 0 && counted(n) {
				yield(n)
			}
		}
	}
	selected(func(n *countedNode) { sums[n.zone] += weight(n) })
	selected(func(n *countedNode) {
		if sums[n.zone] > 0 {
			shares[n.name] = known.byZone[c.zones[n.zone].name] / total * weight(n) / sums[n.zone]
		}
	})
	return shares
}

// nodesKey is the key of a nodesView.
type nodesKey struct {
	capacity Capacity
	keys     string // joined
}

type nodesView struct {
	nodes []allocate.Node
	index map[string]int
}

// Nodes are all nodes with their domains of the keys, in the order of names. Those that do
// not count have no share of the traffic. They must not be changed.
func (c *Cluster) Nodes(capacity Capacity, keys []string) []allocate.Node {
	return c.view(capacity, keys).nodes
}

func (c *Cluster) view(capacity Capacity, keys []string) *nodesView {
	return remembered(c.tools.Nodes, nodesKey{capacity, strings.Join(keys, ",")}, func() *nodesView {
		shares := c.shares(capacity, c.capacities(capacity))
		view := &nodesView{nodes: make([]allocate.Node, 0, len(c.nodes)), index: make(map[string]int, len(c.nodes))}
		for i, name := range c.Names() {
			view.index[name] = i
			view.nodes = append(view.nodes, allocate.Node{
				Name: name, Zone: c.nodes[name].zone, Share: shares[name], Domains: c.domains(name, keys),
			})
		}
		return view
	})
}

// Places are the places of endpoints among Nodes, with their domains of the keys.
func (c *Cluster) Places(capacity Capacity, keys []string, endpoints []Endpoint) []allocate.Place {
	view := c.view(capacity, keys)
	places := make([]allocate.Place, len(endpoints))
	zone, region := slices.Index(keys, topology.Zone), slices.Index(keys, topology.Region)
	unknown := map[string][]string{} // of nodes
	for i := range endpoints {
		e := &endpoints[i]
		if at, found := view.index[e.Node]; found {
			places[i] = allocate.Place{Node: at, Domains: view.nodes[at].Domains}
		} else {
			if unknown[e.Node] == nil {
				unknown[e.Node] = c.domains(e.Node, keys)
			}
			places[i] = allocate.Place{Node: -1, Domains: unknown[e.Node]}
		}
		if zone >= 0 && places[i].Domains[zone] != e.Zone {
			places[i].Domains = slices.Clone(places[i].Domains)
			places[i].Domains[zone] = e.Zone
		}
		if region >= 0 && places[i].Domains[region] == "" && c.RegionOf(e.Zone) != "" {
			places[i].Domains = slices.Clone(places[i].Domains)
			places[i].Domains[region] = c.RegionOf(e.Zone)
		}
	}
	return places
}

// DomainOf is the value of a key of an endpoint. If its node is unknown, as in slices written
// by hand, the region is that of the zone.
func (c *Cluster) DomainOf(node, zone, key string) string {
	value := c.Domain(node, key)
	if key == topology.Region && value == "" {
		return c.RegionOf(zone)
	}
	return value
}

func (c *Cluster) domains(name string, keys []string) []string {
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = c.Domain(name, key)
	}
	return values
}

// Domain is the value of a key of a node. Without a label for its hostname that is its name.
func (c *Cluster) Domain(name, key string) string {
	value := c.nodes[name].labels[key]
	if key == topology.Hostname && value == "" {
		return name
	}
	return value
}
