package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"vicinity.dev/vicinity/internal/proxy/health"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

var errRefused error = refusedError{}

// refusedError is the error of a kernel that has changed nothing.
type refusedError struct{}

func (refusedError) Error() string     { return "invalid argument" }
func (refusedError) NothingDone() bool { return true }

// many is a world with Services s0 to s(n-1), at 10.96.0.n with an endpoint 10.1.1.n; after 250
// at 10.96.1.0 with 10.1.2.0, and so on.
func many(t *testing.T, n int) *world {
	w := newWorld(t)
	for i := range n {
		w.put(aService(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", i/250, i%250)), aGroup(fmt.Sprintf("s%d", i), fmt.Sprintf("s%d-1", i), manyEndpoint(i)))
	}
	return w
}

// manyEndpoint is the endpoint of a Service of many.
func manyEndpoint(i int) string { return fmt.Sprintf("10.1.%d.%d", 1+i/250, i%250) }

// refusing makes the kernel refuse what touches addresses.
func (w *world) refusing(addresses ...string) {
	w.kernel.refuses = refusingAddresses(addresses...)
}

// refusingAddresses refuses what touches addresses.
func refusingAddresses(addresses ...string) func(ruleset.Transaction) error {
	return func(t ruleset.Transaction) error {
		for _, address := range addresses {
			if touches(t, address) {
				return fmt.Errorf("adding %s: %w", address, errRefused)
			}
		}
		return nil
	}
}

// After a single refusal the kernel is read, and the write succeeds.
func TestRefusedOnce(t *testing.T) {
	w := many(t, 3)
	w.right("at first")
	reads := w.kernel.reads
	w.kernel.refuses = func(ruleset.Transaction) error {
		w.kernel.refuses = func(ruleset.Transaction) error { return nil }
		return errRefused
	}
	w.put(aGroup("s1", "s1-1", "10.1.2.1"))
	w.run(0)
	if w.kernel.reads == reads {
		t.Error("the kernel was not read")
	}
	w.kernel.reads = 0
	w.right("after one refusal")
	if got := w.counter("transactions", "IPv4", "error"); got != 1 {
		t.Errorf("%g failures are counted", got)
	}
	if got := w.counter("refused", "IPv4"); got != 0 {
		t.Errorf("%g ports are refused", got)
	}
}

// A port that the kernel refuses keeps its rules and does not block others.
func TestOneBadPort(t *testing.T) {
	w := many(t, 20)
	w.right("at first")
	w.refusing("10.1.9.7")
	for i := range 20 {
		w.put(aGroup(fmt.Sprintf("s%d", i), fmt.Sprintf("s%d-1", i), fmt.Sprintf("10.1.9.%d", i)))
	}
	w.run(time.Second)
	listing := func() (found []string) {
		read, err := w.kernel.list(ruleset.IPv4, true)
		if err != nil {
			t.Fatal(err)
		}
		return w.wanted()[ruleset.IPv4].Differences(read)
	}
	if got := strings.Join(listing(), "\n"); !strings.Contains(got, "10.1.1.7:8080") || strings.Count(got, "\n") != 0 {
		t.Errorf("not all others are programmed, or the refused one has changed:\n%s", got)
	}
	if got := w.counter("refused", "IPv4"); got != 1 {
		t.Errorf("%g ports are refused", got)
	}
	if len(w.events.events) != 1 || !strings.Contains(w.events.events[0], "shop/s7 Warning PortNotProgrammed") {
		t.Errorf("events %q", w.events.events)
	}

	// Changes of other Services and of its own do not retry it each time.
	before := w.counter("transactions", "IPv4", "error")
	for i := range 10 {
		w.put(aGroup("s3", "s3-1", fmt.Sprintf("10.1.8.%d", i)), aGroup("s7", "s7-1", "10.1.9.7", fmt.Sprintf("10.1.8.%d", i)))
		w.run(100 * time.Millisecond)
	}
	if got := w.counter("transactions", "IPv4", "error"); got != before {
		t.Errorf("%g more transactions fail", got-before)
	}
	// It is retried without a change, and reported once.
	w.run(time.Minute)
	if got := w.counter("transactions", "IPv4", "error"); got == before || got > before+20 {
		t.Errorf("%g more transactions fail in a minute", got-before)
	}
	if len(w.events.events) != 1 {
		t.Errorf("events %q", w.events.events)
	}
	w.refusing()
	w.run(refusedMost)
	w.right("when the kernel takes it")
	if got := w.counter("refused", "IPv4"); got != 0 {
		t.Errorf("%g ports are still refused", got)
	}
}

// A refused port that is removed or repaired has no further effect.
func TestBadPortIsRemovedOrRepaired(t *testing.T) {
	for name, change := range map[string]func(*world){
		"it is deleted": func(w *world) { w.drop(aService("s1", "10.96.0.1")) },
		"it is other":   func(w *world) { w.put(aGroup("s1", "s1-1", "10.1.7.1")) },
	} {
		t.Run(name, func(t *testing.T) {
			w := many(t, 3)
			w.refusing("10.1.1.1")
			w.run(time.Second)
			if got := w.counter("refused", "IPv4"); got != 1 {
				t.Fatalf("%g ports are refused", got)
			}
			change(w)
			w.run(refusedFirst)
			w.right(name)
			if got := w.counter("refused", "IPv4"); got != 0 {
				t.Errorf("%g ports are still refused", got)
			}
		})
	}
}

// refusingElements refuses elements that lead to addresses.
func refusingElements(addresses ...string) func(ruleset.Transaction) error {
	return func(t ruleset.Transaction) error {
		for _, address := range addresses {
			raw := string(netip.MustParseAddr(address).AsSlice())
			leads := func(e ruleset.Element) bool { return strings.Contains(e.Data, raw) }
			if slices.ContainsFunc(t.Changes, func(c ruleset.Change) bool { return slices.ContainsFunc(c.Elements, leads) }) {
				return errRefused
			}
		}
		return nil
	}
}

// Bounded searches converge, however long transactions take: all good ports are programmed, and all bad ones refused.
func TestSearchesConverge(t *testing.T) {
	for _, history := range []struct {
		name      string
		ports     int
		isBad     func(i int) bool
		bad       int
		each      time.Duration // that an element takes
		converges time.Duration
		change    time.Duration // takes at most that, when all has converged
	}{
		{name: "most are bad", ports: 320, isBad: func(i int) bool { return i%3 != 0 }, bad: 213, converges: 10 * time.Second, change: time.Second},
		{name: "a transaction takes long", ports: 240, isBad: func(i int) bool { return i%12 == 5 }, bad: 20, each: 600 * time.Microsecond, converges: time.Minute, change: 2 * longestSearch},
		{name: "one is longer than a search", ports: 240, isBad: func(i int) bool { return i%120 == 5 }, bad: 2, each: 10 * time.Millisecond, converges: 5 * time.Minute, change: time.Minute},
		{name: "one is bad", ports: 300, isBad: func(i int) bool { return i == 150 }, bad: 1, converges: time.Second, change: time.Second},
	} {
		t.Run(history.name, func(t *testing.T) {
			t.Parallel()
			w := many(t, history.ports)
			var bad []string
			for i := range history.ports {
				if history.isBad(i) {
					bad = append(bad, manyEndpoint(i))
				}
			}
			w.kernel.refuses = refusingElements(bad...)
			w.kernel.costs = func(tr ruleset.Transaction) { w.clock.Step(time.Duration(sizeOf(tr)) * history.each) }
			began := w.clock.Now()
			good, refused := func() int { return len(w.families[0].table.Programmed()) }, func() int { return len(w.families[0].refused) }
			for good() != history.ports-history.bad && w.clock.Since(began) < history.converges {
				w.run(time.Second)
			}
			t.Logf("%s, %g transactions failed", w.clock.Since(began), w.counter("transactions", "IPv4", "error"))
			if good() != history.ports-history.bad || refused() != history.bad || history.bad != len(bad) {
				t.Errorf("%d ports are programmed and %d refused, want %d and %d", good(), refused(), history.ports-history.bad, history.bad)
			}
			// Refused ports are retried at intervals and delay no change.
			w.run(time.Minute)
			began = w.clock.Now()
			w.put(aGroup("s0", "s0-1", "10.1.9.1"))
			for !w.kernel.leads("10.1.9.1") && w.clock.Since(began) < time.Minute {
				w.run(time.Second)
			}
			if took := w.clock.Since(began); took > history.change {
				t.Errorf("a change took %s", took)
			}
			w.refusing()
			w.run(refusedMost)
			w.right("when the kernel takes them")
		})
	}
}

// If the kernel refuses everything, no port is refused alone, and everything is retried.
func TestKernelRefusesEverything(t *testing.T) {
	w := many(t, 5)
	w.right("at first")
	w.kernel.refuses = func(ruleset.Transaction) error { return errRefused }
	w.put(aGroup("s1", "s1-1", "10.1.2.1"))
	w.run(time.Minute)
	if got := w.counter("refused", "IPv4"); got != 0 {
		t.Errorf("%g ports are refused", got)
	}
	failed := w.counter("transactions", "IPv4", "error")
	if failed < 10 || failed > 200 {
		t.Errorf("%g transactions failed within a minute", failed)
	}
	if !w.health.Healthy() {
		t.Error("unhealthy after a minute")
	}
	w.run(health.Timeout)
	if w.health.Healthy() {
		t.Error("healthy after minutes without a sync")
	}
	w.refusing()
	w.run(2 * retryMost)
	w.right("when the kernel works")
	if !w.health.Healthy() {
		t.Error("unhealthy though all is programmed")
	}
}

// If the kernel refuses every repair, all rules are rewritten. Ports that are refused alone stay refused.
func TestRefusedRepair(t *testing.T) {
	for name, change := range map[string]func(*world){
		"a repair": func(w *world) {
			w.kernel.do(func(table *fakeTable) { delete(table.chains, "nat-output") })
		},
		"a change": func(w *world) { w.put(aGroup("s1", "s1-1", "10.1.2.1")) },
		"a change and one that is bad": func(w *world) {
			w.put(aGroup("s1", "s1-1", "10.1.2.1"), aGroup("s2", "s2-1", "10.1.9.9"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := many(t, 5)
			w.right("at first")
			stuck := true
			w.kernel.refuses = func(t ruleset.Transaction) error {
				switch first := t.Changes[0].Kind; {
				case touches(t, "10.1.9.9"):
					return fmt.Errorf("adding 10.1.9.9: %w", errRefused)
				case first == ruleset.AddTable:
				case first == ruleset.DeleteTable:
					stuck = false
				case stuck:
					return errRefused
				}
				return nil
			}
			change(w)
			// No write succeeds, not even the repair of this chain.
			w.kernel.do(func(table *fakeTable) { table.chains["refuse"] = nil })
			w.run(2 * time.Second)
			if stuck {
				t.Fatal("nothing was rewritten")
			}
			if got := w.counter("rewrites", "IPv4"); got != 1 {
				t.Errorf("the rules were rewritten %g times", got)
			}
			want := 0.0
			if strings.Contains(name, "bad") {
				want = 1
			}
			if got := w.counter("refused", "IPv4"); got != want {
				t.Errorf("%g ports are refused, want %g", got, want)
			}
			w.refusing()
			w.run(refusedMost)
			w.right("in the end")
		})
	}
}

// The same holds if the kernel cannot be read.
func TestUnreadableKernel(t *testing.T) {
	w := many(t, 5)
	w.kernel.unreadable = errRefused
	w.run(time.Minute)
	if got := w.kernel.transactions(); got != 0 {
		t.Errorf("%d transactions though the kernel's rules are unknown", got)
	}
	w.kernel.unreadable = nil
	w.run(2 * retryMost)
	w.right("when the kernel is read")
}

// changingError is the error of a read during constant foreign changes.
type changingError struct{}

func (changingError) Error() string       { return "it changes all the time" }
func (changingError) KeepsChanging() bool { return true }

// If others keep changing their rules so that a read fails, all rules are rewritten after a few attempts, at the start
// and after a refusal.
func TestBusyWriter(t *testing.T) {
	fill := func(w *world, endpoint string) {
		for i := range 5 {
			name := fmt.Sprintf("s%d", i)
			w.put(aService(name, fmt.Sprintf("10.96.0.%d", i)), aGroup(name, name+"-1", fmt.Sprintf(endpoint, i)))
		}
	}
	for name, begin := range map[string]func(*world){
		"at the start": func(w *world) {
			w.restart()
			fill(w, "10.1.2.%d")
			w.put(aNode("a"))
			w.settleIn()
		},
		"the kernel refuses something": func(w *world) {
			w.kernel.refuses = func(ruleset.Transaction) error {
				w.kernel.refuses = func(ruleset.Transaction) error { return nil }
				return errRefused
			}
			fill(w, "10.1.2.%d")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			fill(w, "10.1.1.%d")
			w.right("before")
			w.kernel.unreadable = changingError{}
			before := w.kernel.transactions()
			begin(w)
			w.step(t.Context())
			w.run(retryFirst)
			if got := w.kernel.transactions(); got != before {
				t.Errorf("%d transactions after two attempts to read", got-before)
			}
			w.run(time.Second)
			if !w.kernel.leads("10.1.2.0") || w.kernel.leads("10.1.1.0") {
				t.Error("the rules are not rewritten")
			}
			if got := testutil.ToFloat64(w.metrics.rewrites.WithLabelValues("IPv4")); got != 1 {
				t.Errorf("%g times are counted", got)
			}
			w.kernel.unreadable = nil
			w.right("when it can be read")
			if got := testutil.ToFloat64(w.metrics.rewrites.WithLabelValues("IPv4")); got != 1 {
				t.Errorf("%g times are counted in the end", got)
			}
		})
	}
}
