package proxy

import (
	"context"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

type tracker interface {
	Delete(context.Context, []ruleset.Stale) (int, error)
	Reconcile(context.Context, map[ruleset.Front][]netip.AddrPort) (int, error)
}

// memory has the kernel forget which endpoints clients stay with.
type memory interface {
	Forget(ruleset.Family, []ruleset.Forget) error
}

// cleaner has the kernel forget connections and clients of endpoints that were removed. That may take long, so
// it runs beside the programmer. Failures are tried again: packets of what is left would get no answer.
type cleaner struct {
	tracker tracker
	memory  memory
	clock   clock.Clock
	metrics *metrics
	log     logr.Logger
	wake    chan struct{}
	// forgotten is called when all clients of a map are forgotten, with the time when that began.
	forgotten func(family ruleset.Family, set string, began time.Time)
	// stillStale removes connections whose endpoints serve again. They may have waited, or have failed before.
	stillStale func([]ruleset.Stale) []ruleset.Stale

	mu      sync.Mutex
	stale   map[ruleset.Stale]bool
	clients map[remembered]ruleset.Forget
	// patient are connections that can wait, until due.
	patient map[ruleset.Stale]bool
	due     time.Time
	// live are where UDP connections may go that are to be reconciled.
	live       map[ruleset.Front][]netip.AddrPort
	reconciled map[ruleset.Family]reconciliation
}

type reconciliation struct {
	// asked says that it is asked for, or done.
	asked    bool
	failures int
	retry    time.Time
}

type remembered struct {
	family ruleset.Family
	set    string
}

// First and longest times until a failed clean-up is tried again.
const (
	cleanFirst = time.Second
	cleanMost  = time.Minute
)

// patience is how long TCP connections wait, whose ends notice by themselves that they lead nowhere. TCP sends
// its first packet again after 1, 3 and 7 seconds, and the last of these has to get through. To look costs the
// kernel ten milliseconds, so what comes meanwhile is done together, with the second look after the linger time.
const patience = 6 * time.Second

// mostPatient bounds how many fronts wait together. Each takes some 250 bytes.
const mostPatient = 50_000

// lastMoment is how long a clean-up may take at the end. The next process does not know what is left.
const lastMoment = 2 * time.Second

func newCleaner(t tracker, k memory, m *metrics, log logr.Logger) *cleaner {
	return &cleaner{
		tracker: t, memory: k, clock: clock.RealClock{}, metrics: m, log: log, wake: make(chan struct{}, 1),
		forgotten: func(ruleset.Family, string, time.Time) {}, stillStale: func(all []ruleset.Stale) []ruleset.Stale { return all },
		stale: map[ruleset.Stale]bool{}, clients: map[remembered]ruleset.Forget{}, patient: map[ruleset.Stale]bool{},
		live: map[ruleset.Front][]netip.AddrPort{}, reconciled: map[ruleset.Family]reconciliation{},
	}
}

// disconnect asks for connections to be forgotten. Any goroutine may call it.
func (c *cleaner) disconnect(stale []ruleset.Stale) {
	c.ask(func() bool {
		asked := false
		for _, one := range stale {
			if one.Front.Protocol == ruleset.UDP {
				c.stale[one], asked = true, true
				continue
			}
			if len(c.patient) == 0 {
				c.due, asked = c.clock.Now().Add(patience), true
			}
			c.patient[one] = true
		}
		if len(c.patient) >= mostPatient && c.due.After(c.clock.Now()) {
			c.due, asked = c.clock.Now(), true
		}
		return asked
	})
}

// unreconciled reports whether to look at all UDP connections of a family now. An earlier process may have ended
// before it had all forgotten, and endpoints may have gone while none ran. Any goroutine may call it.
func (c *cleaner) unreconciled(family ruleset.Family) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.reconciled[family]
	return !known.asked && !known.retry.After(c.clock.Now())
}

// reconcile asks for the UDP connections to be forgotten that go elsewhere than live says. After a failure it
// has to be asked for again, with what is live then.
func (c *cleaner) reconcile(family ruleset.Family, live map[ruleset.Front][]netip.AddrPort) {
	c.ask(func() bool {
		maps.Copy(c.live, live)
		known := c.reconciled[family]
		known.asked = true
		c.reconciled[family] = known
		return len(live) > 0
	})
}

// forget asks for clients to be forgotten. The last request for a map counts. Any goroutine may call it.
func (c *cleaner) forget(family ruleset.Family, clients []ruleset.Forget) {
	c.ask(func() bool {
		for _, one := range clients {
			c.clients[remembered{family, one.Set}] = one
		}
		return len(clients) > 0
	})
}

// ask stores a request, and wakes run if there is something new to do.
func (c *cleaner) ask(note func() bool) {
	c.mu.Lock()
	asked := note()
	c.mu.Unlock()
	if asked {
		signal(c.wake)
	}
}

