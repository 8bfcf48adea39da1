package ruleset

import (
	"net/netip"
	"testing"
	"time"
	"unsafe"
)

// A ServicePort that changes keeps the lists of endpoints that stay as they were, and none
// that differs.
func TestEndpointsAreShared(t *testing.T) {
	list := func(last byte) []netip.AddrPort {
		return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, 1}), 80), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, last}), 80)}
	}
	portOf := func(cluster, local byte) *ServicePort {
		return &ServicePort{
			Name: "shop/web:http", Cluster: list(cluster), Local: list(local),
			Known: Known{Serving: list(local)},
		}
	}
	table := NewTable(Config{Family: IPv4})
	program := func(sp *ServicePort) *ServicePort {
		if err := table.Set(*sp); err != nil {
			t.Fatal(err)
		}
		table.Confirm()
		return table.Programmed()[sp.Name]
	}
	before := program(portOf(2, 3))
	after := program(portOf(2, 4))
	same := func(a, b []netip.AddrPort) bool { return unsafe.SliceData(a) == unsafe.SliceData(b) }
	if !same(after.Cluster, before.Cluster) {
		t.Error("endpoints that are as before are kept twice")
	}
	if want := list(4); after.Local[1] != want[1] || after.Known.Serving[1] != want[1] || before.Local[1] != list(3)[1] {
		t.Errorf("endpoints that changed are %v and %v, before %v", after.Local, after.Known.Serving, before.Local)
	}
}

// What is asked for is pending until it is confirmed, and what is withdrawn leaves what was
// confirmed before.
func TestProgress(t *testing.T) {
	table := NewTable(Config{Family: IPv4})
	sp := func(endpoint string) ServicePort {
		return ServicePort{
			Name:    "shop/web:http",
			Fronts:  []FrontEnd{{Front: Front{netip.MustParseAddr("10.96.0.1"), TCP, 80}, ClusterIP: true}},
			Cluster: []netip.AddrPort{netip.MustParseAddrPort(endpoint)},
		}
	}
	name := sp("10.1.1.1:80").Name
	endpoint := func(sp *ServicePort) string {
		if sp == nil {
			return "none"
		}
		return sp.Cluster[0].String()
	}
	want := func(when, asked, programmed string, pending bool) {
		t.Helper()
		if got := endpoint(table.Asked(name)); got != asked {
			t.Errorf("%s: asked for is %s, want %s", when, got, asked)
		}
		if got := endpoint(table.Programmed()[name]); got != programmed {
			t.Errorf("%s: programmed is %s, want %s", when, got, programmed)
		}
		if got := table.IsPending(name); got != pending || len(table.Pending()) > 0 != pending {
			t.Errorf("%s: pending %t, want %t", when, got, pending)
		}
	}
	want("at first", "none", "none", false)
	if err := table.Set(sp("10.1.1.1:80")); err != nil {
		t.Fatal(err)
	}
	want("asked for", "10.1.1.1:80", "none", true)
	table.Withdraw(name)
	want("withdrawn", "none", "none", false)
	if changes := table.Commit(time.Unix(0, 0)).Transaction.Changes; len(changes) == 0 || len(table.ports) > 0 {
		t.Errorf("%d changes, %d ports", len(changes), len(table.ports))
	}
	_ = table.Set(sp("10.1.1.1:80"))
	table.Commit(time.Unix(0, 0))
	want("committed", "10.1.1.1:80", "none", true)
	table.Confirm()
	want("confirmed", "10.1.1.1:80", "10.1.1.1:80", false)
	_ = table.Set(sp("10.1.1.2:80"))
	want("another", "10.1.1.2:80", "10.1.1.1:80", true)
	table.Withdraw(name)
	want("withdrawn again", "10.1.1.1:80", "10.1.1.1:80", false)
	table.Remove(name)
	want("to go", "none", "10.1.1.1:80", true)
	table.Confirm()
	want("gone", "none", "none", false)
}
