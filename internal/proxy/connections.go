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

// memory deletes remembered clients from the kernel's affinity maps.
type memory interface {
	Forget(ruleset.Family, []ruleset.Forget) error
}

// cleaner deletes tracked connections to removed or drained endpoints, and remembered clients, from the kernel. That may
// take long, so it runs beside the programmer. It retries after failures: packets of the connections that are left get no answer.
type cleaner struct {
	tracker tracker
	memory  memory
	clock   clock.Clock
	metrics *metrics
	log     logr.Logger
	wake    chan struct{}
	// forgotten is called when the clients of a map were deleted, with the time when that began.
	forgotten func(family ruleset.Family, set string, began time.Time)
	// stillStale removes connections whose endpoints serve again, since requests may wait or be retried.
	stillStale func([]ruleset.Stale) []ruleset.Stale

	mu      sync.Mutex
	stale   map[ruleset.Stale]bool
	clients map[remembered]ruleset.Forget
	// delayed are connections that can wait, until due.
	delayed map[ruleset.Stale]bool
	due     time.Time
	// live has the allowed targets of the UDP connections to reconcile.
	live       map[ruleset.Front][]netip.AddrPort
	reconciled map[ruleset.Family]reconciliation
}

type reconciliation struct {
	// requested means that the reconciliation is requested or done.
	requested bool
	failures  int
	retry     time.Time
}

type remembered struct {
	family ruleset.Family
	set    string
}

// The first and the longest delay until a failed clean-up is retried.
const (
	cleanFirst = time.Second
	cleanMost  = time.Minute
)

// tcpDelay is how long TCP connections wait: their ends notice by themselves that the endpoint is gone. TCP repeats its
// first packet after 1, 3 and 7 seconds, and the last repetition must get through. A search costs the kernel ten
// milliseconds, so requests are gathered, together with the second look after the linger time.
const tcpDelay = 6 * time.Second

// maxDelayed bounds the delayed connections. Each takes about 250 bytes.
const maxDelayed = 50_000

// finishTimeout bounds the clean-up at the end. The next process does not know the requests that are left.
const finishTimeout = 2 * time.Second

func newCleaner(t tracker, k memory, m *metrics, log logr.Logger) *cleaner {
	return &cleaner{
		tracker: t, memory: k, clock: clock.RealClock{}, metrics: m, log: log, wake: make(chan struct{}, 1),
		forgotten: func(ruleset.Family, string, time.Time) {}, stillStale: func(all []ruleset.Stale) []ruleset.Stale { return all },
		stale: map[ruleset.Stale]bool{}, clients: map[remembered]ruleset.Forget{}, delayed: map[ruleset.Stale]bool{},
		live: map[ruleset.Front][]netip.AddrPort{}, reconciled: map[ruleset.Family]reconciliation{},
	}
}

// disconnect requests the deletion of connections. Any goroutine may call it.
func (c *cleaner) disconnect(stale []ruleset.Stale) {
	c.request(func() bool {
		isDue := false
		for _, one := range stale {
			if one.Drained || one.Front.Protocol == ruleset.UDP {
				c.stale[one], isDue = true, true
				continue
			}
			if len(c.delayed) == 0 {
				c.due, isDue = c.clock.Now().Add(tcpDelay), true
			}
			c.delayed[one] = true
		}
		if len(c.delayed) >= maxDelayed && c.due.After(c.clock.Now()) {
			c.due, isDue = c.clock.Now(), true
		}
		return isDue
	})
}

// unreconciled reports whether to reconcile the UDP connections of a family now. An earlier process may have ended before
// its clean-up, and endpoints may have been removed while no process ran. Any goroutine may call it.
func (c *cleaner) unreconciled(family ruleset.Family) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.reconciled[family]
	return !known.requested && !known.retry.After(c.clock.Now())
}

// reconcile requests the deletion of UDP connections to targets that live does not list. After a failure the caller must
// request it again, with the targets that are live then.
func (c *cleaner) reconcile(family ruleset.Family, live map[ruleset.Front][]netip.AddrPort) {
	c.request(func() bool {
		maps.Copy(c.live, live)
		known := c.reconciled[family]
		known.requested = true
		c.reconciled[family] = known
		return len(live) > 0
	})
}

// forget requests the deletion of remembered clients. The last request for a map counts. Any goroutine may call it.
func (c *cleaner) forget(family ruleset.Family, clients []ruleset.Forget) {
	c.request(func() bool {
		for _, one := range clients {
			c.clients[remembered{family, one.Set}] = one
		}
		return len(clients) > 0
	})
}

