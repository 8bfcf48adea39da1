package ruleset

import (
	"net/netip"
	"testing"
	"time"
)

// A staged port is pending until it is confirmed. A withdrawn one returns to its confirmed version.
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
			t.Errorf("%s: staged is %s, want %s", when, got, asked)
		}
		if got := endpoint(table.Programmed()[name]); got != programmed {
			t.Errorf("%s: programmed is %s, want %s", when, got, programmed)
		}
		if got := table.IsPending(name); got != pending || len(table.Pending()) > 0 != pending {
			t.Errorf("%s: pending %t, want %t", when, got, pending)
		}
	}
	want("at first", "none", "none", false)
	table.Set(sp("10.1.1.1:80"))
	want("asked for", "10.1.1.1:80", "none", true)
	table.Withdraw(name)
	want("withdrawn", "none", "none", false)
	if changes := table.Commit(time.Unix(0, 0)).Transaction.Changes; len(changes) == 0 || len(table.ports) > 0 {
		t.Errorf("%d changes, %d ports", len(changes), len(table.ports))
	}
	table.Set(sp("10.1.1.1:80"))
	table.Commit(time.Unix(0, 0))
	want("committed", "10.1.1.1:80", "none", true)
	table.Confirm()
	want("confirmed", "10.1.1.1:80", "10.1.1.1:80", false)
	table.Set(sp("10.1.1.2:80"))
	want("another", "10.1.1.2:80", "10.1.1.1:80", true)
	table.Withdraw(name)
	want("withdrawn again", "10.1.1.1:80", "10.1.1.1:80", false)
	table.Remove(name)
	want("to go", "none", "10.1.1.1:80", true)
	table.Confirm()
	want("gone", "none", "none", false)
}
