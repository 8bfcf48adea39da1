// Package location reads Nodes and PodLocators for the index of internal/names/locate: a node's own addresses, the ranges of its
// pods, and the location of a pod.
//
// It knows the annotations of pod networks on Nodes. It does not decide which source counts for an address: the index does.
package location

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/names/locate"
)

// ownAddresses are annotations of pod networks with further own addresses of a node. Packets of the node to pods on other nodes,
// and masqueraded packets of its pods, come from there.
//
//   - Calico writes the node's addresses, some with a prefix length, and those of its tunnels, which are from IP pools and in no
//     range of the node (calico/node, "startup" and "allocateip"; docs.tigera.io, resource "Node").
//   - Cilium writes the router's address on cilium_host, and the address of its health endpoint. Unless IPAM is that of
//     Kubernetes, they are in no range of the node (docs.cilium.io, "Kubernetes host-scope IPAM"). Releases before 1.13 wrote
//     the names that begin with io.cilium.
//   - Flannel writes the address where its tunnels end. The tunnel's own address is the first of the node's range
//     (github.com/flannel-io/flannel, Documentation/kubernetes.md, "Annotations").
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

// calicoPrefix is the prefix of Calico's annotations. Calico's IPAM, the default, assigns blocks of its pools to any node,
// regardless of spec.podCIDRs.
const calicoPrefix = "projectcalico.org/"

// ownRanges are annotations of pod networks with the ranges of a node's pods, if they are not in spec.podCIDRs: Cilium;
// kube-router, separated by commas (its user guide); OVN-Kubernetes, in JSON by network.
var ownRanges = []string{
	"network.cilium.io/ipv4-pod-cidr", "network.cilium.io/ipv6-pod-cidr",
	"io.cilium.network.ipv4-pod-cidr", "io.cilium.network.ipv6-pod-cidr",
	"kube-router.io/pod-cidr", "kube-router.io/pod-cidrs",
	"k8s.ovn.org/node-subnets",
}

// Annotations returns the annotations of a node that this package reads, nil without any. A cache can drop all others.
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

// OfNode reads a Node. It ignores unreadable values. The result shares the labels of the Node.
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

// IgnoresPodCIDRs reports whether annotations of a node's pod network show that its pods do not use spec.podCIDRs. Those would
// locate pods on wrong nodes.
func IgnoresPodCIDRs(node *corev1.Node) bool {
	has := func(name string) bool { return node.Annotations[name] != "" }
	return slices.ContainsFunc(ownRanges, has) ||
		slices.ContainsFunc(ownAddresses, func(name string) bool { return strings.HasPrefix(name, calicoPrefix) && has(name) })
}

// PodRanges returns the ranges of a node's pods.
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

// IndexOf returns the index of a DNS server that knows these objects.
func IndexOf(nodes []*corev1.Node, locators []*v1alpha1.PodLocator) *locate.Index {
	index := locate.New()
	for _, node := range nodes {
		index.SetNode(node.Name, OfNode(node))
	}
	for _, locator := range locators {
		index.SetPod(locator.Namespace, locator.Name, OfPod(locator))
	}
	return index
}

// HasOwnAddress reports whether a pod has addresses on a node, other than the node's.
func HasOwnAddress(pod *corev1.Pod) bool {
	return pod.Spec.NodeName != "" && !pod.Spec.HostNetwork && len(pod.Status.PodIPs) > 0 &&
		pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// Unlocated describes the pods with an address that locates no client, or a client on another node. Pods that are created later
// than a time do not count: their PodLocators may be on the way.
func Unlocated(index *locate.Index, pods []*corev1.Pod, latest time.Time) []string {
	var lost []string
	for _, pod := range pods {
		if !HasOwnAddress(pod) || pod.CreationTimestamp.After(latest) {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			address, err := netip.ParseAddr(ip.IP)
			if at, _ := index.Lookup(address); err == nil && at.Node != pod.Spec.NodeName {
				lost = append(lost, pod.Namespace+"/"+pod.Name+" with "+ip.IP+" on node "+pod.Spec.NodeName)
				break
			}
		}
	}
	return lost
}

// annotated returns the texts in an annotation: one text, a list with commas, or all strings of a value in JSON, sorted.
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

// appendAddress adds an address once. The text may have a prefix length.
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

// appendRange adds a prefix once, unless it contains all addresses.
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

// OfPod reads a PodLocator. It ignores unreadable addresses. A PodLocator that is being deleted locates no client: another pod
// may have its addresses. The result shares the labels of the PodLocator.
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
