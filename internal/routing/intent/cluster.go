package intent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/version"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// Cluster has the nodes of a cluster and their domains. Nodes count for the capacity of their zone if they are ready
// and take pods of users, even if they run the control plane.
type Cluster struct {
	allZones []string         // of all nodes, sorted
	nodes    map[string]place // all, by name
	zones    []clusterZone    // of the nodes that count, in the order of names
	counted  []countedNode    // in the order of names
	// regions are the regions of zones, from nodes that count or else from any.
	regions map[string]string

	proxies Proxies

	tools Tools
	// Counted is the number of nodes that count.
	Counted int
	// WithoutZone and WithoutCPU name the nodes that count but lack the zone label or allocatable CPU, in order.
	WithoutZone, WithoutCPU []string
}

type place struct {
	zone, region string
	labels       topology.Labels
}

// clusterZone is a zone with nodes that count.
type clusterZone struct {
	name    string
	regions []string // of its nodes, in order; several are a mistake
	workers bool     // it has nodes that are not of the control plane
}

// countedNode is the contribution of a node to its zone.
type countedNode struct {
	name              string
	labels            map[string]string
	controlPlane      bool // it has a label of the control plane
	zone              int  // index; negative if it has none
	cpu, memory, pods float64
}

// NewCluster reads the nodes of a cluster.
func NewCluster(nodes []*corev1.Node) *Cluster {
	c := &Cluster{nodes: make(map[string]place, len(nodes))}
	for _, node := range nodes {
		at := place{node.Labels[corev1.LabelTopologyZone], node.Labels[corev1.LabelTopologyRegion], node.Labels}
		c.nodes[node.Name] = at
		c.proxies.add(node)
		if !isCounted(node) {
			continue
		}
		c.counted = append(c.counted, countedNode{
			name:         node.Name,
			labels:       node.Labels,
			controlPlane: isControlPlane(node),
			cpu:          amount(node.Status.Allocatable.Cpu()),
			memory:       amount(node.Status.Allocatable.Memory()),
			pods:         amount(node.Status.Allocatable.Pods()),
		})
		if at.zone != "" {
			c.addZone(at, isControlPlane(node))
		}
	}
	c.nameRegions()
	// Sums of fractions depend on the order, and a cache lists nodes in any order.
	slices.SortFunc(c.counted, func(a, b countedNode) int { return strings.Compare(a.name, b.name) })
	for i := range c.counted {
		n := &c.counted[i]
		var found bool
		if n.zone, found = c.zone(n.labels[corev1.LabelTopologyZone]); !found {
			n.zone = -1
			c.WithoutZone = append(c.WithoutZone, n.name)
		}
		if n.cpu <= 0 {
			c.WithoutCPU = append(c.WithoutCPU, n.name)
		}
	}
	c.Counted = len(c.counted)
	c.proxies.sort()
	for _, at := range c.nodes {
		if i, found := slices.BinarySearch(c.allZones, at.zone); at.zone != "" && !found {
			c.allZones = slices.Insert(c.allZones, i, at.zone)
		}
	}
	return c
}

func (c *Cluster) addZone(at place, controlPlane bool) {
	i, found := c.zone(at.zone)
	if !found {
		c.zones = slices.Insert(c.zones, i, clusterZone{name: at.zone})
	}
	zone := &c.zones[i]
	zone.workers = zone.workers || !controlPlane
	if at.region != "" && !slices.Contains(zone.regions, at.region) {
		zone.regions = append(zone.regions, at.region)
	}
}

func (c *Cluster) nameRegions() {
	c.regions = make(map[string]string, len(c.zones))
	for _, at := range c.nodes {
		if at.zone == "" || at.region == "" {
			continue
		}
		if known, found := c.regions[at.zone]; !found || at.region < known {
			c.regions[at.zone] = at.region
		}
	}
	for i := range c.zones {
		if zone := &c.zones[i]; len(zone.regions) > 0 {
			slices.Sort(zone.regions)
			c.regions[zone.name] = zone.regions[0]
		}
	}
}

// zone finds the index of a zone, or its place in the order.
func (c *Cluster) zone(name string) (index int, found bool) {
	return slices.BinarySearchFunc(c.zones, name, func(z clusterZone, name string) int { return strings.Compare(z.name, name) })
}

