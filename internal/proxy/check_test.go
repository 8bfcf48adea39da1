package proxy

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Changes by other programs are repaired within a second.
func TestForeignChangesAreRepaired(t *testing.T) {
	for name, change := range map[string]func(*fakeTable){
		"elements flushed": func(table *fakeTable) { clear(table.sets["services"].elements) },
		"an element deleted": func(table *fakeTable) {
			for key := range maps.Keys(table.sets["slots"].elements) {
				delete(table.sets["slots"].elements, key)
				return
			}
		},
		"a foreign element": func(table *fakeTable) {
			table.sets["cluster-ips"].elements["\x0a\x00\x00\x01"] = ruleset.Element{Key: "\x0a\x00\x00\x01"}
		},
		"a chain flushed":  func(table *fakeTable) { table.chains["nat-prerouting"] = nil },
		"a chain deleted":  func(table *fakeTable) { delete(table.chains, "nat-output") },
		"a foreign chain":  func(table *fakeTable) { table.chains["mine"] = []string{""} },
		"a set deleted":    func(table *fakeTable) { delete(table.sets, "services") },
		"a rule put first": func(table *fakeTable) { table.chains["serve"] = append([]string{""}, table.chains["serve"]...) },
	} {
		t.Run(name, func(t *testing.T) {
			w := many(t, 5)
			w.right("at first")
			w.kernel.do(change)
			w.run(time.Second)
			w.right(name)
			if got := w.counter("foreign", "IPv4"); got != 1 {
				t.Errorf("%g repairs are counted", got)
			}
		})
	}
	t.Run("the table deleted", func(t *testing.T) {
		w := many(t, 5)
		w.right("at first")
		w.kernel.do(nil)
		w.kernel.tables[ruleset.IPv4] = nil
		w.run(time.Second)
		w.right("the table deleted")
	})
}

// Changes of other tables are ignored and cost little, however frequent they are.
func TestChangesOfOtherTables(t *testing.T) {
	w := many(t, 5)
	w.right("at first")
	before := w.kernel.transactions()
	w.kernel.reads, w.kernel.shapes = 0, 0
	// Reading takes a tenth of a second.
	slow := &slowKernel{fakeKernel: w.kernel, take: func() { w.clock.Step(100 * time.Millisecond) }}
	w.writer.kernel = slow
	for range 120 {
		w.kernel.do(nil)
		w.run(500 * time.Millisecond)
	}
	if got := w.kernel.transactions(); got != before {
		t.Errorf("%d transactions without a change", got-before)
	}
	if w.kernel.reads < 2 || w.kernel.reads > 5 {
		t.Errorf("all was read %d times in a minute", w.kernel.reads)
	}
	if w.kernel.shapes < 100 {
		t.Errorf("there were %d quick checks in a minute", w.kernel.shapes)
	}
	// A difference found by a quick check does not wait for the next full one.
	for reads := w.kernel.reads; w.kernel.reads == reads; {
		w.kernel.do(nil)
		w.run(500 * time.Millisecond)
	}
	w.kernel.do(func(table *fakeTable) { delete(table.chains, "serve") })
	w.run(time.Second)
	w.right("a chain was deleted meanwhile")
}

// A foreign change of an element is found at once, even if frequent changes of other tables prevent full comparisons.
// If it recurs, comparisons are limited.
func TestElementsChangeDuringForeignChanges(t *testing.T) {
	w := many(t, 5)
	w.right("at first")
	w.writer.kernel = &slowKernel{fakeKernel: w.kernel, take: func() { w.clock.Step(100 * time.Millisecond) }}
	for range 3 {
		w.kernel.do(nil)
		w.run(500 * time.Millisecond)
	}
	flush := func(table *fakeTable) { clear(table.sets["slots"].elements) }
	w.kernel.do(flush)
	w.run(time.Second)
	if !w.kernel.leads("10.1.1.1") {
		t.Error("after a second the elements are missing")
	}
	w.kernel.reads = 0
	for range 120 {
		w.kernel.do(flush)
		w.run(500 * time.Millisecond)
	}
	if w.kernel.reads < 40 || w.kernel.reads > 130 {
		t.Errorf("all was read %d times in a minute", w.kernel.reads)
	}
	w.right("in the end")
}

// slowKernel takes time to be read.
type slowKernel struct {
	*fakeKernel
	take func()
}

func (k *slowKernel) Read(number ruleset.Family) (ruleset.Listing, error) {
	k.take()
	return k.fakeKernel.Read(number)
}

// Without changes by others, nothing is read until the next full comparison.
func TestNoReadsWithoutChanges(t *testing.T) {
	w := many(t, 5)
	w.right("at first")
	w.run(time.Minute)
	w.kernel.reads, w.kernel.shapes = 0, 0
	w.run(30 * time.Minute)
	if w.kernel.reads != 0 || w.kernel.shapes != 0 {
		t.Errorf("read %d times and checked %d times", w.kernel.reads, w.kernel.shapes)
	}
	w.kernel.do(func(table *fakeTable) { delete(table.chains, "serve") })
	w.kernel.interference = ruleset.NoInterference // that it happened has escaped us
	w.run(time.Hour)
	w.right("after the time to compare everything")
}

// A long read runs beside changes. If rules are programmed meanwhile, it is repeated, and finally changes wait for it.
func TestChangesDoNotWaitForAComparison(t *testing.T) {
	w := many(t, 5)
	w.right("at first")
	var beside []func()
	w.checks.background = func(do func()) { beside = append(beside, do) }
	reads := w.kernel.reads
	flush := func(table *fakeTable) { clear(table.sets["slots"].elements) }
	w.kernel.do(flush)
	for i := range mostMissed {
		w.run(time.Second)
		if len(beside) != 1 || w.kernel.reads != reads {
			t.Fatalf("%d readings in the background, and %d that changes waited for", len(beside), w.kernel.reads-reads)
		}
		endpoint := fmt.Sprintf("10.1.7.%d", i)
		w.put(aService("busy", "10.96.0.99"), aGroup("busy", "busy-1", endpoint))
		w.run(100 * time.Millisecond)
		if !w.kernel.leads(endpoint) {
			t.Fatal("a change waits for the reading")
		}
		beside[0]()
		beside, reads = nil, w.kernel.reads
		w.compared(<-w.checks.ends)
		if w.kernel.leads("10.1.1.1") {
			t.Fatal("rules are repaired with the state before a change")
		}
	}
	w.run(time.Second)
	if len(beside) != 0 || w.kernel.reads == reads {
		t.Error("it is not read in the end")
	}
	w.right("in the end")

	// Where nothing happens meanwhile the first reading counts.
	w.kernel.do(flush)
	w.run(time.Second)
	beside[0]()
	w.compared(<-w.checks.ends)
	w.right("after a quiet reading")
}