// request stores a request, and wakes run if it is due.
func (c *cleaner) request(store func() (isDue bool)) {
	c.mu.Lock()
	isDue := store()
	c.mu.Unlock()
	if isDue {
		signal(c.wake)
	}
}

// run cleans up until the context ends. It leaves the rest to finish.
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
		c.pause(ctx, c.clock.Since(began))
		again = nil
		if wait := c.wait(failures); wait > 0 {
			again = c.clock.After(wait)
		}
	}
}

// finish handles the requests that are left, within finishTimeout. Call it after run and all requests have ended.
func (c *cleaner) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	c.mu.Lock()
	c.due = time.Time{}
	c.mu.Unlock()
	c.clean(ctx)
}

// wait returns the time until a request is due, zero if none is.
func (c *cleaner) wait(failures int) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var wait time.Duration
	if failures > 0 {
		wait = backoff(cleanFirst, cleanMost, failures)
	}
	if len(c.delayed) > 0 {
		left := max(c.due.Sub(c.clock.Now()), time.Nanosecond)
		if wait == 0 || left < wait {
			wait = left
		}
	}
	return wait
}

// pause waits as long as the last clean-up took, so that clean-ups take at most half of the time.
func (c *cleaner) pause(ctx context.Context, worked time.Duration) {
	if worked <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-c.clock.After(worked):
	}
}

// clean handles the due requests, and reports whether it succeeded. The end of the context is no failure.
func (c *cleaner) clean(ctx context.Context) bool {
	c.mu.Lock()
	began := c.clock.Now()
	stale, clients, live := c.stale, c.clients, c.live
	c.stale, c.clients, c.live = map[ruleset.Stale]bool{}, map[remembered]ruleset.Forget{}, map[ruleset.Front][]netip.AddrPort{}
	if len(c.delayed) > 0 && !c.due.After(began) {
		maps.Copy(stale, c.delayed)
		c.delayed = map[ruleset.Stale]bool{}
	}
	c.mu.Unlock()
	// Clients first: a remembered client would open another connection to the removed endpoint.
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
		failed[ruleset.FamilyOf(front.Address)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for family := range failed {
		failures := c.reconciled[family].failures + 1
		c.reconciled[family] = reconciliation{failures: failures, retry: c.clock.Now().Add(backoff(cleanFirst, cleanMost, failures))}
	}
}

func (c *cleaner) cleanConnections(ctx context.Context, stale map[ruleset.Stale]bool) bool {
	var removed, drained []ruleset.Stale
	for one := range stale {
		if one.Drained {
			drained = append(drained, one)
		} else {
			removed = append(removed, one)
		}
	}
	ended, doneDrained := c.deleteConnections(ctx, drained)
	if ended > 0 {
		c.metrics.drained.Add(float64(ended))
		c.log.Info("Ended connections to drained endpoints", "ended", ended)
	}
	deleted, done := c.deleteConnections(ctx, removed)
	if deleted > 0 {
		c.log.V(1).Info("Deleted connections to removed endpoints", "deleted", deleted)
	}
	return doneDrained && done
}

// deleteConnections deletes connections, and returns their number. Those of a failure are deleted later.
func (c *cleaner) deleteConnections(ctx context.Context, list []ruleset.Stale) (deleted int, done bool) {
	if list = c.stillStale(list); len(list) == 0 {
		return 0, true
	}
	deleted, err := c.tracker.Delete(ctx, list)
	if err != nil {
		c.mu.Lock()
		for _, one := range list {
			c.stale[one] = true
		}
		c.mu.Unlock()
		if ctx.Err() != nil {
			return deleted, true
		}
	}
	c.metrics.deleted.WithLabelValues(resultOf(err)).Inc()
	if err != nil {
		c.metrics.failed(stepTrack)
		c.log.Error(err, "Cannot delete all connections to removed or drained endpoints", "deleted", deleted)
	}
	return deleted, err == nil
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
		if _, found := c.clients[of]; !found {
			c.clients[of] = one
		}
		c.mu.Unlock()
		if ctx.Err() != nil {
			continue
		}
		all = false
		c.metrics.failed(stepForget)
		c.log.Error(err, "Cannot delete remembered clients of removed endpoints", "family", of.family.Name())
	}
	return all
}
