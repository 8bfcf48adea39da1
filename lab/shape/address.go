package shape

import (
	"fmt"
	"hash/fnv"
	"net/netip"
	"strconv"
	"strings"
)

// All labs use the same addresses, since each lab has its own namespaces. IPv4 comes first in
// lists of both families.
var (
	serviceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:10:96::/112")}
	podCIDRs     = []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9"), netip.MustParsePrefix("fd00:10:244::/48")}
)

// MaxIndex is the highest node index that has addresses.
const MaxIndex = 128*256 - 1

// families reduces a list with one entry for each family to the families of the lab.
func families[T any](s Shape, both []T) []T {
	if s.SingleStack {
		return both[:1:1]
	}
	return append([]T(nil), both...)
}

// ServiceCIDRs returns the ranges of cluster IPs.
func (s Shape) ServiceCIDRs() []netip.Prefix { return families(s, serviceCIDRs) }

// DNSAddrs returns the cluster IPs of the lab's DNS server, which kubelets give to pods.
func (s Shape) DNSAddrs() []netip.Addr {
	const tenth = 10
	var addrs []netip.Addr
	for _, cidr := range s.ServiceCIDRs() {
		bytes := cidr.Addr().AsSlice()
		bytes[len(bytes)-1] = tenth
		addr, _ := netip.AddrFromSlice(bytes)
		addrs = append(addrs, addr)
	}
	return addrs
}

// PodCIDRs returns the ranges that contain the pod CIDRs of all nodes.
func (s Shape) PodCIDRs() []netip.Prefix { return families(s, podCIDRs) }

// APIServer is the address of the API server in the fabric namespace. Every node and pod reaches
// it.
var APIServer = netip.AddrFrom4([4]byte{172, 30, 0, 1})

// FabricAddrs returns all addresses of the fabric namespace.
func (s Shape) FabricAddrs() []netip.Addr {
	return families(s, []netip.Addr{APIServer, netip.MustParseAddr("fd00:172:30::1")})
}

// NodeAddrs returns the addresses of a node.
func (s Shape) NodeAddrs(n Node) []netip.Addr {
	v6 := [16]byte{0xfd, 0x00, 0x01, 0x72, 0x00, 0x30, 0x00, 0x01}
	v6[14], v6[15] = byte(n.Index>>8), byte(n.Index)
	return families(s, []netip.Addr{
		netip.AddrFrom4([4]byte{172, 30, byte(1 + n.Index/250), byte(1 + n.Index%250)}),
		netip.AddrFrom16(v6),
	})
}

// NodePodCIDRs returns the ranges of a node's pods.
func (s Shape) NodePodCIDRs(n Node) []netip.Prefix {
	v6 := [16]byte{0xfd, 0x00, 0x00, 0x10, 0x02, 0x44}
	v6[6], v6[7] = byte(n.Index>>8), byte(n.Index)
	return families(s, []netip.Prefix{
		netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(128 + n.Index/256), byte(n.Index % 256), 0}), 24),
		netip.PrefixFrom(netip.AddrFrom16(v6), 64),
	})
}

// MaxPods is the number of pod addresses of a node. The first address of a node's range is the
// node's.
const MaxPods = 253

// PodAddrs returns the addresses of the pod with a number, from 2 to MaxPods + 1, on a node.
func (s Shape) PodAddrs(n Node, pod int) []netip.Addr {
	var addrs []netip.Addr
	for _, cidr := range s.NodePodCIDRs(n) {
		bytes := cidr.Addr().AsSlice()
		bytes[len(bytes)-1] = byte(pod)
		addr, _ := netip.AddrFromSlice(bytes)
		addrs = append(addrs, addr)
	}
	return addrs
}

// NamespaceFolder is the folder of named network namespaces, as ip netns has it.
const NamespaceFolder = "/run/netns"

// NamespacePath returns the path of a named network namespace.
func NamespacePath(namespace string) string { return NamespaceFolder + "/" + namespace }

// FabricNamespace returns the name of the network namespace that joins the nodes of a lab.
func FabricNamespace(lab string) string { return namespacePrefix + lab + "-fabric" }

// NodeNamespace returns the name of the network namespace of the node with an index.
func NodeNamespace(lab string, index int) string {
	return namespacePrefix + lab + "-n" + strconv.Itoa(index)
}

// PodNamespace returns the name of a pod's network namespace. The id is a UID, or another text of
// letters, digits and dashes. The name leaves out the dashes.
func PodNamespace(lab, id string) string {
	return namespacePrefix + lab + "-p" + strings.ReplaceAll(id, "-", "")
}

const namespacePrefix = "vl-"

// OwnsNamespace reports whether a network namespace belongs to a lab, by its name. The last part
// of a name has no dash, which distinguishes the namespaces of labs "a" and "a-p1".
func OwnsNamespace(lab, namespace string) bool {
	last, ok := strings.CutPrefix(namespace, namespacePrefix+lab+"-")
	if !ok || strings.Contains(last, "-") {
		return false
	}
	if last == "fabric" {
		return true
	}
	if number, isNode := strings.CutPrefix(last, "n"); isNode {
		_, err := strconv.Atoi(number)
		return err == nil
	}
	return len(last) > 1 && last[0] == 'p'
}

// NodeLink returns the name of the fabric's end of the link to a node.
func NodeLink(index int) string { return "n" + strconv.Itoa(index) }

// maxLinkName is the kernel's limit.
const maxLinkName = 15

// PodLink returns the name of the node's end of the link to a pod.
func PodLink(id string) string {
	name := "p" + strings.ReplaceAll(id, "-", "")
	if len(name) <= maxLinkName {
		return name
	}
	hash := fnv.New64a()
	hash.Write([]byte(id))
	return fmt.Sprintf("p%014x", hash.Sum64()>>8)
}