// run works until the context ends. It leaves the rest to finish.
func (c *cleaner) run(ctx context.Context) {
	var again <-chan time.Time
	for failures := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
		case <-again:
		}
		failures++
		began := c.clock.Now()
		if c.clean(ctx) {
			failures = 0
		}
		c.rest(ctx, c.clock.Since(began))
		again = nil
		if wait := c.wait(failures); wait > 0 {
			again = c.clock.After(wait)
		}
	}
}

// finish does all that is left, within lastMoment. It is called when run and all who ask have ended.
func (c *cleaner) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMoment)
	defer cancel()
	c.mu.Lock()
	c.due = time.Time{}
	c.mu.Unlock()
	c.clean(ctx)
}

// wait is the time until something is due, zero if nothing is.
func (c *cleaner) wait(failures int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var wait time.Duration
	if failures > 0 {
		wait = backoff(cleanFirst, cleanMost, failures)
	}
	if len(c.patient) > 0 {
		left := max(c.due.Sub(c.clock.Now()), time.Nanosecond)
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// rest waits as long as the last clean-up took, so that looking takes half of the time at most.
func (c *cleaner) rest(ctx context.Context, worked time.Duration) {
	if worked <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-c.clock.After(worked):
	}
}

// clean does all that is due, and reports whether it succeeded. The end of the context is no failure.
func (c *cleaner) clean(ctx context.Context) bool {
	c.mu.Lock()
	began := c.clock.Now() // what comes from now on is asked for anew
	stale, clients, live := c.stale, c.clients, c.live
	c.stale, c.clients, c.live = map[ruleset.Stale]bool{}, map[remembered]ruleset.Forget{}, map[ruleset.Front][]netip.AddrPort{}
	if len(c.patient) > 0 && !c.due.After(began) {
		maps.Copy(stale, c.patient)
		c.patient = map[ruleset.Stale]bool{}
	}
	c.mu.Unlock()
	// Clients first: a remembered client makes another connection that goes nowhere.
	forgotten := c.cleanClients(ctx, clients, began)
	c.reconcileAll(ctx, live)
	return c.cleanConnections(ctx, stale) && forgotten
}

func (c *cleaner) reconcileAll(ctx context.Context, live map[ruleset.Front][]netip.AddrPort) {
	if len(live) == 0 {
		return
	}
	n, err := c.tracker.Reconcile(ctx, live)
	if err != nil && ctx.Err() != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		maps.Copy(live, c.live)
		c.live = live
		return
	}
	c.metrics.deleted.WithLabelValues(resultOf(err)).Inc()
	if err == nil {
		c.log.Info("Deleted UDP connections to endpoints that were removed before the start", "deleted", n)
		return
	}
	c.metrics.failed(stepTrack)
	c.log.Error(err, "Cannot delete all UDP connections to endpoints that were removed before the start", "deleted", n)
	failed := map[ruleset.Family]bool{}
	for front := range live {
		failed[familyOf(front.Address)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for family := range failed {
		failures := c.reconciled[family].failures + 1
		c.reconciled[family] = reconciliation{failures: failures, retry: c.clock.Now().Add(backoff(cleanFirst, cleanMost, failures))}
	}
}

func familyOf(address netip.Addr) ruleset.Family {
	if address.Is6() {
		return ruleset.IPv6
	}
	return ruleset.IPv4
}

func (c *cleaner) cleanConnections(ctx context.Context, stale map[ruleset.Stale]bool) bool {
	if len(stale) == 0 {
		return true
	}
	list := make([]ruleset.Stale, 0, len(stale))
	for one := range stale {
		list = append(list, one)
	}
	if list = c.stillStale(list); len(list) == 0 {
		return true
	}
	n, err := c.tracker.Delete(ctx, list)
	if err != nil {
		c.mu.Lock()
		for _, one := range list {
			c.stale[one] = true
		}
		c.mu.Unlock()
		if ctx.Err() != nil {
			return true
		}
	}
	c.metrics.deleted.WithLabelValues(resultOf(err)).Inc()
	if err == nil {
		c.log.V(1).Info("Deleted connections to removed endpoints", "deleted", n)
		return true
	}
	c.metrics.failed(stepTrack)
	c.log.Error(err, "Cannot delete all connections to removed endpoints", "deleted", n)
	return false
}

func (c *cleaner) cleanClients(ctx context.Context, clients map[remembered]ruleset.Forget, began time.Time) bool {
	all := true
	for of, one := range clients {
		err := c.memory.Forget(of.family, []ruleset.Forget{one})
		if err == nil {
			c.forgotten(of.family, of.set, began)
			continue
		}
		c.mu.Lock()
		if _, anew := c.clients[of]; !anew {
			c.clients[of] = one
		}
		c.mu.Unlock()
		if ctx.Err() != nil {
			continue
		}
		all = false
		c.metrics.failed(stepForget)
		c.log.Error(err, "Cannot delete remembered clients of removed endpoints", "family", familyName(of.family))
	}
	return all
}
