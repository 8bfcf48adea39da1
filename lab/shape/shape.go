// Package shape says what a lab looks like: its zones, its nodes, what each node
// offers, and by which names and addresses everything goes.
//
// A Shape is a value. It comes from Default, from Options (the flags of a command) or
// from a file (Read), and is then complete: each node has a name, an index and what it
// offers. Names and addresses follow from the name of the lab and the index of a node
// alone, so that no part of the lab needs to ask another for them. The package makes
// nothing: that is for the packages above it.
package shape

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Shape is a lab as its user wants it.
type Shape struct {
	// Name tells labs apart that run side by side.
	Name  string `json:"name"`
	Zones []Zone `json:"zones"`
	// CrossZoneLatency is added to each round trip between two zones of a region,
	// CrossRegionLatency to each between two regions, where zero means the same.
	CrossZoneLatency   Duration `json:"crossZoneLatency,omitzero"`
	CrossRegionLatency Duration `json:"crossRegionLatency,omitzero"`
	Proxy              Proxy    `json:"proxy,omitempty"`
	// HA runs two API servers over one etcd.
	HA bool `json:"ha,omitempty"`
	// ControlPlaneOnly is a lab without network: the API, nodes and pods, but
	// nothing that would need root.
	ControlPlaneOnly bool `json:"controlPlaneOnly,omitempty"`
	// FakeNodes are nodes without network that come in addition to those of the
	// zones, for tests of scale. They are spread over the zones in turn.
	FakeNodes int `json:"fakeNodes,omitempty"`
	// SingleStack leaves out IPv6.
	SingleStack bool `json:"singleStack,omitempty"`
	// AgentPerNode runs an agent for each node instead of one for all.
	AgentPerNode bool   `json:"agentPerNode,omitempty"`
	Timing       Timing `json:"timing,omitzero"`
}

// Zone is a zone of the lab with its nodes.
type Zone struct {
	Name   string `json:"name"`
	Region string `json:"region"`
	Nodes  []Node `json:"nodes"`
}

// Node is one node. Zone and Region repeat what the zone that holds the node says.
type Node struct {
	Name string `json:"name"`
	// Index is the node's number in the lab, from 1. Addresses follow from it, so a
	// running node keeps it, and a node added later gets one never used before.
	Index  int    `json:"index"`
	Zone   string `json:"-"`
	Region string `json:"-"`
	// CPU and Memory are what the node offers to pods, as Kubernetes writes
	// quantities; Pods is how many it takes.
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	Pods   int    `json:"pods,omitempty"`
	// Labels come in addition to those that the lab puts on every node.
	Labels map[string]string `json:"labels,omitempty"`
	// Fake marks a node without network.
	Fake bool `json:"-"`
}

// Proxy says who programs Services on the nodes.
type Proxy string

// The proxies.
const (
	ProxyKubeProxy Proxy = "kube-proxy"
	ProxyVicinity  Proxy = "vicinity"
	ProxyBoth      Proxy = "both"
	ProxyNone      Proxy = "none"
)

// proxies are all there are, as an error lists them.
var proxies = []Proxy{ProxyKubeProxy, ProxyVicinity, ProxyBoth, ProxyNone}

// KubeProxy reports whether kube-proxy runs on the nodes.
func (p Proxy) KubeProxy() bool { return p == ProxyKubeProxy || p == ProxyBoth }

// Vicinity reports whether vicinity-proxy runs on the nodes.
func (p Proxy) Vicinity() bool { return p == ProxyVicinity || p == ProxyBoth }

// Timing is how soon the cluster notices that a node has gone. The defaults are much
// shorter than those of Kubernetes, which let a test of a failure wait for minutes.
type Timing struct {
	// LeaseDuration is what a node's Lease says, LeaseRenewal how often it is renewed.
	LeaseDuration Duration `json:"leaseDuration,omitzero"`
	LeaseRenewal  Duration `json:"leaseRenewal,omitzero"`
	// MonitorPeriod is how often the controller-manager looks at the Leases,
	// MonitorGrace how old one may be before its node is not ready.
	MonitorPeriod Duration `json:"monitorPeriod,omitzero"`
	MonitorGrace  Duration `json:"monitorGrace,omitzero"`
	// Toleration is how long pods stay bound to a node that is not ready.
	Toleration Duration `json:"toleration,omitzero"`
}

