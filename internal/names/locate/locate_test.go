package locate

import (
	"maps"
	"net/netip"
	"reflect"
	"testing"
)

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

func zone(name string) map[string]string {
	return map[string]string{"topology.kubernetes.io/zone": name}
}

// expect looks an address up and compares; the location without a source is none.
func expect(t *testing.T, x *Index, addr string, want Location) {
	t.Helper()
	got, ok := x.Lookup(netip.MustParseAddr(addr))
	if ok != (want.Source != 0) || got.Node != want.Node || got.Source != want.Source || !maps.Equal(got.Labels, want.Labels) {
		t.Errorf("%s is at %+v, %t; want %+v", addr, got, ok, want)
	}
}

func TestOrder(t *testing.T) {
	x := New()
	x.SetNode("n1", Node{
		Addresses: addrs("192.0.2.1", "2001:db8::1", "10.0.1.0"),
		PodRanges: prefixes("10.0.1.0/24", "fd00:1::/64"),
		Labels:    zone("a"),
	})
	x.SetNode("n2", Node{PodRanges: prefixes("10.0.1.128/25", "10.0.0.0/16"), Labels: zone("b")})
	x.SetPod("default", "p", Pod{IPs: addrs("10.0.1.7", "192.0.2.1", "fd00:1::7"), Node: "n3", Labels: zone("c")})

	expect(t, x, "192.0.2.1", Location{"n1", zone("a"), NodeAddress})
	expect(t, x, "2001:db8::1", Location{"n1", zone("a"), NodeAddress})
	expect(t, x, "10.0.1.0", Location{"n1", zone("a"), NodeAddress})
	expect(t, x, "10.0.1.7", Location{"n3", zone("c"), PodLocator})
	expect(t, x, "fd00:1::7", Location{"n3", zone("c"), PodLocator})
	expect(t, x, "::ffff:10.0.1.7", Location{"n3", zone("c"), PodLocator})
	expect(t, x, "fd00:1::7%eth0", Location{"n3", zone("c"), PodLocator})
	expect(t, x, "10.0.1.8", Location{"n1", zone("a"), PodRange})
	expect(t, x, "::ffff:10.0.1.8", Location{"n1", zone("a"), PodRange})
	expect(t, x, "10.0.1.200", Location{"n2", zone("b"), PodRange})
	expect(t, x, "10.0.2.1", Location{"n2", zone("b"), PodRange})
	expect(t, x, "fd00:1::8", Location{"n1", zone("a"), PodRange})
	expect(t, x, "10.1.0.1", Location{})
	expect(t, x, "::10.0.1.8", Location{})
	if _, ok := x.Lookup(netip.Addr{}); ok {
		t.Error("no address has a location")
	}

	x.DeletePod("default", "p")
	expect(t, x, "10.0.1.7", Location{"n1", zone("a"), PodRange})
	x.DeleteNode("n1")
	expect(t, x, "10.0.1.7", Location{"n2", zone("b"), PodRange})
	expect(t, x, "192.0.2.1", Location{})
	expect(t, x, "fd00:1::7", Location{})
}

// PodLocators of one node share one copy of its labels, even before the node is listed: there may be many thousands of
// pods.
func TestPodLocatorsShareLabels(t *testing.T) {
	x := New()
	x.SetPod("default", "p1", Pod{IPs: addrs("10.0.0.1"), Node: "n1", Labels: zone("a")})
	x.SetPod("default", "p2", Pod{IPs: addrs("10.0.0.2"), Node: "n1", Labels: zone("a")})
	one, _ := x.Lookup(netip.MustParseAddr("10.0.0.1"))
	other, _ := x.Lookup(netip.MustParseAddr("10.0.0.2"))
	if reflect.ValueOf(one.Labels).Pointer() != reflect.ValueOf(other.Labels).Pointer() {
		t.Error("each pod has labels of its own")
	}
}
