package compile

import (
	"net/netip"
	"strings"

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

// familyName is what the API calls a family.
func familyName(family ruleset.Family) string {
	if family == ruleset.IPv4 {
		return "IPv4"
	}
	return "IPv6"
}
