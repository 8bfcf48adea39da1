package ruleset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
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

// A refused change is blamed on the ports that need it.
func TestBlame(t *testing.T) {
	table := NewTable(Config{Family: IPv4})
	for i, endpoints := range []string{"1", "23", "45"} {
		sp := ServicePort{
			Name:   fmt.Sprintf("shop/s%d:", i),
			Fronts: []FrontEnd{{Front: Front{netip.MustParseAddr("10.96.0.1"), TCP, uint16(80 + i)}, ClusterIP: true}},
		}
		for _, last := range endpoints {
			sp.Cluster = append(sp.Cluster, netip.MustParseAddrPort(fmt.Sprintf("10.1.1.%c:8080", last)))
		}
		if i == 2 {
			sp.Affinity = time.Hour
		}
		table.Set(sp)
	}
	table.SetHairpin([]netip.Addr{netip.MustParseAddr("10.1.1.1")})
	changes := table.Commit(time.Unix(0, 0)).Transaction.Changes
	blamed := func(of func(Change) bool, element int) string {
		i := slices.IndexFunc(changes, of)
		if i < 0 {
			return "no such change"
		}
		return strings.Join(table.Blamed(changes[i], element), " ")
	}
	adds := func(set string) func(Change) bool {
		return func(c Change) bool { return c.Kind == AddElements && c.Set.Name == set }
	}
	makes := func(name string) func(Change) bool {
		return func(c Change) bool {
			return c.Kind == AddChain && strings.HasPrefix(c.Chain.Name, name) || c.Kind == AddSet && strings.HasPrefix(c.Set.Name, name)
		}
	}
	for _, test := range []struct {
		name    string
		of      func(Change) bool
		element int
		want    string
	}{
		{"a verdict", adds("services"), 1, "shop/s1:"},
		{"a slot", adds("slots"), 4, "shop/s2:"},
		{"no element", adds("slots"), -1, ""},
		{"an element that there is not", adds("slots"), 5, ""},
		{"an address of Services", adds("cluster-ips"), 0, "shop/s0: shop/s1: shop/s2:"},
		{"an endpoint on the node", adds("hairpin"), 0, ""},
		{"a chain that draws one of one", makes("pick-1"), -1, "shop/s0:"},
		{"a chain that draws one of two", makes("pick-2"), -1, "shop/s1: shop/s2:"},
		{"a map of clients", makes("affinity-"), -1, "shop/s2:"},
		{"a chain that remembers clients", makes("remember-"), -1, "shop/s2:"},
		{"a chain that all have", makes("nat-output"), -1, ""},
		{"the table", func(c Change) bool { return c.Kind == AddTable }, -1, ""},
	} {
		if got := blamed(test.of, test.element); got != test.want {
			t.Errorf("%s: refused are %q, want %q", test.name, got, test.want)
		}
	}
	table.Confirm()
	if got := blamed(adds("services"), 1); got != "" {
		t.Errorf("refused are %q though all is programmed", got)
	}
}
