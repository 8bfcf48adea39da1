// Package location reads off Nodes and PodLocators what internal/names/locate takes: which addresses
// are a node's own, which ranges its pods have their addresses from, and where a pod is.
//
// It knows what networks write into Nodes. It does not decide which source counts for an
// address: the index does.
package location

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names/locate"
)

// Annotations in which networks say which addresses of a node are its own besides those in its
// status. Packets of a node to pods of others, and those of its pods where they are masqueraded,
// come from there.
//
//   - Calico has each node's addresses, some with the length of their network, and those of its
//     tunnels, which are of IP pools and in no range of the node (calico/node, "startup" and
//     "allocateip"; docs.tigera.io, resource "Node").
//   - Cilium has the router's address on cilium_host, and the address of its health endpoint, which
//     with other IPAM than that of Kubernetes are in no range of the node (docs.cilium.io, "Kubernetes
//     host-scope IPAM"). Releases before 1.13 wrote the names that begin with io.cilium.
//   - Flannel has the address that its tunnels end at. The tunnel's own is the first of the node's
//     range (github.com/flannel-io/flannel, Documentation/kubernetes.md, "Annotations").
//   - OVN-Kubernetes masquerades to the address of the gateway router, in JSON.
var ownAddresses = []string{
	"projectcalico.org/IPv4Address", "projectcalico.org/IPv6Address",
	"projectcalico.org/IPv4IPIPTunnelAddr",
	"projectcalico.org/IPv4VXLANTunnelAddr", "projectcalico.org/IPv6VXLANTunnelAddr",
	"projectcalico.org/IPv4WireguardInterfaceAddr", "projectcalico.org/IPv6WireguardInterfaceAddr",
	"network.cilium.io/ipv4-cilium-host", "network.cilium.io/ipv6-cilium-host",
	"network.cilium.io/ipv4-health-ip", "network.cilium.io/ipv6-health-ip",
	"io.cilium.network.ipv4-cilium-host", "io.cilium.network.ipv6-cilium-host",
	"io.cilium.network.ipv4-health-ip", "io.cilium.network.ipv6-health-ip",
	"flannel.alpha.coreos.com/public-ip", "flannel.alpha.coreos.com/public-ipv6",
	"k8s.ovn.org/node-gateway-router-lrp-ifaddr",
}

// calicoPrefix begins Calico's annotations. Its own IPAM, the default, takes blocks of its pools for
// any node, whatever spec.podCIDRs say.
const calicoPrefix = "projectcalico.org/"

// ownRanges are annotations in which networks say which ranges the pods of a node have, where
// that is not in spec.podCIDRs: Cilium; kube-router, separated by commas (its user guide);
// OVN-Kubernetes, in JSON by network.
var ownRanges = []string{
	"network.cilium.io/ipv4-pod-cidr", "network.cilium.io/ipv6-pod-cidr",
	"io.cilium.network.ipv4-pod-cidr", "io.cilium.network.ipv6-pod-cidr",
	"kube-router.io/pod-cidr", "kube-router.io/pod-cidrs",
	"k8s.ovn.org/node-subnets",
}

// Annotations are those of a node that say where its addresses are, for a cache that
// keeps no others. It is nil if there are none.
func Annotations(node *corev1.Node) map[string]string {
	var kept map[string]string
	for _, name := range slices.Concat(ownAddresses, ownRanges) {
		if value, found := node.Annotations[name]; found {
			if kept == nil {
				kept = map[string]string{}
			}
			kept[name] = value
		}
	}
	return kept
}

// OfNode is what locates clients by a node. What cannot be read is left out. The labels
// are shared with the node.
func OfNode(node *corev1.Node) locate.Node {
	n := locate.Node{Labels: node.Labels, Created: node.CreationTimestamp.Time}
	for _, address := range node.Status.Addresses {
		if address.Type != corev1.NodeInternalIP && address.Type != corev1.NodeExternalIP {
			continue
		}
		n.Addresses = appendAddress(n.Addresses, address.Address)
	}
	for _, name := range ownAddresses {
		for _, text := range annotated(node.Annotations[name]) {
			n.Addresses = appendAddress(n.Addresses, text)
		}
	}
	n.PodRanges = PodRanges(node)
	return n
}

// IgnoresPodCIDRs reports whether the network of a node says by annotations that pods do not have
// their addresses from spec.podCIDRs. Those would locate pods on nodes that they are not on.
func IgnoresPodCIDRs(node *corev1.Node) bool {
	has := func(name string) bool { return node.Annotations[name] != "" }
	return slices.ContainsFunc(ownRanges, has) ||
		slices.ContainsFunc(ownAddresses, func(name string) bool { return strings.HasPrefix(name, calicoPrefix) && has(name) })
}

// PodRanges are the ranges that the pods of a node have their addresses from.
func PodRanges(node *corev1.Node) []netip.Prefix {
	var ranges []netip.Prefix
	if !IgnoresPodCIDRs(node) {
		for _, text := range node.Spec.PodCIDRs {
			ranges = appendRange(ranges, text)
		}
		if len(node.Spec.PodCIDRs) == 0 {
			ranges = appendRange(ranges, node.Spec.PodCIDR)
		}
	}
	for _, name := range ownRanges {
		for _, text := range annotated(node.Annotations[name]) {
			ranges = appendRange(ranges, text)
		}
	}
	return ranges
}

// annotated are the texts in the value of an annotation: one, some with commas between them,
// or all strings of a value in JSON, in the order of names.
func annotated(value string) []string {
	if !strings.HasPrefix(value, "{") {
		return strings.Split(value, ",")
	}
	var parsed map[string]any
	if json.Unmarshal([]byte(value), &parsed) != nil {
		return nil
	}
	return texts(parsed)
}

func texts(value any) []string {
	var all []string
	switch v := value.(type) {
	case string:
		return []string{v}
	case []any:
		for _, one := range v {
			all = append(all, texts(one)...)
		}
	case map[string]any:
		for _, one := range v {
			all = append(all, texts(one)...)
		}
		slices.Sort(all)
	}
	return all
}

// appendAddress adds an address, which may be written with the length of its network, once.
func appendAddress(all []netip.Addr, text string) []netip.Addr {
	text, _, _ = strings.Cut(strings.TrimSpace(text), "/")
	address, err := netip.ParseAddr(text)
	if err != nil {
		return all
	}
	if address = address.Unmap().WithZone(""); address.IsUnspecified() || address.IsLoopback() || slices.Contains(all, address) {
		return all
	}
	return append(all, address)
}

// appendRange adds a prefix, but not one of all addresses, once.
func appendRange(all []netip.Prefix, text string) []netip.Prefix {
	prefix, err := netip.ParsePrefix(strings.TrimSpace(text))
	if err != nil || prefix.Bits() == 0 {
		return all
	}
	if prefix = prefix.Masked(); slices.Contains(all, prefix) {
		return all
	}
	return append(all, prefix)
}

// OfPod is what locates clients by a PodLocator. Addresses that cannot be read are left
// out. One that is being deleted locates nothing: its addresses may be another's. The labels are
// shared with the locator.
func OfPod(locator *v1alpha1.PodLocator) locate.Pod {
	if locator.DeletionTimestamp != nil {
		return locate.Pod{}
	}
	p := locate.Pod{Node: locator.NodeName, Labels: locator.NodeLabels, Created: locator.CreationTimestamp.Time}
	if created := locator.PodCreationTimestamp; created != nil {
		p.Created = created.Time
	}
	for _, text := range locator.IPs {
		p.IPs = appendAddress(p.IPs, text)
	}
	return p
}
