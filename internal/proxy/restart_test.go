package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// startAgain is a restart of a proxy that then knows what the one before knew.
func (w *world) startAgain() {
	before := w.catalogue
	w.restart()
	w.catalogue.Fill(func() {
		node, zone := before.Position()
		w.catalogue.SetNode(node)
		w.catalogue.ReplaceGroups(nil, "", zone)
		w.know(before)
	})
}

// know fills in the Services and groups that another catalogue has.
func (w *world) know(other *cluster.Catalogue) {
	for name := range other.Names() {
		e := other.Entry(name)
		if e.Service != nil {
			w.catalogue.SetService(e.Service)
		}
		for _, group := range e.Groups {
			w.catalogue.SetGroup(group)
		}
	}
}

// serving returns the number of Services that the kernel leads to the earlier endpoint or one of the named others, and
// to no other.
func (w *world) serving(n int, others ...string) int {
	table := w.kernel.tables[ruleset.IPv4]
	if table == nil || table.sets["slots"] == nil || table.sets["services"] == nil {
		return 0
	}
	allowed := map[string]bool{}
	for _, address := range others {
		allowed[string(netip.MustParseAddr(address).AsSlice())] = true
	}
	served := 0
	for i := range n {
		front := string([]byte{10, 96, 0, byte(i)})
		leads, right := false, false
		for key := range table.sets["services"].elements {
			leads = leads || strings.HasPrefix(key, front)
		}
		for key, e := range table.sets["slots"].elements {
			if strings.HasPrefix(key, front) {
				right = strings.HasPrefix(e.Data, string([]byte{10, 1, 1, byte(i)})) || allowed[e.Data[:4]]
			}
		}
		if leads && right {
			served++
		}
	}
	return served
}

// always fails the test if the kernel serves fewer than all of n Services whenever something
// is written. The kernel refuses some of that.
func (w *world) always(n int, others []string, refuses func(ruleset.Transaction) error) {
	w.kernel.refuses = func(t ruleset.Transaction) error {
		if got := w.serving(n, others...); got < n {
			w.t.Errorf("%d of %d Services are served", got, n)
		}
		return refuses(t)
	}
}

// refusingAdditions refuses all elements that are new, as a kernel without memory does.
func refusingAdditions(t ruleset.Transaction) error {
	for _, c := range t.Changes {
		if c.Kind == ruleset.AddElements {
			return fmt.Errorf("cannot allocate memory: %w", errRefused)
		}
	}
	return nil
}

// A port that the kernel refuses after a restart keeps the rules of the earlier process. All other ports keep them
// until they have their current rules.
func TestRestartWithABadPort(t *testing.T) {
	w := many(t, 20)
	w.right("at first")
	w.startAgain()
	w.put(aGroup("s7", "s7-1", "10.1.9.7"), aGroup("s3", "s3-1", "10.1.8.3"))
	w.always(20, []string{"10.1.8.3"}, refusingAddresses("10.1.9.7"))
	w.run(time.Second)
	if got := w.serving(20, "10.1.8.3"); got != 20 || !w.kernel.leads("10.1.8.3") || !w.kernel.leads("10.1.1.7") {
		t.Errorf("%d Services are served, the changed one: %t, the refused one: %t", got, w.kernel.leads("10.1.8.3"), w.kernel.leads("10.1.1.7"))
	}
	if got := w.counter("refused", "IPv4"); got != 1 {
		t.Errorf("%g ports are refused", got)
	}
	// Changes of other Services need no read.
	reads := w.kernel.reads
	w.put(aGroup("s4", "s4-1", "10.1.8.4"))
	w.always(20, []string{"10.1.8.3", "10.1.8.4"}, refusingAddresses("10.1.9.7"))
	w.run(time.Second)
	if !w.kernel.leads("10.1.8.4") || w.kernel.reads != reads {
		t.Errorf("another change is programmed: %t, with %d reads of the kernel", w.kernel.leads("10.1.8.4"), w.kernel.reads-reads)
	}
	// It stays so after a retry and during foreign changes.
	w.run(time.Minute)
	w.kernel.do(func(table *fakeTable) { delete(table.chains, "nat-output") })
	w.run(time.Minute)
	if got := w.counter("foreign", "IPv4"); got != 1 {
		t.Errorf("%g foreign changes are counted", got)
	}
	if !w.kernel.leads("10.1.1.7") {
		t.Error("the refused port does not keep its rules")
	}
	w.refusing()
	w.run(refusedMost)
	w.right("when the kernel takes it")
	if got := w.counter("refused", "IPv4"); got != 0 {
		t.Errorf("%g ports are still refused", got)
	}
}

