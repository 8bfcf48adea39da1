package kernel_test

import (
	"slices"
	"testing"

	"vicinity.dev/vicinity/internal/proxy/kernel"
)

func TestChains(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	n.nft(t, `table ip one { chain plain { }; chain early { type nat hook prerouting priority -102; }; chain late { type nat hook output priority -100; }; }
table inet two { chain forward { type filter hook forward priority 10; policy drop; }; }
table ip6 three { chain forward { type filter hook forward priority filter; policy accept; }; chain marks { type route hook output priority -150; }; }
table bridge four { chain forward { type filter hook forward priority 0; policy drop; }; }`)
	all, err := c.Chains()
	if err != nil {
		t.Fatal(err)
	}
	find := func(family, table, name string) *kernel.Chain {
		if i := slices.IndexFunc(all, func(c kernel.Chain) bool { return c.Family == family && c.Table == table && c.Name == name }); i >= 0 {
			return &all[i]
		}
		return nil
	}
	for _, want := range []struct {
		family, table, name string
		base                *kernel.ChainBase
	}{
		{"ip", "one", "plain", nil},
		{"ip", "one", "early", &kernel.ChainBase{Type: "nat", Hook: "prerouting", Priority: -102}},
		{"ip", "one", "late", &kernel.ChainBase{Type: "nat", Hook: "output", Priority: -100}},
		{"inet", "two", "forward", &kernel.ChainBase{Type: "filter", Hook: "forward", Priority: 10, Drops: true}},
		{"ip6", "three", "forward", &kernel.ChainBase{Type: "filter", Hook: "forward"}},
		{"ip6", "three", "marks", &kernel.ChainBase{Type: "route", Hook: "output", Priority: -150}},
	} {
		got := find(want.family, want.table, want.name)
		switch {
		case got == nil:
			t.Errorf("chain %s %s %s is not listed", want.family, want.table, want.name)
		case (got.Base == nil) != (want.base == nil), got.Base != nil && *got.Base != *want.base:
			t.Errorf("chain %s %s %s is %+v, want %+v", want.family, want.table, want.name, got.Base, want.base)
		}
	}
	if slices.ContainsFunc(all, func(c kernel.Chain) bool { return c.Table == "four" }) {
		t.Error("chains of bridges are listed")
	}
}
