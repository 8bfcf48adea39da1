package shape

import (
	"cmp"
	"fmt"
	"maps"
)

// Options describe a shape by flags. Empty fields mean the values of Default.
type Options struct {
	Name  string
	Zones []string
	// NodesPerZone has one number for all zones or one for each zone.
	NodesPerZone []int
	// Regions, CPU and Memory have one value for all zones or one for each zone.
	Regions, CPU, Memory []string
	// NodeLabels are set on every node.
	NodeLabels map[string]string

	Proxy            string
	DNS              string
	ControlPlaneOnly bool
	FakeNodes        int
	SingleStack      bool
	EvictionRequests bool
}

// FromOptions returns the shape that options describe.
func FromOptions(o Options) (Shape, error) {
	s := Shape{
		Name:             cmp.Or(o.Name, DefaultName),
		Proxy:            Proxy(cmp.Or(o.Proxy, string(ProxyKubeProxy))),
		DNS:              DNS(o.DNS),
		ControlPlaneOnly: o.ControlPlaneOnly,
		FakeNodes:        o.FakeNodes,
		SingleStack:      o.SingleStack,
		EvictionRequests: o.EvictionRequests,
		Timing:           timingFor(o.FakeNodes),
	}
	zones := o.Zones
	if len(zones) == 0 {
		zones = []string{"zone-a", "zone-b", "zone-c"}
	}
	for i, name := range zones {
		zone := Zone{Name: name}
		count, cpu, memory := defaultNodesPerZone, "", ""
		if err := pick(&count, "nodes-per-zone", o.NodesPerZone, i, len(zones)); err != nil {
			return Shape{}, err
		}
		for _, choice := range []struct {
			value *string
			flag  string
			given []string
		}{{&zone.Region, "region", o.Regions}, {&cpu, "cpu", o.CPU}, {&memory, "memory", o.Memory}} {
			if err := pick(choice.value, choice.flag, choice.given, i, len(zones)); err != nil {
				return Shape{}, err
			}
		}
		if count < 0 || count > maxNodes {
			return Shape{}, fmt.Errorf("nodes-per-zone %d: write a number from 0 to %d", count, maxNodes)
		}
		for range count {
			zone.Nodes = append(zone.Nodes, Node{CPU: cpu, Memory: memory, Labels: maps.Clone(o.NodeLabels)})
		}
		s.Zones = append(s.Zones, zone)
	}
	s.complete()
	if err := s.Validate(); err != nil {
		return Shape{}, err
	}
	return s, nil
}

// pick sets value to the given value of a zone, if there is one.
func pick[T any](value *T, flag string, given []T, index, zones int) error {
	switch len(given) {
	case 0:
	case 1:
		*value = given[0]
	case zones:
		*value = given[index]
	default:
		return fmt.Errorf("%s: there are %d values for %d zones; write one for all, or one for each zone", flag, len(given), zones)
	}
	return nil
}