// If the kernel has no memory for new rules at a start, it keeps all its rules, whatever has changed.
func TestRestartWithoutMemory(t *testing.T) {
	for name, changed := range map[string]int{"one is new": 0, "some have changed": 7, "all have changed": 30} {
		t.Run(name, func(t *testing.T) {
			w := many(t, 30)
			w.right("at first")
			w.startAgain()
			w.put(aService("new", "10.96.1.1"), aGroup("new", "new-1", "10.1.5.5"))
			for i := range changed {
				w.put(aGroup(fmt.Sprintf("s%d", i), fmt.Sprintf("s%d-1", i), fmt.Sprintf("10.1.9.%d", i)))
			}
			w.always(30, nil, refusingAdditions)
			w.run(10 * time.Minute)
			if got := w.serving(30); got != 30 {
				t.Errorf("%d Services are served", got)
			}
			if got, want := w.counter("refused", "IPv4"), float64(changed+1); got != want {
				t.Errorf("%g ports are refused, want %g", got, want)
			}
			w.refusing()
			w.run(refusedMost)
			w.right("when there is memory")
		})
	}
}

// A proxy that ends during a search for refused ports leaves all served ports.
func TestEndOfASearchAfterARestart(t *testing.T) {
	for tries := range 12 {
		w := many(t, 20)
		w.right("at first")
		w.startAgain()
		w.put(aGroup("s7", "s7-1", "10.1.9.7"), aGroup("s12", "s12-1", "10.1.9.12"))
		ctx, end := context.WithCancel(t.Context())
		w.always(20, nil, func(tr ruleset.Transaction) error {
			if tries--; tries < 0 {
				end()
				return ctx.Err()
			}
			return refusingAddresses("10.1.9.7", "10.1.9.12")(tr)
		})
		w.step(ctx)
		end()
		if got := w.serving(20); got != 20 {
			t.Errorf("%d Services are served", got)
		}
	}
}

// If the table must be replaced at a start, no earlier rules can stay. All ports are written in one transaction, except
// for ports without rules in the kernel.
func TestRestartReplacesTheTable(t *testing.T) {
	replacesTable := func(tr ruleset.Transaction) bool { return tr.Changes[0].Kind == ruleset.DeleteTable }
	// stuck refuses everything except a rewrite of all rules.
	stuck := func() func(ruleset.Transaction) error {
		made := false
		return func(tr ruleset.Transaction) error {
			made = made || replacesTable(tr)
			if made || len(tr.Changes) == 1 && tr.Changes[0].Kind == ruleset.AddTable {
				return nil
			}
			return errRefused
		}
	}
	broken := func(w *world) { w.kernel.do(func(table *fakeTable) { table.chains["refuse"] = nil }) }
	foreign := func(w *world) { w.kernel.do(func(table *fakeTable) { table.chains["foreign"] = nil }) }
	unreadable := func(w *world) { w.kernel.unreadable = changingError{} }
	for _, test := range []struct {
		name    string
		prepare func(*world)
		// stuck means that the kernel refuses each repair. bad is an address that it refuses anyway, or empty.
		stuck bool
		bad   string
		// served is the endpoint of s7 in the end. changed means that the others have their current rules.
		served  string
		changed bool
	}{
		{"the kernel refuses each repair", broken, true, "", "10.1.9.7", true},
		{"the kernel refuses each repair, and a port", broken, true, "10.1.9.7", "10.1.1.7", false},
		{"a chain of another", foreign, false, "", "10.1.9.7", true},
		{"a chain of another, and a port is refused", foreign, false, "10.1.9.7", "10.1.1.7", false},
		{"a chain of another, and a port is refused that is new", foreign, false, "10.1.5.5", "10.1.9.7", true},
		{"the rules cannot be read", unreadable, false, "", "10.1.9.7", true},
		{"the rules cannot be read, and a port is refused", unreadable, false, "10.1.9.7", "10.1.1.7", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := many(t, 20)
			w.right("at first")
			w.startAgain()
			w.put(aGroup("s7", "s7-1", "10.1.9.7"), aGroup("s3", "s3-1", "10.1.8.3"))
			w.put(aService("new", "10.96.1.1"), aGroup("new", "new-1", "10.1.5.5"))
			test.prepare(w)
			bad, repairs := refusingAddresses(), refusingAddresses()
			if test.bad != "" {
				bad = refusingAddresses(test.bad)
			}
			if test.stuck {
				repairs = stuck()
			}
			w.always(20, []string{"10.1.8.3", "10.1.9.7"}, func(tr ruleset.Transaction) error {
				if err := bad(tr); err != nil {
					return err
				}
				return repairs(tr)
			})
			w.run(time.Minute)
			if got := w.serving(20, "10.1.8.3", "10.1.9.7"); got != 20 || !w.kernel.leads(test.served) {
				t.Errorf("%d Services are served, s7 by %s: %t", got, test.served, w.kernel.leads(test.served))
			}
			if got := w.kernel.leads("10.1.8.3"); got != test.changed {
				t.Errorf("the others have their current rules: %t", got)
			}
			w.kernel.unreadable = nil
			w.refusing()
			w.run(refusedMost)
			w.right("in the end")
		})
	}
}
