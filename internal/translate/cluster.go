package translate

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
)

// Capacity is what the traffic that comes from a zone is estimated by.
type Capacity string

// The capacities.
const (
	CapacityNodes Capacity = "nodes" // the number of nodes
	CapacityCPU   Capacity = "cpu"   // their allocatable CPU
)

// Cluster is where the nodes of a cluster are. The nodes that count for a zone's
// capacity are those that are ready and do not run the control plane: where
// clients are.
type Cluster struct {
	nodes map[string]place // all, by name
	zones []clusterZone    // of the nodes that count, in the order of names
	// Counted is the number of nodes that count.
	Counted int
	// WithoutZone and WithoutCPU are the names of nodes that should count and lack
	// the zone label or allocatable CPU, in order.
	WithoutZone, WithoutCPU []string
}

// place is where a node is.
type place struct {
	zone, region string
}

type clusterZone struct {
	name    string
	regions []string // of its nodes, in order; more than one is a mistake
	nodes   int
	cpu     float64 // cores
}

// NewCluster reads the nodes of a cluster.
func NewCluster(nodes []*corev1.Node) *Cluster {
	c := &Cluster{nodes: make(map[string]place, len(nodes))}
	zones := map[string]*clusterZone{}
	for _, node := range nodes {
		at := place{node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion]}
		c.nodes[node.Name] = at
		if !counts(node) {
			continue
		}
		c.Counted++
		cpu := node.Status.Allocatable.Cpu().AsApproximateFloat64()
		if cpu <= 0 {
			c.WithoutCPU = append(c.WithoutCPU, node.Name)
			cpu = 0
		}
		if at.zone == "" {
			c.WithoutZone = append(c.WithoutZone, node.Name)
			continue
		}
		zone := zones[at.zone]
		if zone == nil {
			zone = &clusterZone{name: at.zone}
			zones[at.zone] = zone
		}
		zone.nodes++
		zone.cpu += cpu
		if at.region != "" {
			zone.regions = append(zone.regions, at.region)
		}
	}
	for _, zone := range zones {
		slices.Sort(zone.regions)
		zone.regions = slices.Compact(zone.regions)
		c.zones = append(c.zones, *zone)
	}
	slices.SortFunc(c.zones, func(a, b clusterZone) int { return strings.Compare(a.name, b.name) })
	slices.Sort(c.WithoutZone)
	slices.Sort(c.WithoutCPU)
	return c
}

// counts reports whether clients run on the node.
func counts(node *corev1.Node) bool {
	for _, label := range []string{LabelControlPlane, LabelMaster} {
		if _, found := node.Labels[label]; found {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// Region is what the endpoints of a Service are to be divided in: the cluster's
// zones, and those that only endpoints know of.
func (c *Cluster) Region(capacity Capacity, endpoints []Endpoint) allocate.Region {
	region := allocate.Region{NodesWithoutZone: len(c.WithoutZone)}
	index := make(map[string]int, len(c.zones))
	for i := range c.zones {
		zone := &c.zones[i]
		z := allocate.Zone{Name: zone.name, Capacity: float64(zone.nodes)}
		if capacity == CapacityCPU {
			z.Capacity = zone.cpu
		}
		if len(zone.regions) > 0 {
			z.Region = zone.regions[0]
		}
		index[zone.name] = len(region.Zones)
		region.Zones = append(region.Zones, z)
	}
	if capacity == CapacityCPU {
		region.NodesWithoutCapacity = len(c.WithoutCPU)
	}
	for i := range endpoints {
		zone := endpoints[i].Zone
		at, found := index[zone]
		if !found {
			at = len(region.Zones)
			index[zone] = at
			region.Zones = append(region.Zones, allocate.Zone{Name: zone, Region: c.regionOf(endpoints[i])})
		}
		region.Zones[at].Endpoints++
	}
	slices.SortFunc(region.Zones, func(a, b allocate.Zone) int { return strings.Compare(a.Name, b.Name) })
	return region
}

// regionOf is the region of an endpoint whose zone has no node that counts.
func (c *Cluster) regionOf(endpoint Endpoint) string {
	if node := c.nodes[endpoint.Node]; endpoint.Zone != "" && node.zone == endpoint.Zone {
		return node.region
	}
	return ""
}

// Warnings say what is wrong with the nodes, each in a sentence.
func (c *Cluster) Warnings() []string {
	var warnings []string
	if c.Counted == 0 {
		warnings = append(warnings, "no node is ready and free of the control plane, so no zone has capacity")
	}
	if n := len(c.WithoutZone); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%s without the label %s, left out of the capacity: %s",
			count(n, "node"), corev1.LabelTopologyZone, some(c.WithoutZone)))
	}
	if n := len(c.WithoutCPU); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%s without allocatable CPU: %s", count(n, "node"), some(c.WithoutCPU)))
	}
	for _, zone := range c.zones {
		if len(zone.regions) > 1 {
			warnings = append(warnings, fmt.Sprintf("zone %q has nodes in %d regions (%s); the first counts",
				zone.name, len(zone.regions), some(zone.regions)))
		}
	}
	return warnings
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// some lists the first few names.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}
