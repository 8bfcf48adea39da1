package translate

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
)

// CapacityType is a way to estimate the traffic that comes from a zone.
type CapacityType string

// The types of capacity.
const (
	CapacityNodes      CapacityType = "nodes"      // the number of nodes
	CapacityCPU        CapacityType = "cpu"        // their allocatable CPU
	CapacityExpression CapacityType = "expression" // what the user computes from both and more
)

// Capacity is what the traffic that comes from a zone is estimated by. The zero value
// is the number of nodes.
type Capacity struct {
	Type CapacityType
	// Expression is in CEL, over the fields of Zone as "zone".
	Expression string
	// NodeSelector chooses by label the nodes that count, as in "pool=web". All count
	// if it is empty.
	NodeSelector string
	// WithoutControlPlane leaves all nodes out that are labelled as some of the control
	// plane, as Kubernetes' own heuristic does.
	WithoutControlPlane bool
}

// capacities are what the zones of a cluster have, as a Capacity sees them.
type capacities struct {
	byZone                   map[string]float64
	withoutZone, withoutUnit int // nodes
	fault                    string
}

// mostCapacities is how many of them a cluster remembers.
const mostCapacities = 1000

// capacities computes what zones have, once for each Capacity.
func (c *Cluster) capacities(capacity Capacity) *capacities {
	capacity.Type = cmp.Or(capacity.Type, CapacityNodes)
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.known[capacity]
	if known == nil {
		if len(c.known) >= mostCapacities {
			clear(c.known)
		}
		known = c.compute(capacity)
		c.known[capacity] = known
	}
	return known
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
	byZone, err := evaluate(capacity.Expression, slices.DeleteFunc(zones, func(z Zone) bool { return z.Nodes == 0 }))
	if err != nil {
		made.fault = fmt.Sprintf("capacity.expression: %v; nodes are counted instead", err)
		return made
	}
	made.byZone = byZone
	return made
}

// counted reports of a node whether it counts.
func (c Capacity) counted() func(*countedNode) bool {
	selector, err := labels.Parse(c.NodeSelector)
	if err != nil {
		selector = labels.Everything() // as ReadPolicy has it
	}
	return func(n *countedNode) bool {
		return selector.Matches(labels.Set(n.labels)) && (!c.WithoutControlPlane || !n.controlPlane)
	}
}

// sums adds up the selected nodes of each zone, in the order of zones, and counts
// those that lack a zone or CPU.
func (c *Cluster) sums(capacity Capacity, counts *capacities) []Zone {
	counted := capacity.counted()
	zones := make([]Zone, len(c.zones))
	for i := range c.zones {
		zones[i].Name, zones[i].Region = c.zones[i].name, c.RegionOf(c.zones[i].name)
	}
	for i := range c.counted {
		n := &c.counted[i]
		if !counted(n) {
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

// add counts a node.
func (z *Zone) add(n *countedNode) {
	z.Nodes++
	z.CPU += n.cpu
	z.Memory += n.memory
	z.Pods += n.pods
}
