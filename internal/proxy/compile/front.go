package compile

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// addresses has the addresses of a Service in one family.
type addresses struct {
	cluster netip.Addr // invalid without a cluster IP of the family
	// external has external IPs, balancer the addresses of load balancers that do not rewrite packets, and nodes the node's
	// addresses for NodePorts.
	external, balancer, nodes []netip.Addr
	// sources has the ranges that may connect to balancer, nil for all.
	sources []netip.Prefix
}

// Ours reports whether vicinity-proxy may serve a Service.
func Ours(service *corev1.Service) bool {
	if service == nil || !hasProxy(service) {
		return false
	}
	name, named := service.Labels[v1alpha1.LabelServiceProxyName]
	return !named || name == v1alpha1.ServiceProxyName
}

// hasProxy reports whether any proxy serves a Service.
func hasProxy(service *corev1.Service) bool {
	spec := &service.Spec
	return spec.ClusterIP != "" && spec.ClusterIP != corev1.ClusterIPNone && spec.Type != corev1.ServiceTypeExternalName
}

// clusterIP returns the cluster IP of a Service in a family, empty without one. A Service of an older API has no list of
// families.
func clusterIP(service *corev1.Service, family ruleset.Family) string {
	spec := &service.Spec
	if len(spec.IPFamilies) == 0 {
		if address, ok := parseAddress(spec.ClusterIP); ok && ruleset.FamilyOf(address) != family {
			return ""
		}
		return spec.ClusterIP
	}
	for i, listed := range spec.IPFamilies {
		if string(listed) == family.Name() && i < len(spec.ClusterIPs) {
			return spec.ClusterIPs[i]
		}
	}
	return ""
}

// ClusterIP returns the cluster IP of a Service in a family, invalid without one.
func ClusterIP(service *corev1.Service, family ruleset.Family) netip.Addr {
	if address, ok := parseAddress(clusterIP(service, family)); ok && ruleset.FamilyOf(address) == family {
		return address
	}
	return netip.Addr{}
}

// addressesOf reads the addresses of the Service in one family, without refused ones.
func (c *compiler) addressesOf(family ruleset.Family) addresses {
	var a addresses
	service, node := c.service, &c.options.Node
	text := clusterIP(service, family)
	if text == "" {
		return a
	}
	address, ok := parseAddress(text)
	if !ok || ruleset.FamilyOf(address) != family {
		c.note("spec.clusterIPs: %q is not an %s address: the Service has none", text, family.Name())
		return a
	}
	if kind := specialKind(address); kind != "" {
		c.note("spec.clusterIPs: %q is %s: the Service has no address of the family", text, kind)
		return a
	}
	a.cluster = address
	for claimed := range claimsOf(service) {
		if ruleset.FamilyOf(claimed.address) != family {
			continue
		}
		if refused, is := c.options.refuse(c.key(), claimed); is {
			c.refuse(refused)
		} else if claimed.field == fieldExternalIPs {
			a.external = append(a.external, claimed.address)
		} else {
			a.balancer = append(a.balancer, claimed.address)
		}
	}
	for _, address := range node.NodePortAddresses {
		if address = address.Unmap(); ruleset.FamilyOf(address) == family && address.IsValid() && !address.IsLoopback() {
			a.nodes = append(a.nodes, address)
		}
	}
	a.sources = sourcesOf(service, family, node, a.balancer, &c.notes)
	return a
}

// sourcesOf returns the ranges that may connect to the addresses of load balancers, nil for all. As in kube-proxy, only
// ranges of the family count, all clients may connect without any, and the older annotation is ignored. If no range of
// the family is left and a range is unreadable, no client may connect: the unreadable one may be of the family.
func sourcesOf(service *corev1.Service, family ruleset.Family, node *Node, balancer []netip.Addr, notes *[]string) []netip.Prefix {
	var sources []netip.Prefix
	unread := false
	for _, text := range service.Spec.LoadBalancerSourceRanges {
		prefix, ok := parsePrefix(text)
		switch {
		case !ok:
			unread = true
		case ruleset.FamilyOf(prefix.Addr()) != family:
		case prefix.Bits() == 0:
			return nil
		default:
			sources = append(sources, prefix)
		}
	}
	if len(sources) == 0 {
		switch {
		case len(service.Spec.LoadBalancerSourceRanges) == 0 || len(balancer) == 0:
			return nil
		case unread:
			*notes = append(*notes, fmt.Sprintf("spec.loadBalancerSourceRanges: no readable range is of family %s, so no %[1]s client may connect", family.Name()))
			return []netip.Prefix{}
		}
		*notes = append(*notes, fmt.Sprintf("spec.loadBalancerSourceRanges: no range is of family %s, so all %[1]s clients may connect", family.Name()))
		return nil
	}
	// Packets of the node to a load balancer's address may have that address as their source.
	if slices.ContainsFunc(node.Addresses, func(own netip.Addr) bool {
		return slices.ContainsFunc(sources, func(p netip.Prefix) bool { return p.Contains(own.Unmap()) })
	}) {
		for _, address := range balancer {
			sources = append(sources, netip.PrefixFrom(address, address.BitLen()))
		}
	}
	slices.SortFunc(sources, netip.Prefix.Compare)
	return slices.Compact(sources)
}

