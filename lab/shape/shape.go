// Package shape describes a lab: its zones and nodes, their capacity, and all names and
// addresses.
//
// A Shape is a value. It comes from Default or from Options (the flags of a command), and is then
// complete: each node has a name, an index and a capacity. Names and addresses are derived only from
// the lab's name and the node's index, so that each part of a lab can compute them. The package only
// describes: other packages make the lab.
package shape

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Shape describes a lab.
type Shape struct {
	// Name distinguishes labs that run side by side.
	Name  string `json:"name"`
	Zones []Zone `json:"zones"`
	Proxy Proxy  `json:"proxy,omitempty"`
	// DNS may be empty; DNSServer has the default.
	DNS DNS `json:"dns,omitempty"`
	// ControlPlaneOnly is a lab without network: it has the API, nodes and pods as objects,
	// and needs no root.
	ControlPlaneOnly bool `json:"controlPlaneOnly,omitempty"`
	// FakeNodes is the number of additional nodes without network, for tests of scale. They are
	// spread over the zones.
	FakeNodes int `json:"fakeNodes,omitempty"`
	// SingleStack omits IPv6.
	SingleStack bool `json:"singleStack,omitempty"`
	// EvictionRequests makes the API server serve the alpha API of EvictionRequests. The oldest
	// supported release does not have it.
	EvictionRequests bool   `json:"evictionRequests,omitempty"`
	Timing           Timing `json:"timing,omitzero"`
}

// Zone is a zone of the lab with its nodes.
type Zone struct {
	Name   string `json:"name"`
	Region string `json:"region"`
	Nodes  []Node `json:"nodes"`
}

// Node is a node. Zone and Region come from the zone that contains it.
type Node struct {
	Name string `json:"name"`
	// Index is the node's number in the lab, from 1. Addresses are derived from it, so it
	// never changes and is never reused.
	Index  int    `json:"index"`
	Zone   string `json:"zone"`
	Region string `json:"region"`
	// CPU and Memory are the node's capacity as Kubernetes quantities.
	CPU    string `json:"cpu,omitempty"`
	Memory string `json:"memory,omitempty"`
	// Labels are set in addition to the labels that the lab sets on every node.
	Labels map[string]string `json:"labels,omitempty"`
}

// Proxy names the proxies that program Services on the nodes.
type Proxy string

// The values of Proxy.
const (
	ProxyKubeProxy Proxy = "kube-proxy"
	ProxyVicinity  Proxy = "vicinity"
	ProxyBoth      Proxy = "both"
	ProxyNone      Proxy = "none"
)

var proxies = []Proxy{ProxyKubeProxy, ProxyVicinity, ProxyBoth, ProxyNone}

// KubeProxy reports whether kube-proxy runs on the nodes.
func (p Proxy) KubeProxy() bool { return p == ProxyKubeProxy || p == ProxyBoth }

// Vicinity reports whether vicinity-proxy runs on the nodes.
func (p Proxy) Vicinity() bool { return p == ProxyVicinity || p == ProxyBoth }

// DNS is the kind of the cluster's DNS server.
type DNS string

// The values of DNS.
const (
	// DNSVicinity is vicinity-dns. DNSCoreDNS is the same program without the plugin vicinity.
	DNSVicinity DNS = "vicinity"
	DNSCoreDNS  DNS = "coredns"
	DNSNone     DNS = "none"
)

var dnsServers = []DNS{DNSVicinity, DNSCoreDNS, DNSNone}

// WhyNoDNS returns why a DNS server cannot work in a lab. It is empty if one can.
func (s Shape) WhyNoDNS() string {
	switch {
	case s.ControlPlaneOnly:
		return "pods do not run in a lab that is only a control plane"
	case s.Proxy == ProxyNone:
		return "without a proxy on the nodes no pod reaches it by its Service"
	case len(s.Nodes()) == 0:
		return "there is no node to run it on"
	}
	return ""
}

// DNSServer is the DNS server of the shape, or vicinity-dns by default where one can work.
func (s Shape) DNSServer() DNS {
	switch {
	case s.DNS != "":
		return s.DNS
	case s.WhyNoDNS() != "":
		return DNSNone
	}
	return DNSVicinity
}

// Duration is written with its unit, as in 2ms.
type Duration = metav1.Duration

// Timing sets how soon the cluster notices that a node has failed. The defaults are much shorter
// than the defaults of Kubernetes, so that tests of failures take seconds.
type Timing struct {
	// LeaseDuration is the duration of a node's Lease. LeaseRenewal is the period of its renewal.
	LeaseDuration Duration `json:"leaseDuration,omitzero"`
	LeaseRenewal  Duration `json:"leaseRenewal,omitzero"`
	// MonitorPeriod is the period in which the controller-manager checks Leases. MonitorGrace is
	// the age of a Lease at which its node becomes not ready.
	MonitorPeriod Duration `json:"monitorPeriod,omitzero"`
	MonitorGrace  Duration `json:"monitorGrace,omitzero"`
	// Toleration is how long pods stay bound to a node that is not ready.
	Toleration Duration `json:"toleration,omitzero"`
}

