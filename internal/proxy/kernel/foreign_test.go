package kernel_test

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// commit has the kernel do what is staged.
func commit(t testing.TB, c *kernel.Conn, table *ruleset.Table, now time.Time) ruleset.Commit {
	t.Helper()
	commit := table.Commit(now)
	apply(t, c, commit.Transaction)
	return commit
}

// wantTable compares what the kernel holds with what it should hold.
func wantTable(t testing.TB, c *kernel.Conn, family ruleset.Family, table *ruleset.Table) {
	t.Helper()
	listing, err := c.Read(family)
	if err != nil {
		t.Fatal(err)
	}
	if found := table.Differences(listing); len(found) > 0 {
		t.Fatalf("the kernel does not hold what it should:\n%s", strings.Join(found, "\n"))
	}
}

func isForeign(t *testing.T, c *kernel.Conn) bool {
	t.Helper()
	foreign, err := c.Foreign()
	if err != nil {
		t.Fatal(err)
	}
	return foreign
}

func TestForeignChangesAreSeenAndOwnAreNot(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	if isForeign(t, c) {
		t.Error("Foreign before any change")
	}
	table := ruleset.NewTable(ruleset.Config{Family: ruleset.IPv4})
	for i := range 10 {
		if err := table.Set(servicePort(i, i)); err != nil {
			t.Fatal(err)
		}
		commit(t, c, table, time.Now())
		if isForeign(t, c) {
			t.Fatal("Foreign after an own change")
		}
	}
	// A refusal changes nothing.
	err := c.Apply(t.Context(), ruleset.Transaction{Family: ruleset.IPv4, Changes: []ruleset.Change{
		{Kind: ruleset.DeleteSet, Set: &ruleset.Set{Name: "nothing"}},
	}})
	if err == nil || isForeign(t, c) {
		t.Errorf("Foreign after the refusal %v", err)
	}
	n.nft(t, "add table ip another")
	if !isForeign(t, c) {
		t.Error("not Foreign after a change by nft")
	}
	if isForeign(t, c) {
		t.Error("Foreign again, with no other change")
	}
	// What happens just before or after an own change is not lost.
	n.nft(t, "add chain ip another one")
	if err := table.Set(servicePort(0, 5)); err != nil {
		t.Fatal(err)
	}
	commit(t, c, table, time.Now())
	if !isForeign(t, c) {
		t.Error("not Foreign after a change by nft and an own one")
	}
}

func TestForeignChangesAreRepaired(t *testing.T) {
	for _, test := range []struct {
		name, command string
		// shape says that what has changed is seen without reading elements.
		shape bool
	}{
		{"flushed", "flush table ip vicinity", true},
		{"deleted", "delete table ip vicinity", true},
		{"everything deleted", "flush ruleset", true},
		{"a chain's rules deleted", "flush chain ip vicinity serve", true},
		{"a rule added", "insert rule ip vicinity serve drop", true},
		{"a rule deleted", "delete rule ip vicinity serve handle HANDLE", true},
		{"a chain added", "add chain ip vicinity mine", true},
		{"a set added", "add set ip vicinity mine { type ipv4_addr; }", true},
		{"a set of ranges added", "add set ip vicinity mine { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 11.0.0.0/8 }; }", true},
		{"a map emptied", "flush map ip vicinity slots", false},
		{"an element deleted", "delete element ip vicinity services { 10.96.0.3 . tcp . 80 }", false},
		{"an element added", "add element ip vicinity cluster-ips { 192.0.2.1 }", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := newNamespace(t)
			c := n.open(t)
			table := ruleset.NewTable(ruleset.Config{Family: ruleset.IPv4, ClusterCIDRs: []netip.Prefix{netip.MustParsePrefix("10.128.0.0/9")}})
			for i := range 5 {
				if err := table.Set(servicePort(i, 3)); err != nil {
					t.Fatal(err)
				}
			}
			commit(t, c, table, time.Now())
			wantTable(t, c, ruleset.IPv4, table)
			n.nft(t, strings.ReplaceAll(test.command, "HANDLE", firstHandle(t, n)))

			if !isForeign(t, c) {
				t.Error("not Foreign")
			}
			shape, err := c.Shape(ruleset.IPv4)
			if err != nil {
				t.Fatal(err)
			}
			if seen := !table.HoldsShape(shape); seen != test.shape {
				t.Errorf("the shape tells: %t, want %t", seen, test.shape)
			}
			listing, err := c.Read(ruleset.IPv4)
			if err != nil {
				t.Fatal(err)
			}
			if len(table.Differences(listing)) == 0 {
				t.Error("Differences are none")
			}
			table.Adopt(listing)
			commit(t, c, table, time.Now())
			wantTable(t, c, ruleset.IPv4, table)
		})
	}
}

// firstHandle is the number of the first rule of the chain that serves.
func firstHandle(t *testing.T, n *namespace) string {
	t.Helper()
	for line := range strings.Lines(n.nft(t, "--handle", "list", "chain", "ip", "vicinity", "serve")) {
		if rule, handle, ok := strings.Cut(strings.TrimSpace(line), " # handle "); ok && !strings.HasPrefix(rule, "chain") {
			return handle
		}
	}
	t.Fatal("nft shows no rule of chain serve")
	return ""
}