func amount(quantity *resource.Quantity) float64 {
	return max(0, quantity.AsApproximateFloat64())
}

// isCounted reports whether clients run on the node.
func isCounted(node *corev1.Node) bool {
	return len(ControlPlaneTaints(node)) == 0 && IsReady(node)
}

// IsReady reports whether a node is ready.
func IsReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func isControlPlane(node *corev1.Node) bool {
	_, labelled := node.Labels[v1alpha1.LabelControlPlane]
	_, formerly := node.Labels[v1alpha1.LabelMaster]
	return labelled || formerly
}

// taintCriticalAddons is the taint of servers without pods of users in k3s and similar distributions.
const taintCriticalAddons = "CriticalAddonsOnly"

// rolePrefix is the prefix of labels, and keys of taints, for the role of a node.
const rolePrefix = "node-role.kubernetes.io/"

// labelEtcd can be the only role label of servers that run etcd, in RKE2 and similar distributions.
const labelEtcd = rolePrefix + "etcd"

// ControlPlaneTaints returns the key and effect of each taint that IsControlPlaneTaint accepts.
func ControlPlaneTaints(node *corev1.Node) []corev1.Taint {
	var taints []corev1.Taint
	for i := range node.Spec.Taints {
		if taint := &node.Spec.Taints[i]; IsControlPlaneTaint(node, taint) {
			taints = append(taints, corev1.Taint{Key: taint.Key, Effect: taint.Effect})
		}
	}
	return taints
}

// IsControlPlaneTaint reports whether a taint keeps pods of users off a node of the control plane. Other nodes have no such
// taint. Neither do servers of small clusters, which run pods of users.
func IsControlPlaneTaint(node *corev1.Node, taint *corev1.Taint) bool {
	if _, etcd := node.Labels[labelEtcd]; !etcd && !isControlPlane(node) {
		return false
	}
	return (taint.Key == taintCriticalAddons || strings.HasPrefix(taint.Key, rolePrefix)) &&
		(taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute)
}

// Region returns the zones of the cluster and of the endpoints. If the capacity cannot be computed, nodes are counted,
// and Fault says why.
func (c *Cluster) Region(capacity Capacity, endpoints []Endpoint) allocate.Region {
	known := c.capacities(capacity)
	region := allocate.Region{NodesWithoutZone: known.withoutZone, NodesWithoutCapacity: known.withoutUnit}
	index := make(map[string]int, len(c.zones))
	for i := range c.zones {
		zone := &c.zones[i]
		if capacity.WithoutControlPlane && !zone.workers {
			continue
		}
		z := allocate.Zone{Name: zone.name, Region: c.RegionOf(zone.name), Capacity: known.byZone[zone.name]}
		index[zone.name] = len(region.Zones)
		region.Zones = append(region.Zones, z)
	}
	for i := range endpoints {
		zone := endpoints[i].Zone
		at, found := index[zone]
		if !found {
			at = len(region.Zones)
			index[zone] = at
			region.Zones = append(region.Zones, allocate.Zone{Name: zone, Region: c.RegionOf(zone)})
		}
		region.Zones[at].Endpoints++
	}
	slices.SortFunc(region.Zones, func(a, b allocate.Zone) int { return strings.Compare(a.Name, b.Name) })
	return region
}

// Fault says why the capacity cannot be computed, empty if it can.
func (c *Cluster) Fault(capacity Capacity) string {
	return c.capacities(capacity).fault
}

// Labels returns the labels of a node, nil if it is unknown. They must not be changed.
func (c *Cluster) Labels(node string) topology.Labels {
	return c.nodes[node].labels
}

// Zones returns the zones of all nodes, whether or not they count, sorted. They must not be changed.
func (c *Cluster) Zones() []string { return c.allZones }

// RegionOf returns the region of a zone, empty if it is unknown.
func (c *Cluster) RegionOf(zone string) string { return c.regions[zone] }

// mostNamed is how many nodes or regions a warning names.
const mostNamed = 5

