package compile

import (
	"net/netip"
	"strings"

	netutils "k8s.io/utils/net"
)

// parseAddress reads an IP address as Kubernetes does: numbers may have leading zeros, as in objects that were stored long
// ago. An IPv4 address in IPv6 notation is an IPv4 address.
func parseAddress(text string) (netip.Addr, bool) {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.Unmap(), address.Zone() == ""
	}
	address, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return address.Unmap(), ok
}

// parsePrefix reads a range of addresses in the same way. It ignores surrounding white space.
func parsePrefix(text string) (netip.Prefix, bool) {
	text = strings.TrimSpace(text)
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		_, sloppy, err := netutils.ParseCIDRSloppy(text)
		if err != nil {
			return netip.Prefix{}, false
		}
		address, _ := netip.AddrFromSlice(sloppy.IP)
		bits, _ := sloppy.Mask.Size()
		prefix = netip.PrefixFrom(address, bits)
	}
	if prefix.Addr().Is4In6() {
		const mapped = 96
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-mapped)
	}
	return prefix.Masked(), prefix.IsValid()
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// specialKind returns the kind of an address that has another meaning on every node, empty for other addresses. A rule
// with such an address would redirect traffic of the node's own programs, or lead clients to them.
func specialKind(address netip.Addr) string {
	switch {
	case address.IsUnspecified():
		return "unspecified"
	case address.IsLoopback():
		return "loopback"
	case address.IsLinkLocalUnicast():
		return "link-local"
	case address.IsMulticast():
		return "multicast"
	case address == broadcast:
		return "broadcast"
	}
	return ""
}
