package kernel_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// repair makes a table repair foreign changes.
func repair(t *testing.T, w *world, table *ruleset.Table) {
	t.Helper()
	l, err := w.conn.Read(w.family)
	if err != nil {
		t.Fatal(err)
	}
	table.Adopt(l)
	apply(t, w.conn, table.Commit(time.Now()).Transaction)
}

// Foreign changes of the table's flags and of the policy of a chain stop traffic that all rules accept.
func TestPolicyAndFlagsAreRepaired(t *testing.T) {
	for _, test := range []struct {
		name, chain string
		// command is a command of nft. If new is set, the chain's earlier listing is then loaded with new for old.
		command, old, new string
		// stops means that traffic stops.
		stops bool
	}{
		{"policy", "refuse-forward", "add chain ip vicinity refuse-forward { policy drop; }", "", "", true},
		{"dormant", "refuse-forward", "add table ip vicinity { flags dormant; }", "", "", true},
		{"priority", "refuse-forward", "delete chain ip vicinity refuse-forward", "priority filter - 1", "priority filter + 1", false},
		{"type", "refuse-output", "delete chain ip vicinity refuse-output", "type filter", "type route", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, worlds[0])
			w.serve(t)
			table := ruleset.NewTable(w.config())
			front := w.front(1, 80)
			stage(t, w.conn, table, ruleset.ServicePort{Name: "a/g:", Cluster: w.all(1, 2), Fronts: []ruleset.FrontEnd{front}})
			works := func(within time.Duration) bool {
				_, err := w.client.connect(w.stranger, to(front), within)
				return err == nil
			}
			chain := func() string { return w.node.nft(t, "list", "chain", "ip", "vicinity", test.chain) }
			before := chain()
			w.node.nft(t, test.command)
			if test.new != "" {
				w.node.nft(t, strings.Replace(before, test.old, test.new, 1))
			}
			within := answerTimeout
			if test.stops {
				within = time.Second
			}
			if works(within) == test.stops {
				t.Fatalf("it works: %t: the test shows nothing", !test.stops)
			}
			for what, read := range map[string]func(ruleset.Family) (ruleset.Listing, error){"Read": w.conn.Read, "Shape": w.conn.Shape} {
				l, err := read(w.family)
				if err != nil {
					t.Fatal(err)
				}
				if table.HoldsShape(l) {
					t.Errorf("%s does not show the change", what)
				}
			}
			repair(t, w, table)
			if !works(answerTimeout) {
				t.Error("it does not work after the repair")
			}
			wantTable(t, w.conn, w.family, table)
			if after := chain(); after != before {
				t.Errorf("the repaired chain is\n%s\ninstead of\n%s", after, before)
			}
		})
	}
}

// The first and the last address of adjacent source ranges are accepted, and their neighbours are not.
func TestAdjacentSources(t *testing.T) {
	for _, a := range worlds {
		t.Run(fmt.Sprint("family ", a.family), func(t *testing.T) {
			w := newWorld(t, a)
			w.serve(t)
			var friends, strangers, all []netip.Addr
			var sources, own []netip.Prefix
			next := a.stranger
			for i := range 22 {
				if all = append(all, next); i%11 == 10 {
					strangers = append(strangers, next)
				} else {
					friends = append(friends, next)
					sources = append(sources, netip.PrefixFrom(next, next.BitLen()))
				}
				next = next.Next()
			}
			for _, address := range all[1:] {
				own = append(own, netip.PrefixFrom(address, a.wideBits))
			}
			addAddresses(t, w.client, "eth0", own)
			guarded := a.front(2, 80)
			guarded.ClusterIP, guarded.Sources = false, sources
			table := ruleset.NewTable(a.config())
			stage(t, w.conn, table, ruleset.ServicePort{Name: "a/g:", Cluster: a.all(1, 2), Fronts: []ruleset.FrontEnd{guarded}})
			for _, friend := range friends {
				if _, err := w.client.connect(friend, to(guarded), 5*time.Second); err != nil {
					t.Errorf("%s is excluded from %s: %v", friend, sources, err)
				}
			}
			for _, stranger := range strangers {
				if _, err := w.client.connect(stranger, to(guarded), 300*time.Millisecond); err == nil {
					t.Errorf("%s may connect", stranger)
				}
			}
		})
	}
}
