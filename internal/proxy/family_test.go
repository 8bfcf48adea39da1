package proxy

import (
	"net/netip"
	"testing"
	"unsafe"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// A ServicePort that changes keeps the lists of endpoints that stay as they were, and none
// that differs.
func TestEndpointsAreShared(t *testing.T) {
	list := func(last byte) []netip.AddrPort {
		return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), 80), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 80)}
	}
	portOf := func(cluster, local byte) *ruleset.ServicePort {
		return &ruleset.ServicePort{
			Name: "shop/web:http", Cluster: list(cluster), Local: list(local),
			Known: ruleset.Known{Serving: list(local)},
		}
	}
	f := newFamily(ruleset.Config{Family: ruleset.IPv4})
	before, after := portOf(2, 3), portOf(2, 4)
	for _, port := range []*ruleset.ServicePort{before, after} {
		if err := f.stage(port.Name, port); err != nil {
			t.Fatal(err)
		}
		f.settled()
	}
	same := func(a, b []netip.AddrPort) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }
	if !same(after.Cluster, before.Cluster) {
		t.Error("endpoints that are as before are kept twice")
	}
	if want := list(4); after.Local[1] != want[1] || after.Known.Serving[1] != want[1] || before.Local[1] != list(3)[1] {
		t.Errorf("endpoints that changed are %v and %v, before %v", after.Local, after.Known.Serving, before.Local)
	}
}
