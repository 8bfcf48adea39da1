package compile

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// parseAddress reads an IP address as Kubernetes does: numbers may begin with zeros,
// as in objects that were stored long ago, and an IPv4 address in IPv6 notation is an
// IPv4 address.
func parseAddress(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		address, err = netip.ParseAddr(withoutLeadingZeros(text))
	}
	return address.Unmap(), err == nil && address.Zone() == ""
}

// parsePrefix reads a range of addresses in the same way. White space around it does
// not count, and neither does what follows the bits that are fixed.
func parsePrefix(text string) (netip.Prefix, bool) {
	text = strings.TrimSpace(text)
	prefix, err := netip.ParsePrefix(text)
	if err != nil {
		if prefix, err = netip.ParsePrefix(withoutLeadingZeros(text)); err != nil {
			return netip.Prefix{}, false
		}
		prefix = prefix.Masked()
	}
	if prefix.Addr().Is4In6() {
		const mapped = 96
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-mapped)
	}
	return prefix.Masked(), prefix.IsValid()
}

// withoutLeadingZeros writes the numbers of an address or a range as netip wants them.
func withoutLeadingZeros(text string) string {
	written := make([]byte, 0, len(text))
	inNumber := false
	for i := range len(text) {
		if text[i] == '0' && !inNumber && i+1 < len(text) && isHexDigit(text[i+1]) {
			continue
		}
		inNumber = isHexDigit(text[i])
		written = append(written, text[i])
	}
	return string(written)
}

func isHexDigit(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' || 'A' <= c && c <= 'F'
}

func familyOf(address netip.Addr) ruleset.Family {
	if address.Is4() {
		return ruleset.IPv4
	}
	return ruleset.IPv6
}

// neededAddress is for messages about endpoints of another family.
func neededAddress(family ruleset.Family) string {
	if family == ruleset.IPv4 {
		return "an address of family IPv4"
	}
	return "an address of family IPv6"
}

var broadcast = netip.AddrFrom4([4]byte{255, 255, 255, 255})

// special names the kind of an address that means something else on every node, empty for
// all others. Rules with it would take what programs of the node itself send there, or lead
// clients to them.
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

// specialAddresses notes cluster IPs that are special.
func specialAddresses(service *corev1.Service, notes *[]string) {
	for _, family := range []ruleset.Family{ruleset.IPv4, ruleset.IPv6} {
		text := clusterIP(service, family)
		if address, ok := parseAddress(text); ok && special(address) != "" {
			*notes = append(*notes, fmt.Sprintf("spec.clusterIPs: %q is %s: the Service has no address of the family", text, special(address)))
		}
	}
}

// familyName is the name of a family in the API.
func familyName(family ruleset.Family) string {
	if family == ruleset.IPv4 {
		return "IPv4"
	}
	return "IPv6"
}
