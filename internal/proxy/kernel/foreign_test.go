package kernel_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// commit applies what is staged to the kernel.
func commit(t testing.TB, c *kernel.Conn, table *ruleset.Table, now time.Time) ruleset.Commit {
	t.Helper()
	commit := table.Commit(now)
	apply(t, c, commit.Transaction)
	return commit
}

// wantTable compares the kernel's table with the expected one.
func wantTable(t testing.TB, c *kernel.Conn, family ruleset.Family, table *ruleset.Table) {
	t.Helper()
	listing, err := c.Read(family)
	if err != nil {
		t.Fatal(err)
	}
	if found := table.Differences(listing); len(found) > 0 {
		t.Fatalf("the kernel differs:\n%s", strings.Join(found, "\n"))
	}
}

func interference(t testing.TB, c *kernel.Conn) ruleset.Interference {
	t.Helper()
	found, err := c.Interference()
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestInterferenceIgnoresOwnChanges(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	table := ruleset.NewTable(ruleset.Config{Family: ruleset.IPv4})
	is := func(when string, want ruleset.Interference) {
		t.Helper()
		if got := interference(t, c); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	n.nft(t, "add table ip vicinity")
	is("a change before the first question", ruleset.Interfered)
	n.nft(t, "add table ip another")
	is("a change of another table", ruleset.NoInterference)
	for i := range 10 {
		table.Set(servicePort(i, i))
		commit(t, c, table, time.Now())
		is("an own change", ruleset.NoInterference)
	}
	// A transaction that changes nothing, or is refused, does not hide later foreign changes.
	apply(t, c, ruleset.Transaction{Family: ruleset.IPv4, Changes: []ruleset.Change{{Kind: ruleset.AddTable}}})
	is("an own change that changes nothing", ruleset.NoInterference)
	err := c.Apply(t.Context(), ruleset.Transaction{Family: ruleset.IPv4, Changes: []ruleset.Change{
		{Kind: ruleset.DeleteSet, Set: &ruleset.Set{Name: "nothing"}},
	}})
	if err == nil {
		t.Error("an absent object was deleted")
	}
	is("a refusal", ruleset.NoInterference)
	for _, command := range []string{
		"add chain ip another one", "add table inet vicinity", "add set ip another vicinity { type ipv4_addr; }", "delete table ip another",
	} {
		n.nft(t, command)
		is(command, ruleset.NoInterference)
	}
	for _, command := range []string{
		"add element ip vicinity cluster-ips { 192.0.2.1 }", "delete element ip vicinity cluster-ips { 192.0.2.1 }",
		"flush map ip vicinity slots", "add chain ip vicinity mine", "insert rule ip vicinity drop-outside drop",
		"add table ip6 vicinity", "delete table ip6 vicinity", "flush ruleset",
	} {
		n.nft(t, command)
		is(command, ruleset.Interfered)
		is("nothing after it", ruleset.NoInterference)
	}
}

// Changes just before or after an own change, and among many changes of other tables, are not lost.
func TestForeignChangesAmongOthers(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	table := ruleset.NewTable(ruleset.Config{Family: ruleset.IPv4})
	interference(t, c)
	commit(t, c, table, time.Now())
	n.nft(t, "add element ip vicinity cluster-ips { 192.0.2.1 }")
	table.Set(servicePort(0, 5))
	commit(t, c, table, time.Now())
	if got := interference(t, c); got != ruleset.Interfered {
		t.Errorf("a foreign change before an own one: %d", got)
	}
	// More than there is room for.
	c.NarrowNotices(t)
	var elements []string
	for i := range 1000 {
		elements = append(elements, fmt.Sprintf("10.0.%d.%d", i/250, i%250))
	}
	n.nft(t, "add table ip busy; add set ip busy s { type ipv4_addr; }; add element ip busy s { "+strings.Join(elements, ", ")+" }")
	n.nft(t, "add element ip vicinity cluster-ips { 192.0.2.2 }")
	if got := interference(t, c); got != ruleset.PossibleInterference {
		t.Errorf("an own change among too many foreign ones: %d", got)
	}
	if got := interference(t, c); got != ruleset.NoInterference {
		t.Errorf("without a change: %d", got)
	}
}

// Large transactions run without notices, and changes by others meanwhile are noticed anyway.
func TestForeignChangesDuringBulk(t *testing.T) {
	n := newNamespace(t)
	c := n.open(t)
	interference(t, c)
	is := func(when string, want ruleset.Interference) {
		t.Helper()
		if got := interference(t, c); got != want {
			t.Errorf("%s: %d, want %d", when, got, want)
		}
	}
	table := ruleset.NewTable(ruleset.Config{Family: ruleset.IPv4})
	pauses := c.Pauses()
	for _, step := range []struct{ services, pauses int }{{10, 0}, {200, 1}} {
		for i := range step.services {
			table.Set(servicePort(i, 10))
		}
		commit(t, c, table, time.Now())
		if *pauses != step.pauses {
			t.Errorf("%d Services: watching paused %d times, want %d", step.services, *pauses, step.pauses)
		}
	}
	is("two thousand elements", ruleset.NoInterference)
	n.nft(t, "add element ip vicinity cluster-ips { 192.0.2.1 }")
	is("a change after them", ruleset.Interfered)

	refused := ruleset.Transaction{Family: ruleset.IPv4, Changes: []ruleset.Change{{Kind: ruleset.DeleteSet, Set: &ruleset.Set{Name: "nothing"}}}}
	endpoints := 10
	own := func() {
		if err := c.Apply(t.Context(), refused); err == nil {
			t.Error("an absent object was deleted")
		}
		endpoints++
		table.Set(servicePort(0, endpoints))
		commit(t, c, table, time.Now())
	}
	c.Unnoticed(own)
	is("own changes", ruleset.NoInterference)
	for _, command := range []string{"add element ip vicinity cluster-ips { 192.0.2.2 }", "add table ip another"} {
		c.Unnoticed(func() {
			own()
			n.nft(t, command)
		})
		is(command+" during a pause", ruleset.PossibleInterference)
		is("nothing after it", ruleset.NoInterference)
	}
	c.Unnoticed(func() { n.nft(t, "add table ip third") })
	n.nft(t, "delete element ip vicinity cluster-ips { 192.0.2.1 }")
	is("one during a pause, and one after it", ruleset.Interfered)
	is("nothing after them", ruleset.NoInterference)
}

// numbered is the n-th address of a range.
func numbered(first string, n int) netip.Addr {
	bytes := netip.MustParseAddr(first).As4()
	binary.BigEndian.PutUint32(bytes[:], binary.BigEndian.Uint32(bytes[:])+uint32(n))
	return netip.AddrFrom4(bytes)
}

// servicePort is a port of a Service with as many endpoints.
func servicePort(n, endpoints int) ruleset.ServicePort {
	p := ruleset.ServicePort{
		Name: fmt.Sprintf("default/service-%d:http", n),
		Fronts: []ruleset.FrontEnd{{
			Front:     ruleset.Front{Address: numbered("10.96.0.0", n), Protocol: ruleset.TCP, Port: 80},
			ClusterIP: true,
		}},
	}
	for i := range endpoints {
		p.Cluster = append(p.Cluster, netip.AddrPortFrom(numbered("10.128.0.0", n*endpoints+i), 8080))
	}
	return p
}
