package kernel_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Traffic of pods is told by the interface that it comes in by, whatever its source, and
// that of the node, which comes in by none, is other traffic.
func TestPodsAreToldByInterface(t *testing.T) {
	inWorlds(t, func(t *testing.T, w *world, _ *ruleset.Table) {
		clusterIP, split := w.front(1, 80), w.front(2, 80)
		split.ClusterIP, split.Pool = false, ruleset.PoolSplit
		port := ruleset.ServicePort{
			Name: "a/b:", Fronts: []ruleset.FrontEnd{clusterIP, split}, Cluster: w.all(1, 2, 3), Local: w.all(2),
		}
		table := ruleset.NewTable(ruleset.Config{Family: w.family})
		stage(t, w.conn, table, port)
		for _, test := range []struct {
			name  string
			pods  ruleset.Interfaces
			rules []string
			told  bool
		}{
			{"one", ruleset.Interfaces{Name: "client"}, []string{`iifname "client" goto pick-3`, `iifname != "client" `}, true},
			{"several", ruleset.Interfaces{Name: "cli", Prefix: true}, []string{`iifname "cli*" goto pick-3`, `iifname != "cli*" `}, true},
			{"several, of which there is one", ruleset.Interfaces{Name: "client", Prefix: true}, []string{`iifname "client*" goto pick-3`}, true},
			{"one that there is not", ruleset.Interfaces{Name: "clien"}, []string{`iifname "clien" goto pick-3`}, false},
			{"the longest name", ruleset.Interfaces{Name: "client789012345"}, []string{`iifname "client789012345" goto pick-3`}, false},
			{"the longest prefix", ruleset.Interfaces{Name: "client789012345", Prefix: true}, []string{`iifname "client789012345*" goto pick-3`}, false},
		} {
			t.Run(test.name, func(t *testing.T) {
				config := ruleset.Config{Family: w.family, PodInterfaces: test.pods}
				table.Configure(config)
				commit(t, w.conn, table, time.Now())
				wantTable(t, w.conn, w.family, table)
				listed := w.node.nft(t, "list", "ruleset")
				for _, rule := range test.rules {
					if !strings.Contains(listed, "\t"+rule) {
						t.Errorf("nft does not list %q:\n%s", rule, listed)
					}
				}
				if got, want := blocks(listed), blocks(table.Text()); !slices.Equal(got, want) {
					t.Errorf("nft lists\n%s\nthe text says\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
				// One that knows nothing of the past finds it right.
				anew := ruleset.NewTable(config)
				if err := anew.Set(port); err != nil {
					t.Fatal(err)
				}
				listing, err := w.conn.Read(w.family)
				if err != nil {
					t.Fatal(err)
				}
				anew.Adopt(listing)
				if changes := anew.Commit(time.Now()).Transaction.Changes; len(changes) > 0 {
					t.Errorf("after a restart there are %d changes", len(changes))
				}

				connect := func(n *namespace, from netip.Addr, f ruleset.FrontEnd) func() (seen, error) {
					return func() (seen, error) { return n.connect(from, to(f), patience) }
				}
				source, endpoints := w.inner, w.all(2)
				if test.told {
					source, endpoints = w.stranger, w.all(1, 2, 3)
				}
				reach(t, connect(w.client, w.stranger, clusterIP), source, w.all(1, 2, 3))
				reach(t, connect(w.client, w.stranger, split), w.stranger, endpoints)
				reach(t, connect(w.endpoints, w.endpoint(4).Addr(), clusterIP), w.inner, w.all(1, 2, 3))
				reach(t, connect(w.node, w.outer, clusterIP), w.inner, w.all(1, 2, 3))
				reach(t, connect(w.node, w.outer, split), w.inner, w.all(1, 2, 3))
			})
		}
	})
}
