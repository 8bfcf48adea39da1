// Package view describes how one node sees the Services of a cluster: its groups, the options of compile, and the part of the
// kernel's table that belongs to one Service.
//
// It reads neither clusters nor kernels. The proxy, its dry run and vicinity explain --node use it.
package view

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/nodenet"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology/netset"
)

// Settings has the settings of a proxy for all Services.
type Settings struct {
	// AllServices also serves Services without groups.
	AllServices bool
	// MasqueradeAll masquerades all connections to addresses of Services. MasqueradeMark marks packets to masquerade.
	MasqueradeAll  bool
	MasqueradeMark uint32
	Pods           Pods
	NodePorts      NodePorts
	ExternalIPs    compile.ExternalIPs
	// MaxAffinityClients bounds the remembered clients of each port with affinity.
	MaxAffinityClients int
	// Elements bounds the kernel's elements of Services.
	Elements Bounds
	// WithoutIPv6 says that the node's kernel lacks IPv6, so that Services have only IPv4.
	WithoutIPv6 bool
	// ServiceRanges has the ranges of cluster IPs, and APIServer the addresses of the API server, as far as known.
	ServiceRanges, APIServer netset.Set
}

// Families returns the families of the node.
func (s *Settings) Families() []ruleset.Family {
	if s.WithoutIPv6 {
		return ruleset.Families[:1]
	}
	return ruleset.Families
}

// Reserved returns the addresses of the cluster, without those of Services: the addresses of the node, nil if unknown, and the
// published ones of all nodes and their pods. Of the node's interfaces, only the addresses in the Node object count: load
// balancers have addresses on interfaces, too.
func (s *Settings) Reserved(node *corev1.Node, nodes, pods netset.Set) compile.Reserved {
	if node != nil {
		nodes, pods = nodes.Union(netset.Of(nodenet.Addresses(node)...)), pods.Union(netset.New(nodenet.PodPrefixes(node)))
	}
	return compile.Reserved{ServiceRanges: s.ServiceRanges, APIServer: s.APIServer, Nodes: nodes, Pods: pods}
}

// Config returns the configuration of a family's table on a node, nil if unknown. Without AllServices, kube-proxy handles
// unassigned cluster IPs.
func (s *Settings) Config(family ruleset.Family, node *corev1.Node) ruleset.Config {
	c := ruleset.Config{Family: family, MasqueradeMark: s.MasqueradeMark, MasqueradeAll: s.MasqueradeAll, MaxAffinityClients: s.MaxAffinityClients}
	if s.AllServices {
		c.ServiceRanges = s.ServiceRanges.Prefixes()
	}
	s.Pods.Configure(&c, node)
	return c
}

// Options returns the options of compile for a node, the zone of its groups, and the addresses of its interfaces.
func (s *Settings) Options(node *corev1.Node, zone string, local []netip.Addr) compile.Options {
	named := nodenet.Addresses(node)
	return compile.Options{
		AllServices: s.AllServices, ExternalIPs: s.ExternalIPs, MaxAffinityClients: s.MaxAffinityClients, Families: s.Families(),
		Node: compile.Node{
			Name: node.Name, Zone: zone, Labels: node.Labels, Addresses: named,
			NodePortAddresses: s.NodePorts.Of(local, named),
		},
	}
}

// GroupSelector returns the label selector of the groups for a zone. Nodes without a zone see all groups. It excludes groups of
// headless Services, which are for DNS.
func GroupSelector(zone string) string {
	selector := "!" + corev1.IsHeadlessService
	if zone != "" {
		selector += ",!" + v1alpha1.LabelNotForPrefix + zone
	}
	return selector
}
