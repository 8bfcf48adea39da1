// Package compile decides what the rules of one node do for a Service.
//
// It takes a Service with its endpoints, from EndpointGroups or EndpointSlices, and the
// node, and returns data of package ruleset. Where groups do not differ the outcome is
// that of kube-proxy: which addresses count, which endpoints traffic policies allow, who
// may connect, what is refused.
//
// It never changes its input, and the order of the input does not matter.
package compile

import (
	"cmp"
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
	// AllServices has Services without groups served too, from their slices, as by kube-proxy.
	AllServices bool
	Addresses   *AddressBook // which Services may not claim
	ExternalIPs ExternalIPs
	// MaxAffinityClients is that of ruleset.Config.
	MaxAffinityClients int
}

// Node is the node that the rules are for.
type Node struct {
	Name   string
	Zone   string            // the value of the label topology.kubernetes.io/zone
	Labels map[string]string // that tiers may name
	// Addresses are the node's own, from its object.
	Addresses []netip.Addr
	// NodePortAddresses take NodePorts, except loopback addresses.
	NodePortAddresses []netip.Addr
}

// Has reports whether the node has a family.
func (o *Options) Has(family ruleset.Family) bool {
	return o.Families == nil || slices.Contains(o.Families, family)
}

// Input is a Service with its endpoints. Groups and slices of other Services are ignored.
type Input struct {
	Service *corev1.Service              // nil if it is deleted
	Groups  []*v1alpha1.EndpointGroup    // that the node receives
	Slices  []*discoveryv1.EndpointSlice // used with Options.AllServices
	// MaxElements bounds the kernel elements of both families, as package ruleset counts them.
	// Zero is no bound.
	MaxElements int
	// NodeBound says that MaxElements is what this node has left: others may have more room.
	NodeBound bool
}

// Result is what the rules do for one Service.
type Result struct {
	// Families have rules, IPv4 first. There are none if the Service is gone, has no address, or
	// is served by another proxy.
	Families []Family
	Refused  Refusals
	// Elements is how many the whole Service takes at most. If Input.MaxElements is less,
	// Families have a part of it.
	Elements int
	// Least is what all ports take at the cluster IPs with one endpoint each. With less room, some
	// ports are left out.
	Least int
	// Notes are sentences about what was ignored, in a fixed order.
	Notes []string
}

// Family is what the rules of one family do for a Service.
type Family struct {
	Family    ruleset.Family
	Ports     []ruleset.ServicePort // in the order of the Service's
	Elements  int                   // how many they take at most, with the endpoints on the node
	Endpoints Endpoints             // all that the node knows, used or not
	Health    *HealthCheck          // nil if this proxy answers no health checks
	// Unreachable names the ports all of whose endpoints hard tiers keep from this node.
	Unreachable []string
}

// HealthCheck is the answer at a healthCheckNodePort.
type HealthCheck struct {
	Port uint16
	// LocalEndpoints counts the addresses on the node with a ready endpoint. An endpoint that
	// terminates does not count, though it may get traffic.
	LocalEndpoints int
}

// Endpoint is where an endpoint is.
type Endpoint struct {
	Address netip.Addr
	Zone    string // empty if it is unknown
	OnNode  bool   // connections to itself need another source address
}

// Endpoints are in the order of addresses, each address once.
type Endpoints []Endpoint

// Find finds the endpoint with an address.
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

// supply is the endpoints of one port for the traffic of this node.
type supply struct {
	// cluster are for traffic that may go anywhere, with weights unless all are the same;
	// local are for traffic that must stay on the node.
	cluster, local []netip.AddrPort
	weights        []uint32
	exists         bool // some endpoint takes traffic, here or elsewhere
	beyond         bool // hard tiers keep all endpoints from the node
	known          ruleset.Known
}

// need says which endpoints a port needs for its addresses.
type need struct{ cluster, local bool }

// lacks reports whether the supply has none of some that are needed.
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

// protocolOf reads the name of a protocol. Without a name it is TCP, as in the API.
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

func compareFronts(a, b ruleset.Front) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}
