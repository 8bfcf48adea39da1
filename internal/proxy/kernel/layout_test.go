package kernel_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Versions may have different tables of the same name. An update and a roll-back replace the whole table while clients
// connect. There is no moment without rules. A packet whose first lookup was in the old table may find nothing in its
// second one, so that one connection in thousands is refused, and a datagram is lost.
func TestUpdatesAndRollBacksUnderLoad(t *testing.T) {
	const times, clients, mostRefused = 15, 2, 3
	inWorlds(t, func(t *testing.T, w *world, _ *ruleset.Table) {
		front, sticky, udp := w.front(1, 80), w.front(2, 80), w.front(1, 80)
		udp.Protocol = ruleset.UDP
		ports := []ruleset.ServicePort{
			{Name: "a/b:tcp", Fronts: []ruleset.FrontEnd{front}, Cluster: w.all(1, 2, 3)},
			{Name: "a/b:udp", Fronts: []ruleset.FrontEnd{udp}, Cluster: w.all(1, 2, 3)},
			{Name: "a/c:", Fronts: []ruleset.FrontEnd{sticky}, Cluster: w.all(1, 2, 3), Affinity: time.Hour},
		}
		// update does what a starting proxy does when it finds the table of another version.
		update := func() {
			t.Helper()
			table := ruleset.NewTable(w.config())
			listing, err := w.conn.Read(w.family)
			if err != nil {
				t.Fatal(err)
			}
			table.Adopt(listing)
			done := stage(t, w.conn, table, ports...)
			if listing.Exists && done.Transaction.Changes[0].Kind != ruleset.DeleteTable {
				t.Fatal("the table does not count as one of another version: this test shows nothing")
			}
		}
		update()
		rollBack := func() {
			t.Helper()
			apply(t, w.conn, otherLayout(t, w.config(), ports))
		}

		flow := newFlow(t, w, udp)
		first, err := flow.answer(answerTimeout)
		if err != nil {
			t.Fatal(err)
		}
		var made, refused atomic.Int64
		var running sync.WaitGroup
		stop := make(chan struct{})
		end := sync.OnceFunc(func() {
			close(stop)
			running.Wait()
		})
		t.Cleanup(end)
		// A refused connection is retried. A datagram without an answer is not.
		refusal := func(err error) bool {
			return errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPERM)
		}
		load := func(connect func() (seen, error), lost ...error) {
			running.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					switch _, err := connect(); {
					case err == nil:
						made.Add(1)
					case refusal(err), slices.ContainsFunc(lost, func(one error) bool { return errors.Is(err, one) }):
						refused.Add(1)
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		for range clients {
			load(func() (seen, error) { return w.client.connect(w.pod, to(front), answerTimeout) })
		}
		load(func() (seen, error) { return w.client.connect(w.stranger, to(sticky), answerTimeout) })
		load(func() (seen, error) { return w.client.send(w.pod, to(udp), answerTimeout/4) }, os.ErrDeadlineExceeded)
		load(func() (seen, error) { return w.node.connect(netip.Addr{}, to(front), answerTimeout) })
		load(func() (seen, error) {
			now, err := flow.answer(answerTimeout)
			if err == nil && now.endpoint != first.endpoint {
				err = fmt.Errorf("%s answers a flow, and %s did before", now.endpoint, first.endpoint)
			}
			return now, err
		})
		some := func() {
			t.Helper()
			before := made.Load()
			waitFor(t, "clients connect", func() bool { return made.Load() > before+20 || t.Failed() })
		}
		for range times {
			some()
			rollBack()
			some()
			update()
			if t.Failed() {
				break
			}
		}
		end()
		t.Logf("%d connections and packets, %d refused", made.Load(), refused.Load())
		if refused.Load() > mostRefused {
			t.Errorf("%d connections of %d are refused", refused.Load(), made.Load())
		}
	})
}

// otherLayout replaces the table by an equivalent one of another version: one of its sets has another type, and one
// of its chains is unknown.
func otherLayout(t *testing.T, config ruleset.Config, ports []ruleset.ServicePort) ruleset.Transaction {
	t.Helper()
	table := ruleset.NewTable(config)
	for _, p := range ports {
		table.Set(p)
	}
	made := table.Commit(time.Now()).Transaction
	made.Changes = slices.Clone(made.Changes)
	for i, change := range made.Changes {
		if change.Kind == ruleset.AddSet && change.Set.Name == "hairpin" {
			other := *change.Set
			other.Dynamic = true
			made.Changes[i].Set = &other
		}
	}
	made.Changes = append(made.Changes, ruleset.Change{Kind: ruleset.AddChain, Chain: &ruleset.Chain{Name: "of-another-version"}})
	return made
}
