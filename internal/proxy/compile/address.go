package compile

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
	netutils "k8s.io/utils/net"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// parseAddress reads an IP address as Kubernetes does: numbers may begin with zeros,
// as they did when some objects were stored, and an IPv4 address in IPv6 notation is an
// IPv4 address.
func parseAddress(text string) (netip.Addr, bool) {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.Unmap(), address.Zone() == ""
	}
	address, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return address.Unmap(), ok
}

// parsePrefix reads a range of addresses in the same way. White space around it does
// not count, and neither does what follows the bits that are fixed.
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

// familyOf is the family of an address.
func familyOf(address netip.Addr) ruleset.Family {
	if address.Is4() {
		return ruleset.IPv4
	}
	return ruleset.IPv6
}

// neededAddress is what each endpoint of a family needs.
func neededAddress(family ruleset.Family) string {
	if family == ruleset.IPv4 {
		return "an address of family IPv4"
	}
	return "an address of family IPv6"
}

// broadcast is the address of all that is on the same link.
var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// special is what an address is that no connection may come to or be led to, empty if it is
// none: it means something else on every node, so that rules with it would take what programs
// of the node itself send there, or lead clients to them.
func special(address netip.Addr) string {
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

// specialAddresses notes cluster IPs that clients may not connect to.
func specialAddresses(service *corev1.Service, notes *[]string) {
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		text := clusterIP(service, family)
		if address, ok := parseAddress(text); ok && special(address) != "" {
			*notes = append(*notes, fmt.Sprintf("spec.clusterIPs: %q is %s: the Service has no address of the family", text, special(address)))
		}
	}
}

// familyName is what the API calls a family.
func familyName(family ruleset.Family) string {
	if family == ruleset.IPv4 {
		return "IPv4"
	}
	return "IPv6"
}
