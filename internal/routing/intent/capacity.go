package intent

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// CapacityType is a way to estimate the traffic from a zone.
type CapacityType string

// The types of capacity.
const (
	CapacityNodes      CapacityType = "nodes"      // the number of nodes
	CapacityCPU        CapacityType = "cpu"        // their allocatable CPU
	CapacityExpression CapacityType = "expression" // what the user computes from both and more
)

// Capacity says how the traffic from a zone is estimated. The zero value counts nodes.
type Capacity struct {
	Type CapacityType
	// Expression is in CEL, with the fields of Zone as "zone".
	Expression string
	// NodeSelector selects the nodes that count, as in "pool=web". If it is empty all count.
	NodeSelector string
	// WithoutControlPlane leaves out nodes with a control plane label, as Kubernetes' own heuristic does.
	WithoutControlPlane bool
}

// Zone is the variable "zone" of expressions. All numbers are decimal.
type Zone struct {
	Name   string  `cel:"name"`
	Region string  `cel:"region"`
	Nodes  float64 `cel:"nodes"`
	CPU    float64 `cel:"cpu"`    // cores
	Memory float64 `cel:"memory"` // bytes
	Pods   float64 `cel:"pods"`
}

// capacities are the capacities of a cluster's zones for one Capacity.
type capacities struct {
	byZone                   map[string]float64
	withoutZone, withoutUnit int // nodes
	fault                    string
}

func (c *Cluster) capacities(capacity Capacity) *capacities {
	capacity.Type = cmp.Or(capacity.Type, CapacityNodes)
	return remembered(c.tools.RememberCapacity, capacity, func() *capacities { return c.compute(capacity) })
}

func (c *Cluster) compute(capacity Capacity) *capacities {
	made := &capacities{byZone: map[string]float64{}}
	zones := c.sums(capacity, made)
	for i := range zones {
		zone := &zones[i]
		made.byZone[zone.Name] = zone.Nodes
		if capacity.Type == CapacityCPU {
			made.byZone[zone.Name] = zone.CPU
		}
	}
	if capacity.Type != CapacityCPU {
		made.withoutUnit = 0
	}
	if capacity.Type != CapacityExpression {
		return made
	}
	byZone, err := c.evaluate(capacity.Expression, slices.DeleteFunc(zones, func(z Zone) bool { return z.Nodes == 0 }))
	if err != nil {
		made.fault = fmt.Sprintf("capacity.expression: %v; nodes are counted instead", err)
		return made
	}
	made.byZone = byZone
	return made
}

func (c *Cluster) evaluate(expression string, zones []Zone) (map[string]float64, error) {
	if c.tools.Evaluate == nil {
		return nil, errors.New("CEL expressions are not supported here")
	}
	return c.tools.Evaluate(expression, zones)
}

func (c Capacity) nodeFilter() func(*countedNode) bool {
	selector, err := labels.Parse(c.NodeSelector)
	if err != nil {
		selector = labels.Everything() // as ReadPolicy has it
	}
	return func(n *countedNode) bool {
		return selector.Matches(labels.Set(n.labels)) && (!c.WithoutControlPlane || !n.controlPlane)
	}
}

// sums adds up the selected nodes of each zone, in the order of zones, and counts nodes without a zone or CPU.
func (c *Cluster) sums(capacity Capacity, counts *capacities) []Zone {
	selects := capacity.nodeFilter()
	zones := make([]Zone, len(c.zones))
	for i := range c.zones {
		zones[i].Name, zones[i].Region = c.zones[i].name, c.RegionOf(c.zones[i].name)
	}
	for i := range c.counted {
		n := &c.counted[i]
		if !selects(n) {
			continue
		}
		if n.cpu <= 0 {
			counts.withoutUnit++
		}
		if n.zone < 0 {
			counts.withoutZone++
			continue
		}
		zones[n.zone].add(n)
	}
	return zones
}

func (z *Zone) add(n *countedNode) {
	z.Nodes++
	z.CPU += n.cpu
	z.Memory += n.memory
	z.Pods += n.pods
}

// Tools do work for a Cluster that needs locks or libraries, so that it remains a plain value. Package capacity has
// them.
type Tools struct {
	// Evaluate computes the capacity of each zone by an expression. Without it nodes are counted.
	Evaluate func(expression string, zones []Zone) (map[string]float64, error)
	// RememberCapacity remembers capacities of zones, and RememberNodes views of the nodes, each as large as the
	// cluster. They must be safe for concurrent use if the cluster is used so. Without them everything is computed each
	// time.
	RememberCapacity, RememberNodes Remember
}

// Remember returns the value computed before for a key, or computes it.
type Remember func(key any, compute func() any) any

// With returns the same cluster with tools.
func (c *Cluster) With(tools Tools) *Cluster {
	with := *c
	with.tools = tools
	return &with
}

func remembered[V any](remember Remember, key any, compute func() V) V {
	if remember == nil {
		return compute()
	}
	return remember(key, func() any { return compute() }).(V)
}

// shares divides the traffic of each zone among its selected nodes: by allocatable CPU if that is the capacity, or else
// equally, also if an expression gives the capacity of zones.
func (c *Cluster) shares(capacity Capacity, known *capacities) map[string]float64 {
	selects := capacity.nodeFilter()
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
			if n := &c.counted[i]; n.zone >= 0 && selects(n) {
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

type nodesKey struct {
	capacity Capacity
	keys     string // joined
}

type nodesView struct {
	nodes []allocate.Node
	index map[string]int
}

// Nodes returns all nodes with their domains of the keys, sorted by name. Nodes that do not count have no share of the
// traffic. The result must not be changed.
func (c *Cluster) Nodes(capacity Capacity, keys []string) []allocate.Node {
	return c.view(capacity, keys).nodes
}

func (c *Cluster) view(capacity Capacity, keys []string) *nodesView {
	return remembered(c.tools.RememberNodes, nodesKey{capacity, strings.Join(keys, ",")}, func() *nodesView {
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

// Places returns the places of endpoints among Nodes, with their domains of the keys.
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

// DomainOf returns an endpoint's value of a key. If its node is unknown, as in slices written by hand, it has the
// region of its zone.
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

// Domain returns a node's value of a key. Without a hostname label that is the name of the node.
func (c *Cluster) Domain(name, key string) string {
	value := c.nodes[name].labels[key]
	if key == topology.Hostname && value == "" {
		return name
	}
	return value
}