// mostRenewals is how many leases of nodes are renewed a second at most: more would
// leave a small machine no time for anything else.
const mostRenewals = 200

// DefaultTiming is that of a lab with so many nodes without network. With few, a node
// that stopped is not ready after about 10 seconds, with four renewals missed, and its
// pods are evicted half a minute later. With thousands all takes longer.
func DefaultTiming(fakeNodes int) Timing {
	t := Timing{
		LeaseDuration: Duration{10 * time.Second},
		LeaseRenewal:  Duration{2 * time.Second},
		MonitorPeriod: Duration{time.Second},
		MonitorGrace:  Duration{9 * time.Second},
		Toleration:    Duration{30 * time.Second},
	}
	if slow := time.Duration(fakeNodes) * time.Second / mostRenewals; slow > t.LeaseRenewal.Duration {
		t.LeaseRenewal = Duration{slow}
		t.LeaseDuration = Duration{(5 * slow).Round(time.Second)}
		t.MonitorPeriod = Duration{5 * time.Second}
		t.MonitorGrace = Duration{4*slow + time.Second}
	}
	return t
}

// WithFakeNodes is the shape with so many nodes without network, and with the timing
// for them where the shape's own is the usual one.
func (s Shape) WithFakeNodes(number int) Shape {
	if s.Timing == DefaultTiming(s.FakeNodes) {
		s.Timing = DefaultTiming(number)
	}
	s.FakeNodes = number
	return s
}

// What a lab and a node are when nobody says otherwise.
const (
	DefaultName   = "default"
	DefaultRegion = "local"

	defaultCPU          = "4"
	defaultMemory       = "8Gi"
	defaultPods         = 110
	defaultNodesPerZone = 2
)

// Default is the lab of a user who asks for nothing: three zones with two nodes each.
func Default() Shape {
	s := Shape{Name: DefaultName}
	for _, name := range []string{"zone-a", "zone-b", "zone-c"} {
		s.Zones = append(s.Zones, Zone{Name: name, Nodes: make([]Node, defaultNodesPerZone)})
	}
	s.complete()
	return s
}

// complete fills in what the user left out. What was said stays, right or wrong, for
// Validate to judge.
func (s *Shape) complete() {
	s.Name, s.Proxy = cmp.Or(s.Name, DefaultName), cmp.Or(s.Proxy, ProxyKubeProxy)
	s.Timing = s.Timing.complete(s.FakeNodes)

	next := s.NextIndex()
	for z := range s.Zones {
		zone := &s.Zones[z]
		zone.Region = cmp.Or(zone.Region, DefaultRegion)
		// In JSON a zone without nodes differs from one that leaves their number open.
		if zone.Nodes == nil {
			zone.Nodes = []Node{}
		}
		for n := range zone.Nodes {
			node := &zone.Nodes[n]
			if node.Name == "" {
				node.Name = fmt.Sprintf("%s-%d", zone.Name, n+1)
			}
			if node.Index == 0 {
				node.Index = next
				next++
			}
			*node = zone.place(*node)
		}
	}
}

// place gives a node its place in the zone, and what it offers where it says nothing.
func (z Zone) place(n Node) Node {
	n.Zone, n.Region = z.Name, z.Region
	n.CPU, n.Memory, n.Pods = cmp.Or(n.CPU, defaultCPU), cmp.Or(n.Memory, defaultMemory), cmp.Or(n.Pods, defaultPods)
	return n
}

