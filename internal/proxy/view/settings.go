// Package view is how one node looks at the Services of a cluster: which groups it sees,
// what it compiles Services for, and which part of what its kernel holds is about one of
// them.
//
// It reads neither clusters nor kernels: the proxy, its dry run and vicinity explain --node
// all go by it.
package view

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology/netset"
)

// Settings are what a proxy is told about all Services.
type Settings struct {
	// AllServices has Services without groups served too.
	AllServices bool
	// MasqueradeAll gives all connections to addresses of Services the node's address as
	// their source, and MasqueradeMark is the bit of packet marks that says so.
	MasqueradeAll  bool
	MasqueradeMark uint32
	// Pods tells traffic of pods from other traffic.
	Pods Pods
	// NodePorts are the addresses that take NodePorts.
	NodePorts NodePorts
	// ExternalIPs are the addresses that Services may claim besides their own.
	ExternalIPs compile.ExternalIPs
	// MaxAffinityClients is how many clients each map of a port with affinity remembers.
	MaxAffinityClients int
	// Elements bounds what Services take of the kernel.
	Elements Bounds
	// WithoutIPv6 says that the node's kernel does not have IPv6, so that Services have IPv4
	// alone.
	WithoutIPv6 bool
	// ServiceRanges are where cluster IPs are from, and APIServer are the addresses by which
	// the API server is reached, as far as they are known.
	ServiceRanges, APIServer netset.Set
}

var families = []ruleset.Family{ruleset.IPv4, ruleset.IPv6}

// Families are those that the node has.
func (s *Settings) Families() []ruleset.Family {
	if s.WithoutIPv6 {
		return families[:1]
	}
	return families
}

// Reserved are the addresses of the cluster besides those of Services: those of a node, which
// is nil if it is not known, and what is published of all nodes and their pods. The addresses
// of the node's interfaces are not among them but for those that its object names: load
// balancers have their addresses there, too.
func (s *Settings) Reserved(node *corev1.Node, nodes, pods netset.Set) compile.Reserved {
	if node != nil {
		nodes, pods = nodes.Union(netset.Of(Addresses(node)...)), pods.Union(netset.New(PodPrefixes(node)))
	}
	return compile.Reserved{ServiceRanges: s.ServiceRanges, APIServer: s.APIServer, Nodes: nodes, Pods: pods}
}

// Config is what the table of a family goes by on a node, which is nil if it is not known.
// Beside kube-proxy it is that which knows what to do with addresses of cluster IPs that no
// Service has.
func (s *Settings) Config(family ruleset.Family, node *corev1.Node) ruleset.Config {
	c := ruleset.Config{Family: family, MasqueradeMark: s.MasqueradeMark, MasqueradeAll: s.MasqueradeAll, MaxAffinityClients: s.MaxAffinityClients}
	if s.AllServices {
		c.ServiceRanges = s.ServiceRanges.Prefixes()
	}
	s.Pods.Configure(&c, node)
	return c
}

// Options are what Services are compiled for: a node with the zone whose groups are known,
// and the addresses of its interfaces.
func (s *Settings) Options(node *corev1.Node, zone string, local []netip.Addr) compile.Options {
	named := Addresses(node)
	return compile.Options{
		AllServices: s.AllServices, ExternalIPs: s.ExternalIPs, MaxAffinityClients: s.MaxAffinityClients, Families: s.Families(),
		Node: compile.Node{
			Name: node.Name, Zone: zone, Labels: node.Labels, Addresses: named,
			NodePortAddresses: s.NodePorts.Of(local, named),
		},
	}
}

// GroupSelector selects the groups that nodes of a zone see. Those without a zone see all.
// Groups of headless Services are for DNS.
func GroupSelector(zone string) string {
	selector := "!" + corev1.IsHeadlessService
	if zone != "" {
		selector += ",!" + v1alpha1.LabelNotForPrefix + zone
	}
	return selector
}
