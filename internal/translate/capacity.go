package translate

import (
	"cmp"
	"errors"
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
	// WithoutControlPlane leaves out nodes that are labelled as of the control plane, as
	// Kubernetes' own heuristic does.
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

// capacities are those of the zones of a cluster, by a Capacity.
type capacities struct {
	byZone                   map[string]float64
	withoutZone, withoutUnit int // nodes
	fault                    string
}

func (c *Cluster) capacities(capacity Capacity) *capacities {
	capacity.Type = cmp.Or(capacity.Type, CapacityNodes)
	return remembered(c.tools.Capacities, capacity, func() *capacities { return c.compute(capacity) })
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
		return nil, errors.New("expressions are not read here")
	}
	return c.tools.Evaluate(expression, zones)
}

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

func (z *Zone) add(n *countedNode) {
	z.Nodes++
	z.CPU += n.cpu
	z.Memory += n.memory
	z.Pods += n.pods
}