// Impairment describes the harm of a zone's uplink to each packet that leaves or enters the zone.
type Impairment struct {
	// Loss is the percentage of packets that are lost.
	Loss int `json:"loss"`
	// Delay is how much later the other packets arrive.
	Delay Duration `json:"delay"`
}

// maxRenewals limits the lease renewals per second on a small machine.
const maxRenewals = 200

// timingFor returns the timing for a number of nodes without network. With few, a failed node
// becomes not ready after about 10 seconds, or four missed renewals, and its pods are evicted 30
// seconds later. With thousands of nodes, noticing a failure takes longer.
func timingFor(fakeNodes int) Timing {
	t := Timing{
		LeaseDuration: Duration{Duration: 10 * time.Second},
		LeaseRenewal:  Duration{Duration: 2 * time.Second},
		MonitorPeriod: Duration{Duration: time.Second},
		MonitorGrace:  Duration{Duration: 9 * time.Second},
		Toleration:    Duration{Duration: 30 * time.Second},
	}
	if slow := time.Duration(fakeNodes) * time.Second / maxRenewals; slow > t.LeaseRenewal.Duration {
		t.LeaseRenewal = Duration{Duration: slow}
		t.LeaseDuration = Duration{Duration: (5 * slow).Round(time.Second)}
		t.MonitorPeriod = Duration{Duration: 5 * time.Second}
		t.MonitorGrace = Duration{Duration: 4*slow + time.Second}
	}
	return t
}

// Defaults of a lab and of its nodes.
const (
	DefaultName   = "default"
	DefaultRegion = "local"

	defaultCPU          = "4"
	defaultMemory       = "8Gi"
	defaultNodesPerZone = 2
)

// PodsPerNode is the capacity of a node for pods.
const PodsPerNode = 110

// Default returns a lab of three zones with two nodes each.
func Default() Shape {
	s, err := FromOptions(Options{})
	if err != nil {
		panic(err) // the defaults are valid
	}
	return s
}

// complete sets missing values of zones and nodes. It leaves invalid ones to Validate.
func (s *Shape) complete() {
	next := s.NextIndex()
	for z := range s.Zones {
		zone := &s.Zones[z]
		zone.Region = cmp.Or(zone.Region, DefaultRegion)
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

func (z Zone) place(n Node) Node {
	n.Zone, n.Region = z.Name, z.Region
	n.CPU, n.Memory = cmp.Or(n.CPU, defaultCPU), cmp.Or(n.Memory, defaultMemory)
	return n
}

// Nodes returns the nodes with a network, in the order of their zones.
func (s Shape) Nodes() []Node {
	var nodes []Node
	for _, zone := range s.Zones {
		nodes = append(nodes, zone.Nodes...)
	}
	return nodes
}

// Node finds a node with a network by its name.
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

// LabelFake marks nodes without network, for selectors of pods.
const LabelFake = "lab.vicinity.dev/fake"

// AnnotationStartTime on a pod sets how long the pod takes to become ready on a node without
// network, such as 2s. Without it the pod is ready at once.
const AnnotationStartTime = "lab.vicinity.dev/start-time"

// FakeNodeList returns the nodes without network, fake-1 and so on. Their indices count down from
// MaxIndex, so that they do not collide with later nodes.
func (s Shape) FakeNodeList() []Node {
	nodes := make([]Node, s.FakeNodes)
	for i := range nodes {
		zone := s.Zones[i%len(s.Zones)]
		nodes[i] = zone.place(Node{
			Name: fmt.Sprintf("fake-%d", i+1), Index: MaxIndex - i,
			Labels: map[string]string{LabelFake: "true"},
		})
	}
	return nodes
}

// NextIndex returns the index after the highest index of a node with a network.
func (s Shape) NextIndex() int {
	highest := 0
	for _, node := range s.Nodes() {
		highest = max(highest, node.Index)
	}
	return highest + 1
}

// With returns the shape with one more node, and the node with its defaults set. The node's zone
// may be new.
//
// An index must not be reused while the lab runs. If nodes were removed, the caller sets an index
// that was never used.
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

func (s Shape) freeName(zone string, n int) string {
	for ; ; n++ {
		name := fmt.Sprintf("%s-%d", zone, n)
		if _, taken := s.Node(name); !taken {
			return name
		}
	}
}

// Without returns the shape without a node. It keeps the node's zone, even if that is empty.
func (s Shape) Without(name string) Shape {
	s.Zones = slices.Clone(s.Zones)
	for i := range s.Zones {
		s.Zones[i].Nodes = slices.DeleteFunc(slices.Clone(s.Zones[i].Nodes), func(n Node) bool { return n.Name == name })
	}
	return s
}
