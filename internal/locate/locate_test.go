package locate

import (
	"maps"
	"net/netip"
	"testing"
	"time"
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

func TestReusedAddress(t *testing.T) {
	x := New()
	early, late := time.Unix(1000, 0), time.Unix(2000, 0)
	pod := func(node string, created time.Time) Pod {
		return Pod{IPs: addrs("10.0.0.1"), Node: node, Labels: zone(node), Created: created}
	}
	located := func(node string) {
		t.Helper()
		expect(t, x, "10.0.0.1", Location{node, zone(node), PodLocator})
	}
	x.SetPod("default", "new", pod("n2", late))
	located("n2")
	x.SetPod("default", "old", pod("n1", early)) // as in the first list
	located("n2")
	x.SetPod("default", "twin", pod("n3", late)) // created in the same second
	located("n3")
	x.SetPod("default", "new", pod("n4", late)) // its node was relabelled: it keeps its place
	located("n3")
	x.DeletePod("default", "twin")
	located("n4")
	x.SetPod("default", "new", Pod{IPs: addrs("10.0.0.2"), Node: "n4", Labels: zone("n4"), Created: late})
	located("n1")
	x.SetPod("default", "old", Pod{IPs: addrs("10.0.0.1")}) // its node is deleted
	expect(t, x, "10.0.0.1", Location{})
	expect(t, x, "10.0.0.2", Location{"n4", zone("n4"), PodLocator})
}

func TestChanges(t *testing.T) {
	x := New()
	x.SetNode("n1", Node{Addresses: addrs("192.0.2.1"), PodRanges: prefixes("10.0.1.0/24"), Labels: zone("a")})
	x.SetNode("n1", Node{Addresses: addrs("192.0.2.1"), PodRanges: prefixes("10.0.1.0/24"), Labels: zone("b")})
	expect(t, x, "192.0.2.1", Location{"n1", zone("b"), NodeAddress})
	expect(t, x, "10.0.1.1", Location{"n1", zone("b"), PodRange})
	x.SetNode("n1", Node{Addresses: addrs("192.0.2.2"), PodRanges: prefixes("10.0.2.0/23"), Labels: zone("b")})
	expect(t, x, "192.0.2.1", Location{})
	expect(t, x, "10.0.1.1", Location{})
	expect(t, x, "10.0.3.1", Location{"n1", zone("b"), PodRange})

	x.SetPod("default", "p", Pod{IPs: addrs("10.9.0.1", "fd00::1"), Node: "n1", Labels: zone("b")})
	x.SetPod("default", "p", Pod{IPs: addrs("10.9.0.1"), Node: "n1", Labels: zone("b")})
	expect(t, x, "10.9.0.1", Location{"n1", zone("b"), PodLocator})
	expect(t, x, "fd00::1", Location{})
	x.SetPod("default", "p", Pod{Node: "n1", Labels: zone("b")})
	expect(t, x, "10.9.0.1", Location{})
}

// The labels of a node count for its pods at once, whatever copy their PodLocators have.
func TestLabelsOfKnownNodes(t *testing.T) {
	x := New()
	x.SetPod("default", "p1", Pod{IPs: addrs("10.0.0.1"), Node: "n1", Labels: zone("a")})
	x.SetPod("default", "p2", Pod{IPs: addrs("10.0.0.2"), Node: "n1", Labels: zone("b")})
	all := func(p1, p2 string) {
		t.Helper()
		expect(t, x, "10.0.0.1", Location{"n1", zone(p1), PodLocator})
		expect(t, x, "10.0.0.2", Location{"n1", zone(p2), PodLocator})
	}
	all("a", "b")
	x.SetNode("n1", Node{Labels: zone("c")})
	all("c", "c")
	x.SetNode("n1", Node{Labels: zone("d")})
	all("d", "d")
	x.SetNode("n1", Node{Labels: zone("e"), Addresses: addrs("192.0.2.1")})
	all("e", "e")
	x.SetPod("default", "p2", Pod{IPs: addrs("10.0.0.2"), Node: "n1", Labels: zone("d")})
	all("e", "e")
	x.DeleteNode("n1")
	all("a", "d")
	x.SetNode("n1", Node{Labels: zone("f")})
	all("f", "f")
}

// TestSharedLabels sees that the pods of a node have its labels once, whatever order they come in.
func TestSharedLabels(t *testing.T) {
	x := New()
	labels := zone("a")
	x.SetNode("n1", Node{Labels: labels, Addresses: addrs("192.0.2.1")})
	x.SetPod("default", "p1", Pod{IPs: addrs("10.0.0.1"), Node: "n1", Labels: zone("a")})
	x.SetPod("default", "p2", Pod{IPs: addrs("10.0.0.2"), Node: "n1", Labels: zone("a")})
	labels["seen"] = "in all" // as no caller may, to tell one map from equal ones
	expect(t, x, "192.0.2.1", Location{"n1", labels, NodeAddress})
	expect(t, x, "10.0.0.1", Location{"n1", labels, PodLocator})
	expect(t, x, "10.0.0.2", Location{"n1", labels, PodLocator})
}
