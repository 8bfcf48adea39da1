package compile

import (
	"fmt"
	"iter"
	"maps"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology/netset"
)

// ExternalIPs limits the addresses that Services may claim by spec.externalIPs. The zero value allows all addresses
// outside of the cluster.
type ExternalIPs struct {
	// None allows none.
	None bool
	// Prefixes, if any, allow only addresses in them. They also allow addresses of nodes, even for load balancers.
	Prefixes []netip.Prefix
}

func (e *ExternalIPs) within(a netip.Addr) bool {
	return slices.ContainsFunc(e.Prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// allow reports whether an address may be one of spec.externalIPs.
func (e *ExternalIPs) allow(a netip.Addr) bool {
	return !e.None && (len(e.Prefixes) == 0 || e.within(a))
}

// The fields by which a Service claims addresses.
const (
	fieldExternalIPs  = "spec.externalIPs"
	fieldLoadBalancer = "status.loadBalancer.ingress"
)

// Reason is why an address is refused.
type Reason string

// The reasons.
const (
	RefusedClusterIP    Reason = "cluster-ip"    // it is the cluster IP of another Service
	RefusedServiceRange Reason = "service-range" // it is in a range of cluster IPs
	RefusedAPIServer    Reason = "api-server"    // it is an address of the API server
	RefusedNode         Reason = "node"          // it is an address of a node
	RefusedNodePort     Reason = "node-port"     // the port is a NodePort of another Service, on a node's address
	RefusedBalancer     Reason = "load-balancer" // another Service's load balancer has it, at the same port
	RefusedPod          Reason = "pod-range"     // it is in a range of pods
	RefusedSpecial      Reason = "special"       // it is loopback, multicast or the like
	RefusedByPolicy     Reason = "not-allowed"   // --external-ips does not allow it
	RefusedTooMany      Reason = "too-many"      // it is beyond MaxClaims
)

const (
	// MaxClaims bounds the addresses that a Service may claim besides its cluster IPs: those of its load balancer, then
	// external IPs. More are not read: a Service can list tens of thousands.
	MaxClaims = 1000
	// keptRefusals bounds the named refused addresses of a Service.
	keptRefusals = 10
)

// Reasons returns all reasons.
func Reasons() []Reason {
	return []Reason{
		RefusedClusterIP, RefusedServiceRange, RefusedAPIServer, RefusedNode, RefusedNodePort, RefusedBalancer, RefusedPod, RefusedSpecial, RefusedByPolicy,
		RefusedTooMany,
	}
}

// Refusals has the addresses that a Service claims and does not get.
type Refusals struct {
	// First has the first few, in a fixed order.
	First []RefusedAddress
	// Counts has the number by reason.
	Counts map[Reason]int
}

// Total counts an address once for each refused port.
func (r Refusals) Total() int {
	total := 0
	for _, n := range r.Counts {
		total += n
	}
	return total
}

// Equal reports whether both name and count the same.
func (r Refusals) Equal(other Refusals) bool {
	return slices.Equal(r.First, other.First) && maps.Equal(r.Counts, other.Counts)
}

// Sentences describes the first addresses. The last sentence gives the number of others.
func (r Refusals) Sentences(most int) []string {
	var all []string
	more := r.Total()
	for _, one := range r.First[:min(most, len(r.First))] {
		all = append(all, one.String())
		more -= one.number()
	}
	if more > 0 && len(all) > 0 {
		all[len(all)-1] += fmt.Sprintf(". And %d more", more)
	}
	return all
}

func (r *Refusals) add(refused RefusedAddress) {
	if r.Counts == nil {
		r.Counts = map[Reason]int{}
	}
	r.Counts[refused.Reason] += refused.number()
	if len(r.First) < keptRefusals {
		r.First = append(r.First, refused)
	}
}

// RefusedAddress is an address that a Service claims and does not get.
type RefusedAddress struct {
	// Address is invalid if this stands for the addresses beyond MaxClaims.
	Address netip.Addr
	// Beyond is the number of addresses beyond MaxClaims.
	Beyond int
	// Port is the Service's port that the address is refused for, zero for all.
	Port uint16
	// Field is the field of the Service with the address.
	Field  string
	Reason Reason
	// Owner is the Service that has the address or the port, empty without one.
	Owner string
}

// number returns how many addresses it stands for.
func (r RefusedAddress) number() int { return max(1, r.Beyond) }

// String returns the note: which address is refused, why, and what to do.
func (r RefusedAddress) String() string {
	because, but := "", ""
	switch r.Reason {
	case RefusedClusterIP:
		because = "it is the cluster IP of Service " + r.Owner
	case RefusedServiceRange:
		because = "it is in a range of cluster IPs"
	case RefusedAPIServer:
		because = "it is an address of the API server"
	case RefusedNode:
		because, but = "it is an address of a node", allowing
	case RefusedNodePort:
		return fmt.Sprintf("%s: %s is refused for port %d, which is a NodePort of Service %s: choose another port", r.Field, r.Address, r.Port, r.Owner)
	case RefusedBalancer:
		return fmt.Sprintf("%s: %s is refused for port %d, at which it is the load balancer of Service %s: choose another address or port", r.Field, r.Address, r.Port, r.Owner)
	case RefusedPod:
		because = "it is in a range of pod addresses"
	case RefusedTooMany:
		return fmt.Sprintf("%s: %d addresses are refused: a Service may claim %d in all; remove the last ones", r.Field, r.Beyond, MaxClaims)
	case RefusedSpecial:
		because = "loopback, link-local, multicast, broadcast and unspecified addresses are not allowed"
	default:
		because, but = "--external-ips of vicinity-proxy does not allow it", allowing
	}
	return fmt.Sprintf("%s: %s is refused: %s; remove it%s", r.Field, r.Address, because, but)
}

// allowing is the advice if an administrator can allow the address.
const allowing = ", or ask the administrator of the cluster to add it to --external-ips of vicinity-proxy"

type claimedAddress struct {
	address netip.Addr
	field   string
}

// listedClaims returns the claimed addresses of a Service up to MaxClaims.
func listedClaims(service *corev1.Service) (external []string, balancer []corev1.LoadBalancerIngress) {
	external, balancer = service.Spec.ExternalIPs, service.Status.LoadBalancer.Ingress
	balancer = balancer[:min(len(balancer), MaxClaims)]
	return external[:min(len(external), MaxClaims-len(balancer))], balancer
}

// refuseBeyond refuses the addresses beyond MaxClaims, one refusal for each field.
func (c *compiler) refuseBeyond() {
	external, balancer := listedClaims(c.service)
	for _, of := range []struct {
		field  string
		beyond int
	}{
		{fieldExternalIPs, len(c.service.Spec.ExternalIPs) - len(external)},
		{fieldLoadBalancer, len(c.service.Status.LoadBalancer.Ingress) - len(balancer)},
	} {
		if of.beyond > 0 {
			c.refuse(RefusedAddress{Beyond: of.beyond, Field: of.field, Reason: RefusedTooMany})
		}
	}
}

// claimsOf yields the addresses that a Service claims besides its cluster IPs.
func claimsOf(service *corev1.Service) iter.Seq[claimedAddress] {
	return func(yield func(claimedAddress) bool) {
		external, balancer := listedClaims(service)
		for _, text := range external {
			if address, ok := parseAddress(text); ok && !yield(claimedAddress{address, fieldExternalIPs}) {
				return
			}
		}
		for i := range balancer {
			ingress := &balancer[i]
			// A load balancer in mode Proxy connects to nodes.
			if ingress.IPMode != nil && *ingress.IPMode != corev1.LoadBalancerIPModeVIP {
				continue
			}
			if address, ok := parseAddress(ingress.IP); ok && !yield(claimedAddress{address, fieldLoadBalancer}) {
				return
			}
		}
	}
}

// refuse reports whether an address is refused to a Service. --external-ips cannot allow addresses of the cluster, except
// addresses of nodes.
func (o *Options) refuse(name types.NamespacedName, c claimedAddress) (RefusedAddress, bool) {
	refused := RefusedAddress{Address: c.address, Field: c.field}
	if o.Addresses.isOf(name, c.address) {
		return refused, false
	}
	refused.Reason, refused.Owner = o.Addresses.reserves(c.address)
	if refused.Reason == RefusedNode && o.ExternalIPs.within(c.address) {
		refused.Reason = ""
	}
	if refused.Reason == "" && c.field == fieldExternalIPs && !o.ExternalIPs.allow(c.address) {
		refused.Reason = RefusedByPolicy
	}
	return refused, refused.Reason != ""
}

// isOf reports whether an address is a cluster IP of the Service.
func (b *AddressBook) isOf(name types.NamespacedName, a netip.Addr) bool {
	return b != nil && slices.Contains(b.clusterIPs[a], name)
}

// reserves returns why Services may not claim an address, empty if they may, and the Service that has it, if any.
func (b *AddressBook) reserves(a netip.Addr) (reason Reason, owner string) {
	if specialKind(a) != "" {
		return RefusedSpecial, ""
	}
	if b == nil {
		return "", ""
	}
	if owners := b.clusterIPs[a]; len(owners) > 0 {
		return RefusedClusterIP, owners[0].String()
	}
	for _, of := range []struct {
		set    netset.Set
		reason Reason
	}{
		{b.reserved.APIServer, RefusedAPIServer},
		{b.reserved.ServiceRanges, RefusedServiceRange},
		{b.reserved.Nodes, RefusedNode},
		{b.reserved.Pods, RefusedPod},
	} {
		if of.set.Contains(a) {
			return of.reason, ""
		}
	}
	return "", ""
}

// shares reports whether holder can find another Service at an address.
func (b *AddressBook) shares(a netip.Addr) bool {
	return b != nil && (len(b.balanced[a]) > 0 || b.reserved.Nodes.Contains(a))
}

// holder returns another Service that has a claimed front: as its NodePort on a node's address or, for
// spec.externalIPs, by its load balancer.
func (b *AddressBook) holder(name types.NamespacedName, field string, front ruleset.Front) (reason Reason, owner string) {
	if b == nil || b.isOf(name, front.Address) {
		return "", ""
	}
	port := protocolPort{front.Protocol, front.Port}
	if b.reserved.Nodes.Contains(front.Address) {
		for _, other := range b.nodePorts[port] {
			if other != name {
				return RefusedNodePort, other.String()
			}
		}
	}
	if field == fieldExternalIPs {
		for _, other := range b.balanced[front.Address] {
			if other == name {
				continue
			}
			if _, has := slices.BinarySearchFunc(b.services[other].ports, port, protocolPort.compare); has {
				return RefusedBalancer, other.String()
			}
		}
	}
	return "", ""
}
