package compile

import (
	"net/netip"
	"strings"
	"testing"

	netutils "k8s.io/utils/net"
)

// sloppyAddress is parseAddress by the parser of Kubernetes.
func sloppyAddress(text string) (netip.Addr, bool) {
	if address, err := netip.ParseAddr(text); err == nil {
		return address.Unmap(), address.Zone() == ""
	}
	address, ok := netip.AddrFromSlice(netutils.ParseIPSloppy(text))
	return address.Unmap(), ok
}

// sloppyPrefix is parsePrefix by the parser of Kubernetes.
func sloppyPrefix(text string) (netip.Prefix, bool) {
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
		prefix = netip.PrefixFrom(prefix.Addr().Unmap(), prefix.Bits()-96)
	}
	return prefix.Masked(), prefix.IsValid()
}

// FuzzAddresses reads what Kubernetes reads, and as Kubernetes does.
func FuzzAddresses(f *testing.F) {
	for _, text := range []string{
		"", "x", "0", "00", ".", "10.0.0.1", "010.001.00.01", "10.0.0.256", "010.0.0.0256", "10.0.0", "10.0.0.1.2", "0x1.0.0.1", "10.0.0.", "10..0.1",
		"fd00::1", "FD00::0001", "fd00::00001", "fd00::010000", "::", "::00", "0000000::1", "fe80::1%eth0", "fe80::00001%eth0", "fe80::1%010",
		"::ffff:10.0.0.1", "::ffff:010.0.0.01", "::0ffff:10.0.0.1", "1:2:3:4:5:6:7::", "01:02:03:04:05:06:07:00008", "1:2:3:4:5:6:010.0.0.1", "::10.0.0.1",
		"10.0.0.0/8", "10.0.0.0/08", "010.0.0.0/8", "10.0.0.1/33", "010.0.0.1/033", "10.0.0.0/", "/", "10.0.0.0/8/8", "010.0.0.0/+8", "fd00::/064", "fd00::/0129",
		"::ffff:010.0.0.1/104", "::ffff:010.0.0.1/80", "::ffff:10.0.0.1/80", "::ffff:010.0.0.1/096", "0/0", "00/00", " 010.0.0.0/8 ", "fe80::00001%eth0/64",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		address, ok := parseAddress(text)
		want, fine := sloppyAddress(text)
		if ok != fine || ok && address != want {
			t.Errorf("address %q: %s, %t; Kubernetes reads %s, %t", text, address, ok, want, fine)
		}
		prefix, ok := parsePrefix(text)
		wanted, fine := sloppyPrefix(text)
		if ok != fine || ok && prefix != wanted {
			t.Errorf("range %q: %s, %t; Kubernetes reads %s, %t", text, prefix, ok, wanted, fine)
		}
	})
}