// policy has the pools of traffic policies: internal for the cluster IP, external for all other addresses.
type policy struct {
	internal, external ruleset.Pool
}

func policyOf(service *corev1.Service) policy {
	p := policy{internal: ruleset.PoolCluster, external: ruleset.PoolCluster}
	if local := service.Spec.InternalTrafficPolicy; local != nil && *local == corev1.ServiceInternalTrafficPolicyLocal {
		p.internal = ruleset.PoolLocal
	}
	if externalLocal(service) {
		p.external = ruleset.PoolSplit
	}
	return p
}

// externalLocal reports whether traffic from outside must stay on the node. The field counts only if clients outside
// can reach the Service.
func externalLocal(service *corev1.Service) bool {
	spec := &service.Spec
	outside := spec.Type == corev1.ServiceTypeLoadBalancer || spec.Type == corev1.ServiceTypeNodePort ||
		spec.Type == corev1.ServiceTypeClusterIP && len(spec.ExternalIPs) > 0
	return outside && spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

type servicePort struct {
	portKey
	fullName         string
	number, nodePort uint16
}

// need returns the pools that a port needs for the addresses.
func (a *addresses) need(port *servicePort, p policy) need {
	n := need{cluster: p.internal != ruleset.PoolLocal, local: p.internal != ruleset.PoolCluster}
	other := func(address netip.Addr) bool { return address != a.cluster }
	if port.nodePort != 0 && len(a.nodes) > 0 || slices.ContainsFunc(a.external, other) || slices.ContainsFunc(a.balancer, other) {
		n.cluster = n.cluster || p.external != ruleset.PoolLocal
		n.local = n.local || p.external != ruleset.PoolCluster
	}
	return n
}

// fronts returns the sorted fronts of a port. Their Empty is not set yet.
func (c *compiler) fronts(a *addresses, port *servicePort) []ruleset.FrontEnd {
	p := c.policy
	count := 1 + len(a.external) + len(a.balancer)
	if port.nodePort != 0 {
		count += len(a.nodes)
	}
	list := make([]ruleset.FrontEnd, 0, count)
	front := func(address netip.Addr, number uint16) ruleset.FrontEnd {
		return ruleset.FrontEnd{
			Front: ruleset.Front{Address: address, Protocol: port.protocol, Port: number},
			// Replies to traffic that leaves the node again must come back through it.
			Pool: p.external, Masquerade: p.external == ruleset.PoolCluster,
		}
	}
	claim := func(address netip.Addr, field string, sources []netip.Prefix) {
		f := front(address, port.number)
		if reason, owner := c.options.Addresses.holder(c.key(), field, f.Front); reason != "" {
			c.refuse(RefusedAddress{Address: address, Port: port.number, Field: field, Reason: reason, Owner: owner})
			return
		}
		f.Sources = sources
		list = append(list, f)
	}
	cluster := front(a.cluster, port.number)
	cluster.Pool, cluster.Masquerade, cluster.ClusterIP = p.internal, false, true
	list = append(list, cluster)
	for _, address := range a.external {
		claim(address, fieldExternalIPs, nil)
	}
	for _, address := range a.balancer {
		claim(address, fieldLoadBalancer, a.sources)
	}
	if port.nodePort != 0 {
		for _, address := range a.nodes {
			f := front(address, port.nodePort)
			f.NodePort = true
			list = append(list, f)
		}
	}
	return mergeFronts(list)
}

// mergeFronts keeps each front once, the one with the highest precedence, and restricts it to sources if any of them
// has sources.
func mergeFronts(list []ruleset.FrontEnd) []ruleset.FrontEnd {
	slices.SortFunc(list, func(a, b ruleset.FrontEnd) int {
		return cmp.Or(a.Compare(b.Front), cmp.Compare(a.Precedence(), b.Precedence()))
	})
	kept := list[:1]
	for _, f := range list[1:] {
		last := &kept[len(kept)-1]
		switch {
		case last.Front != f.Front:
			kept = append(kept, f)
		case last.Sources == nil:
			last.Sources = f.Sources
		}
	}
	return kept
}