func (t Timing) complete(fakeNodes int) Timing {
	usual := DefaultTiming(fakeNodes)
	return Timing{
		LeaseDuration: cmp.Or(t.LeaseDuration, usual.LeaseDuration),
		LeaseRenewal:  cmp.Or(t.LeaseRenewal, usual.LeaseRenewal),
		MonitorPeriod: cmp.Or(t.MonitorPeriod, usual.MonitorPeriod),
		MonitorGrace:  cmp.Or(t.MonitorGrace, usual.MonitorGrace),
		Toleration:    cmp.Or(t.Toleration, usual.Toleration),
	}
}

// Nodes are the nodes with a network, in the order of their zones.
func (s Shape) Nodes() []Node {
	var nodes []Node
	for _, zone := range s.Zones {
		nodes = append(nodes, zone.Nodes...)
	}
	return nodes
}

// Node finds a node that has a network by its name.
func (s Shape) Node(name string) (Node, bool) {
	for _, zone := range s.Zones {
		for _, node := range zone.Nodes {
			if node.Name == name {
				return node, true
			}
		}
	}
	return Node{}, false
}

// Zone finds a zone by its name.
func (s Shape) Zone(name string) (Zone, bool) {
	i := slices.IndexFunc(s.Zones, func(z Zone) bool { return z.Name == name })
	if i < 0 {
		return Zone{}, false
	}
	return s.Zones[i], true
}

// LabelFake marks the nodes without network, so that pods can be told to run there or
// not to.
const LabelFake = "lab.vicinity.dev/fake"

// FakeNodeList are the nodes without network, fake-1 and so on. Their indices count
// down from the highest that has addresses, out of the way of nodes added later.
func (s Shape) FakeNodeList() []Node {
	nodes := make([]Node, s.FakeNodes)
	for i := range nodes {
		zone := s.Zones[i%len(s.Zones)]
		nodes[i] = zone.place(Node{
			Name: fmt.Sprintf("fake-%d", i+1), Index: MaxIndex - i, Fake: true,
			Labels: map[string]string{LabelFake: "true"},
		})
	}
	return nodes
}

// NextIndex is an index that no node with a network has.
func (s Shape) NextIndex() int {
	highest := 0
	for _, node := range s.Nodes() {
		highest = max(highest, node.Index)
	}
	return highest + 1
}

// With is the shape with a node more, in the zone that the node names; a zone not
// there yet begins with it. A name, an index and what the node offers are filled in
// where they are missing; the node that came of it is returned too.
//
// An index is never used twice while the lab runs: the caller gives one above all
// that were, where nodes were removed before.
func (s Shape) With(node Node) (Shape, Node, error) {
	s.Zones = slices.Clone(s.Zones)
	at := slices.IndexFunc(s.Zones, func(z Zone) bool { return z.Name == node.Zone })
	if at < 0 {
		at = len(s.Zones)
		s.Zones = append(s.Zones, Zone{Name: node.Zone, Region: node.Region})
	}
	zone := &s.Zones[at]
	if node.Region != "" && node.Region != zone.Region {
		return Shape{}, Node{}, fmt.Errorf("region %q of node %q: zone %q is in region %q",
			node.Region, node.Name, zone.Name, zone.Region)
	}
	if node.Name == "" {
		node.Name = s.freeName(zone.Name, len(zone.Nodes)+1)
	}
	zone.Nodes = append(slices.Clone(zone.Nodes), node)
	s.complete()
	return s, zone.Nodes[len(zone.Nodes)-1], s.Validate()
}

// freeName is the first name of a node in a zone that no node has, from a number on.
func (s Shape) freeName(zone string, n int) string {
	for ; ; n++ {
		name := fmt.Sprintf("%s-%d", zone, n)
		if _, taken := s.Node(name); !taken {
			return name
		}
	}
}

// Without is the shape with a node less. The zone stays, also without nodes.
func (s Shape) Without(name string) Shape {
	s.Zones = slices.Clone(s.Zones)
	for i := range s.Zones {
		s.Zones[i].Nodes = slices.DeleteFunc(slices.Clone(s.Zones[i].Nodes), func(n Node) bool { return n.Name == name })
	}
	return s
}
