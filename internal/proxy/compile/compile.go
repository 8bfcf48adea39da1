// Package compile decides what the rules of one node do for a Service.
//
// It takes a Service, its endpoints from EndpointGroups or EndpointSlices, and the node, and returns data of package ruleset.
// Except for the choice of endpoints by groups, the result is that of kube-proxy: the addresses, the endpoints that traffic
// policies allow, the allowed clients, and the refused connections.
//
// It never changes its input, and the order of the input does not matter.
package compile

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Options hold for all Services.
type Options struct {
	Node     Node
	Families []ruleset.Family // of the node, nil for both
	// AllServices also serves Services without groups, from their slices, like kube-proxy.
	AllServices bool
	Addresses   *AddressBook // that Services may not claim
	ExternalIPs ExternalIPs
	// MaxAffinityClients is ruleset.Config.MaxAffinityClients.
	MaxAffinityClients int
}

// Node is the node that the rules are for.
type Node struct {
	Name   string
	Zone   string            // the value of the label topology.kubernetes.io/zone
	Labels map[string]string // for tiers
	// Addresses has the addresses in the Node object.
	Addresses []netip.Addr
	// NodePortAddresses has the addresses for NodePorts. Loopback addresses are ignored.
	NodePortAddresses []netip.Addr
}

// Has reports whether the node has a family.
func (o *Options) Has(family ruleset.Family) bool {
	return o.Families == nil || slices.Contains(o.Families, family)
}

// Input is a Service with its endpoints. Groups and slices of other Services are ignored.
type Input struct {
	Service *corev1.Service              // nil if it is deleted
	Groups  []*v1alpha1.EndpointGroup    // received by the node
	Slices  []*discoveryv1.EndpointSlice // used with Options.AllServices
	// MaxElements bounds the kernel elements of both families, as package ruleset counts them. Zero is no bound.
	MaxElements int
	// NodeBound means that MaxElements depends on this node: other nodes may have more room.
	NodeBound bool
}

// Result describes the rules of one Service.
type Result struct {
	// Families has the families with rules, IPv4 first. It is empty if the Service is deleted, has no address, or is served
	// by another proxy.
	Families []Family
	Refused  Refusals
	// Elements is the upper bound for the whole Service. If Input.MaxElements is lower, Families has a part of the Service.
	Elements int
	// Least is the need of all ports at the cluster IPs with one endpoint each. With less room, some ports are left out.
	Least int
	// Notes has sentences about ignored parts, in a fixed order.
	Notes []string
}

// Family describes the rules of one family for a Service.
type Family struct {
	Family    ruleset.Family
	Ports     []ruleset.ServicePort // in the order of the Service's ports
	Elements  int                   // the upper bound for the ports and the endpoints on the node
	Endpoints Endpoints             // all known endpoints, used or not
	// Reached is how many endpoints get connections from outside that arrive at the node, of the port with the most.
	Reached int
	Health  *HealthCheck // nil if this proxy answers no health checks
	// Unreachable names the ports whose endpoints are all excluded from this node by hard tiers.
	Unreachable []string
}

// HealthCheck is the answer at a healthCheckNodePort.
type HealthCheck struct {
	Port uint16
	// LocalEndpoints counts the addresses on the node with a ready endpoint. A terminating endpoint does not count, although
	// it may get traffic.
	LocalEndpoints int
}

// Endpoint is the location of an endpoint.
type Endpoint struct {
	Address netip.Addr
	Zone    string // empty if unknown
	OnNode  bool   // connections to itself need another source address
}

// Endpoints are sorted by address, each address once.
type Endpoints []Endpoint

// Find returns the endpoint with an address.
func (e Endpoints) Find(address netip.Addr) (Endpoint, bool) {
	i, found := slices.BinarySearchFunc(e, address, func(have Endpoint, wanted netip.Addr) int {
		return have.Address.Compare(wanted)
	})
	if !found {
		return Endpoint{}, false
	}
	return e[i], true
}

type portKey struct {
	name     string
	protocol ruleset.Protocol
}

// supply has the endpoints of one port for the traffic of this node.
type supply struct {
	// cluster has the endpoints for traffic that may go anywhere, local those for traffic that must stay on the node.
	cluster, local []netip.AddrPort
	weights        []uint32 // of cluster, nil if all are equal
	exists         bool     // an endpoint takes traffic, here or elsewhere
	beyond         bool     // hard tiers exclude all endpoints
	known          ruleset.Known
}

// need has the pools that a port needs for its addresses.
type need struct{ cluster, local bool }

// lacks reports whether a needed pool of the supply is empty.
func (n need) lacks(s supply) bool {
	return n.cluster && len(s.cluster) == 0 || n.local && len(s.local) == 0
}

// directory has the endpoints of a Service in one family.
type directory interface {
	supply(port portKey, n need) supply
	endpoints() Endpoints
	localReady() int // addresses on the node with a ready endpoint
	onNode() int     // addresses on the node
}

// protocolOf reads the name of a protocol. An empty name is TCP, as in the API.
func protocolOf(name corev1.Protocol) (ruleset.Protocol, bool) {
	switch name {
	case corev1.ProtocolTCP, "":
		return ruleset.TCP, true
	case corev1.ProtocolUDP:
		return ruleset.UDP, true
	case corev1.ProtocolSCTP:
		return ruleset.SCTP, true
	}
	return 0, false
}

func portOf(number int32) (uint16, bool) {
	return uint16(number), number > 0 && number <= 65535
}
