package compile

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology/netset"
)

// AddressBook has the addresses that a Service may not claim: addresses of the cluster and of all Services, including
// Services of other proxies. A nil book is empty.
type AddressBook struct {
	reserved Reserved
	// The sorted names of the Services that have or claim an address or port. balanced has those with a load balancer's
	// address, and claimants all that claim an address.
	clusterIPs map[netip.Addr][]types.NamespacedName
	nodePorts  map[protocolPort][]types.NamespacedName
	balanced   map[netip.Addr][]types.NamespacedName
	claimants  map[netip.Addr][]types.NamespacedName
	services   map[types.NamespacedName]*listing
}

// Reserved has the addresses of the cluster, without those of Services.
type Reserved struct {
	ServiceRanges netset.Set // of cluster IPs
	Pods          netset.Set
	Nodes         netset.Set
	APIServer     netset.Set
}

func (r *Reserved) equal(other *Reserved) bool {
	return r.ServiceRanges.Equal(other.ServiceRanges) && r.Pods.Equal(other.Pods) &&
		r.Nodes.Equal(other.Nodes) && r.APIServer.Equal(other.APIServer)
}

type protocolPort struct {
	protocol ruleset.Protocol
	number   uint16
}

func (p protocolPort) compare(other protocolPort) int {
	return cmp.Or(cmp.Compare(p.protocol, other.protocol), cmp.Compare(p.number, other.number))
}

// listing has the addresses and ports of a Service, sorted, each once. A Service can have thousands of both, so the book
// does not multiply them.
type listing struct {
	of *corev1.Service
	// balanced has the addresses of the load balancer, which are used at ports.
	clusterIPs, claimed, balanced []netip.Addr
	nodePorts, ports              []protocolPort
}

// NewAddressBook returns an empty book.
func NewAddressBook() *AddressBook {
	return &AddressBook{
		clusterIPs: map[netip.Addr][]types.NamespacedName{}, nodePorts: map[protocolPort][]types.NamespacedName{},
		balanced:  map[netip.Addr][]types.NamespacedName{},
		claimants: map[netip.Addr][]types.NamespacedName{}, services: map[types.NamespacedName]*listing{},
	}
}

// SetService sets the addresses that a Service has and claims, none if it is nil. It returns the other Services whose
// claims must be decided again. Setting the same object again costs nothing, so the object must not change in place.
func (b *AddressBook) SetService(name types.NamespacedName, service *corev1.Service) []types.NamespacedName {
	before := b.services[name]
	if before == nil {
		before = &listing{}
	}
	if before.of == service {
		return nil
	}
	after := listingOf(service)
	touched := map[types.NamespacedName]bool{}
	touch := func(addresses ...[]netip.Addr) {
		for _, address := range slices.Concat(addresses...) {
			for _, claimant := range b.claimants[address] {
				touched[claimant] = true
			}
		}
	}
	if !slices.Equal(before.clusterIPs, after.clusterIPs) {
		touch(before.clusterIPs, after.clusterIPs)
		change(b.clusterIPs, name, before.clusterIPs, after.clusterIPs)
	}
	if !slices.Equal(before.nodePorts, after.nodePorts) {
		for address, claimants := range b.claimants {
			for _, claimant := range claimants {
				touched[claimant] = touched[claimant] || b.reserved.Nodes.Contains(address)
			}
		}
		change(b.nodePorts, name, before.nodePorts, after.nodePorts)
	}
	if !slices.Equal(before.balanced, after.balanced) || !slices.Equal(before.ports, after.ports) {
		touch(before.balanced, after.balanced)
		change(b.balanced, name, before.balanced, after.balanced)
	}
	change(b.claimants, name, before.claimed, after.claimed)
	if len(after.clusterIPs)+len(after.claimed)+len(after.nodePorts) > 0 {
		b.services[name] = after
	} else {
		delete(b.services, name)
	}
	delete(touched, name)
	maps.DeleteFunc(touched, func(_ types.NamespacedName, is bool) bool { return !is })
	return slices.SortedFunc(maps.Keys(touched), compareNames)
}

// SetReserved sets the cluster's other addresses. It returns the Services whose claims must be decided again.
func (b *AddressBook) SetReserved(r Reserved) []types.NamespacedName {
	if b.reserved.equal(&r) {
		return nil
	}
	b.reserved = r
	touched := map[types.NamespacedName]bool{}
	for _, claimants := range b.claimants {
		for _, claimant := range claimants {
			touched[claimant] = true
		}
	}
	return slices.SortedFunc(maps.Keys(touched), compareNames)
}

func compareNames(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func change[K comparable](all map[K][]types.NamespacedName, name types.NamespacedName, before, after []K) {
	if slices.Equal(before, after) {
		return
	}
	for _, key := range before {
		names := all[key]
		if i, found := slices.BinarySearchFunc(names, name, compareNames); found {
			names = slices.Delete(names, i, i+1)
		}
		if len(names) > 0 {
			all[key] = names
		} else {
			delete(all, key)
		}
	}
	for _, key := range after {
		if i, found := slices.BinarySearchFunc(all[key], name, compareNames); !found {
			all[key] = slices.Insert(all[key], i, name)
		}
	}
}

// listingOf reads a Service. The listing of a Service that no proxy serves is empty.
func listingOf(service *corev1.Service) *listing {
	l := &listing{of: service}
	if service == nil || !hasProxy(service) {
		return l
	}
	for _, text := range append([]string{service.Spec.ClusterIP}, service.Spec.ClusterIPs...) {
		if address, ok := parseAddress(text); ok {
			l.clusterIPs = append(l.clusterIPs, address)
		}
	}
	for claimed := range claimsOf(service) {
		l.claimed = append(l.claimed, claimed.address)
		if claimed.field == fieldLoadBalancer {
			l.balanced = append(l.balanced, claimed.address)
		}
	}
	for i := range service.Spec.Ports {
		given := &service.Spec.Ports[i]
		protocol, _ := protocolOf(given.Protocol)
		if given.NodePort != 0 {
			l.nodePorts = append(l.nodePorts, protocolPort{protocol, uint16(given.NodePort)})
		}
		if len(l.balanced) > 0 {
			l.ports = append(l.ports, protocolPort{protocol, uint16(given.Port)})
		}
	}
	for _, addresses := range []*[]netip.Addr{&l.clusterIPs, &l.claimed, &l.balanced} {
		*addresses = inOrder(*addresses, netip.Addr.Compare)
	}
	for _, ports := range []*[]protocolPort{&l.nodePorts, &l.ports} {
		*ports = inOrder(*ports, protocolPort.compare)
	}
	return l
}

func inOrder[E comparable](list []E, compare func(a, b E) int) []E {
	slices.SortFunc(list, compare)
	return slices.Clip(slices.Compact(list))
}