// Warnings returns sentences about faulty nodes.
func (c *Cluster) Warnings() []string {
	var warnings []string
	if c.Counted == 0 {
		warnings = append(warnings, "no node is ready, apart from nodes of the control plane, so no zone has capacity")
	}
	if n := len(c.WithoutZone); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%s without the label %s, left out of the capacity: %s",
			plaintext.Plural(n, "node"), corev1.LabelTopologyZone, plaintext.FirstOf(c.WithoutZone, mostNamed)))
	}
	if n := len(c.WithoutCPU); n > 0 {
		warnings = append(warnings, fmt.Sprintf("%s without allocatable CPU: %s", plaintext.Plural(n, "node"), plaintext.FirstOf(c.WithoutCPU, mostNamed)))
	}
	for _, zone := range c.zones {
		if len(zone.regions) > 1 {
			warnings = append(warnings, fmt.Sprintf("zone %q has nodes in %d regions (%s); the first counts",
				zone.name, len(zone.regions), plaintext.FirstOf(zone.regions, mostNamed)))
		}
	}
	return warnings
}

// Domains returns the sorted names of nodes by their value of the label key, without nodes that lack it.
func (c *Cluster) Domains(key string) map[string][]string {
	domains := map[string][]string{}
	for name, at := range c.nodes {
		if value := at.labels[key]; value != "" {
			domains[value] = append(domains[value], name)
		}
	}
	for _, nodes := range domains {
		slices.Sort(nodes)
	}
	return domains
}

// HasNode reports whether there is a node of that name.
func (c *Cluster) HasNode(name string) bool {
	_, found := c.nodes[name]
	return found
}

// Names returns the sorted names of all nodes.
func (c *Cluster) Names() []string {
	return slices.Sorted(maps.Keys(c.nodes))
}

// ZoneOf returns the zone of a slice's endpoint, empty if it is unknown. The label of its node wins, as in proxies,
// because slices do not follow it. A zone that no label can have counts as unknown.
func (c *Cluster) ZoneOf(e *discoveryv1.Endpoint) string {
	if e.NodeName != nil {
		if zone := c.nodes[*e.NodeName].zone; zone != "" {
			return zone
		}
	}
	if e.Zone == nil || !c.canBeZone(*e.Zone) {
		return ""
	}
	return *e.Zone
}

// canBeZone reports whether a node can be in the zone.
func (c *Cluster) canBeZone(zone string) bool {
	if _, found := c.zone(zone); found {
		return true
	}
	return len(validation.IsValidLabelValue(zone)) == 0
}

// ImpossibleZones returns the zones of endpoints that no label can have, sorted.
func (c *Cluster) ImpossibleZones(eps []*discoveryv1.EndpointSlice) []string {
	var zones []string
	for _, slice := range eps {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if e.Zone != nil && *e.Zone != "" && c.ZoneOf(e) == "" && !slices.Contains(zones, *e.Zone) {
				zones = append(zones, *e.Zone)
			}
		}
	}
	slices.Sort(zones)
	return zones
}

// Proxies are the nodes whose kube-proxy is known to ignore some hints. The API does not have the version of
// kube-proxy. The kubelet's version stands for it, since distributions update both together. Nor does the API say
// whether a node runs another proxy.
type Proxies struct {
	// Windows are nodes whose kube-proxy ignores all hints, in order.
	Windows []string
	// WithoutNodeHints are other nodes whose kube-proxy ignores hints for nodes, in order.
	WithoutNodeHints []string
}

// releaseNodeHints is the first release whose kube-proxy follows hints for nodes.
var releaseNodeHints = version.MajorMinor(1, 34)

// Proxies returns the cluster's nodes whose kube-proxy ignores hints.
func (c *Cluster) Proxies() Proxies { return c.proxies }

func (p *Proxies) add(node *corev1.Node) {
	if IsWindows(node) {
		p.Windows = append(p.Windows, node.Name)
		return
	}
	release, err := version.ParseGeneric(node.Status.NodeInfo.KubeletVersion)
	if err == nil && release.LessThan(releaseNodeHints) {
		p.WithoutNodeHints = append(p.WithoutNodeHints, node.Name)
	}
}

// IsWindows reports whether a node runs Windows, where kube-proxy ignores all hints.
func IsWindows(node *corev1.Node) bool {
	return node.Labels[corev1.LabelOSStable] == string(corev1.Windows) || strings.EqualFold(node.Status.NodeInfo.OperatingSystem, string(corev1.Windows))
}

func (p *Proxies) sort() {
	slices.Sort(p.Windows)
	slices.Sort(p.WithoutNodeHints)
}
