// Package compile says what the rules of one node are to do for a Service.
//
// It reads a Service with its endpoints, as EndpointGroups give them to the node's zone
// or as EndpointSlices give them to every node, and what the node is. What comes out is
// data of package ruleset. Where groups say nothing else the outcome is that of
// kube-proxy: which addresses of a Service count, which endpoints traffic policies
// allow, who may connect, what is refused.
//
// The package does not read clusters or clocks, does not write rules, and never changes
// what it is given. The same input in another order has the same outcome.
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

// Options are what holds for all Services.
type Options struct {
	Node Node
	// Families are those that the node has, nil for both. Of a Service nothing is compiled in
	// another, and nothing counts.
	Families []ruleset.Family
	// AllServices says to serve Services without groups too, by their slices, as
	// kube-proxy does.
	AllServices bool
	// Addresses are those that Services have and may not claim, and ExternalIPs which of
	// the others they may.
	Addresses   *AddressBook
	ExternalIPs ExternalIPs
	// MaxAffinityClients is that of ruleset.Config.
	MaxAffinityClients int
}

// Node is the node that the rules are for.
type Node struct {
	Name string
	// Zone is the value of the label topology.kubernetes.io/zone, empty if there is
	// none.
	Zone string
	// Labels are those of the node. Only those that tiers name are looked at.
	Labels map[string]string
	// Addresses are the node's own, of both families: those that its object names. A
	// load balancer's address may connect to itself if the ranges that may connect
	// have one of them.
	Addresses []netip.Addr
	// NodePortAddresses are those that take NodePorts, of both families. Loopback
	// addresses among them take none.
	NodePortAddresses []netip.Addr
}

// Has reports whether the node has a family.
func (o *Options) Has(family ruleset.Family) bool {
	return o.Families == nil || slices.Contains(o.Families, family)
}

// Input is a Service with what there is of its endpoints. Groups and slices may be in
// any order, and those of other Services do not count.
type Input struct {
	// Service is nil if there is none any more.
	Service *corev1.Service
	// Groups are those that the node sees. Of one with the label that keeps it from
	// the node's zone only what is on the node counts.
	Groups []*v1alpha1.EndpointGroup
	// Slices are looked at only with Options.AllServices.
	Slices []*discoveryv1.EndpointSlice
	// MaxElements bounds what the rules may take of the kernel, as package ruleset counts
	// it, in both families together. Zero is no bound.
	MaxElements int
	// NodeBound says that MaxElements is what this node has left, so that other nodes may have
	// room for more. Otherwise it is the same on all of them.
	NodeBound bool
}

// Result is what the rules are to do for one Service.
type Result struct {
	// Families are those that the rules have something to do for, IPv4 first. None
	// means that the rules do nothing for the Service: it is gone, has no address,
	// belongs to another proxy or is kube-proxy's still.
	Families []Family
	// Refused are the addresses that the Service claims and does not get.
	Refused Refusals
	// Elements is what all of the Service takes of the kernel at most. If that is more than
	// Input.MaxElements, the families have a part of it, which is not.
	Elements int
	// Least is what all its ports take at the cluster IPs with one endpoint each. In less
	// some are left out.
	Least int
	// Notes are sentences about what was ignored, in a fixed order.
	Notes []string
}

// Family is what the rules of one family are to do for a Service.
type Family struct {
	Family ruleset.Family
	// Ports are in the order of the Service's.
	Ports []ruleset.ServicePort
	// Elements is what they take of the kernel at most, with the endpoints on the node.
	Elements int
	// Endpoints are all that the node knows of, used or not.
	Endpoints Endpoints
	// Health is what a load balancer asks for, nil if it asks kube-proxy, or nobody.
	Health *HealthCheck
	// Unreachable are the ports, by the names that Ports has, with endpoints that hard
	// tiers keep from this node, and with none that they allow it.
	Unreachable []string
}

// HealthCheck is what is to be answered at a healthCheckNodePort.
type HealthCheck struct {
	Port uint16
	// LocalEndpoints is the number of addresses on the node with an endpoint that is
	// ready. One that is about to go does not count though it may get traffic.
	LocalEndpoints int
}

// Endpoint is where an endpoint is.
type Endpoint struct {
	Address netip.Addr
	// Zone is empty if it is unknown.
	Zone string
	// OnNode says that it is on the node itself, so that connections from it to it need
	// another source address.
	OnNode bool
}

// Endpoints are in the order of addresses, each of which is there once.
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

// portKey is what the ports of a Service and those of its endpoints have in common.
type portKey struct {
	name     string
	protocol ruleset.Protocol
}

// supply is the endpoints of one port for the traffic of this node.
type supply struct {
	// cluster are those for traffic that may go anywhere, with their weights unless these
	// are all the same, and local those for traffic that must stay on the node.
	cluster, local []netip.AddrPort
	weights        []uint32
	// exists says that there are endpoints that take traffic, here or elsewhere.
	exists bool
	// beyond says that there are, and that hard tiers keep all of them from the node.
	beyond bool
	known  ruleset.Known
}

// need is which endpoints a port needs for its addresses.
type need struct{ cluster, local bool }

// lacks reports whether the supply has nothing for something that is needed.
func (n need) lacks(s supply) bool {
	return n.cluster && len(s.cluster) == 0 || n.local && len(s.local) == 0
}

// directory knows the endpoints of a Service in one family.
type directory interface {
	// supply finds the endpoints of a port.
	supply(port portKey, n need) supply
	// endpoints are all there are.
	endpoints() Endpoints
	// localReady counts addresses on the node with an endpoint that is ready, and onNode
	// all those on the node.
	localReady() int
	onNode() int
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

// portOf reads the number of a port.
func portOf(number int32) (uint16, bool) {
	return uint16(number), number > 0 && number <= 65535
}

// compareFronts orders fronts.
func compareFronts(a, b ruleset.Front) int {
	return cmp.Or(a.Address.Compare(b.Address), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol))
}
