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

// cleaner has the kernel forget connections that the rules no longer lead where they go,
// and clients that stay with endpoints that went. With many of them that takes long, so it
// holds nothing else up. What fails is tried again: to what is left packets go that nobody
// answers, for as long as they come.
type cleaner struct {
	tracker tracker
	memory  memory
	clock   clock.Clock
	metrics *metrics
	log     logr.Logger
	wake    chan struct{}
	// forgotten is told of a map all of whose clients were forgotten that were to be, and
	// when that began.
	forgotten func(family ruleset.Family, set string, began time.Time)
	// stillStale takes connections out of a list whose endpoints serve again. What can wait,
	// and what is tried again after a failure, was asked for long before it is done.
	stillStale func([]ruleset.Stale) []ruleset.Stale

	mu      sync.Mutex
	stale   map[ruleset.Stale]bool
	clients map[remembered]ruleset.Forget
	// patient are connections that can wait, the first of them until due.
	patient map[ruleset.Stale]bool
	due     time.Time
	// looked is when connections that can wait were last looked for.
	looked time.Time
	// live are where connections of UDP may go that are to be reconciled with that.
	live       map[ruleset.Front][]netip.AddrPort
	reconciled map[ruleset.Family]reconciliation
}

// reconciliation is how far connections of UDP of a family are looked at.
type reconciliation struct {
	// asked says that it is asked for, or done.
	asked bool
	// failures is how often it failed, and retry when to ask for it again.
	failures int
	retry    time.Time
}

type remembered struct {
	family ruleset.Family
	set    string
}

// How long to wait before a clean-up that failed is tried again: at first, and at most.
const (
	cleanFirst = time.Second
	cleanMost  = time.Minute
)

// patience is how long connections wait whose ends notice by themselves that they lead
// nowhere. TCP sends its first packet again after 1, 3 and 7 seconds: the last of these is
// to get through. To look costs the kernel ten milliseconds, however many connections there
// are, and what is asked for is asked for again when it has lingered: so it is done once for
// both, and for all that came meanwhile. Where endpoints go all the time, it is done before
// the packet after 15 seconds.
const (
	patience     = 6 * time.Second
	patienceBusy = 14 * time.Second
)

// mostPatient is how many fronts with endpoints that went wait together. If there are more, none of
// them waits any longer: each takes some 250 bytes until its connections are looked for.
const mostPatient = 50_000

// lastMoment is how long there is to clean up before the proxy ends: the next one does not
// know what is to be done.
const lastMoment = 2 * time.Second

func newCleaner(t tracker, k memory, m *metrics, log logr.Logger) *cleaner {
	return &cleaner{
		tracker: t, memory: k, clock: clock.RealClock{}, metrics: m, log: log, wake: make(chan struct{}, 1),
		forgotten: func(ruleset.Family, string, time.Time) {}, stillStale: func(all []ruleset.Stale) []ruleset.Stale { return all },
		stale: map[ruleset.Stale]bool{}, clients: map[remembered]ruleset.Forget{}, patient: map[ruleset.Stale]bool{},
		live: map[ruleset.Front][]netip.AddrPort{}, reconciled: map[ruleset.Family]reconciliation{},
	}
}

// disconnect asks for connections to be forgotten. It may be called by any goroutine.
func (c *cleaner) disconnect(stale []ruleset.Stale) {
	c.ask(func() bool {
		asked := false
		for _, one := range stale {
			if one.Front.Protocol == ruleset.UDP {
				c.stale[one], asked = true, true
				continue
			}
			if len(c.patient) == 0 {
				c.due, asked = c.patientUntil(), true
			}
			c.patient[one] = true
		}
		if len(c.patient) >= mostPatient && c.due.After(c.clock.Now()) {
			c.due, asked = c.clock.Now(), true
		}
		return asked
	})
}

// patientUntil is when a connection is due that can wait from now on. Whoever calls it holds
// the lock.
func (c *cleaner) patientUntil() time.Time {
	due, busy := c.clock.Now().Add(patience), c.looked.Add(patienceBusy)
	if busy.After(due) {
		return busy
	}
	return due
}

// unreconciled reports whether it is time to ask for all connections of UDP of a family to be
// looked at: an earlier run may have ended before it had those forgotten whose endpoints went,
// and nobody knows of endpoints that went while none ran. It may be called by any goroutine.
func (c *cleaner) unreconciled(family ruleset.Family) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.reconciled[family]
	return !known.asked && !known.retry.After(c.clock.Now())
}

// reconcile asks for the connections of UDP of a family to be forgotten that go elsewhere than
// they may now. If that fails it is to be asked for again, since by then they may go to others.
func (c *cleaner) reconcile(family ruleset.Family, live map[ruleset.Front][]netip.AddrPort) {
	c.ask(func() bool {
		maps.Copy(c.live, live)
		known := c.reconciled[family]
		known.asked = true
		c.reconciled[family] = known
		return len(live) > 0
	})
}

// forget asks for clients to be forgotten, for which the last time that a map is named
// counts. It may be called by any goroutine.
func (c *cleaner) forget(family ruleset.Family, clients []ruleset.Forget) {
	c.ask(func() bool {
		for _, one := range clients {
			c.clients[remembered{family, one.Set}] = one
		}
		return len(clients) > 0
	})
}

// ask notes what is asked for, and wakes who does it if the note says that something is to
// be done that was not before.
func (c *cleaner) ask(note func() bool) {
	c.mu.Lock()
	asked := note()
	c.mu.Unlock()
	if !asked {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run works until the context ends. What is not done by then is left for finish.
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

// finish does all that was asked for, as far as there is time. It is for when run has ended, and
// all who ask.
func (c *cleaner) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastMoment)
	defer cancel()
	c.mu.Lock()
	c.due = time.Time{}
	c.mu.Unlock()
	c.clean(ctx)
}

// wait is how long it may take until something is to be done that nobody asks for anew,
// zero if there is nothing.
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

// rest waits as long as the last clean-up took, for which the kernel looks at all
// connections that there are: what comes meanwhile is cleaned up together.
func (c *cleaner) rest(ctx context.Context, worked time.Duration) {
	if worked <= 0 {
		return
	}
	select {
	case <-ctx.Done():
	case <-c.clock.After(worked):
	}
}

// clean does all that was asked for and cannot wait, and reports whether that is so. What the
// end of the context keeps it from is still asked for afterwards, and no failure.
func (c *cleaner) clean(ctx context.Context) bool {
	c.mu.Lock()
	began := c.clock.Now() // what comes from now on is asked for anew
	stale, clients, live := c.stale, c.clients, c.live
	c.stale, c.clients, c.live = map[ruleset.Stale]bool{}, map[remembered]ruleset.Forget{}, map[ruleset.Front][]netip.AddrPort{}
	if len(c.patient) > 0 && !c.due.After(began) {
		maps.Copy(stale, c.patient)
		c.patient, c.looked = map[ruleset.Stale]bool{}, began
	}
	c.mu.Unlock()
	// Clients first: one that is remembered makes another connection that goes nowhere.
	forgotten := c.cleanClients(ctx, clients, began)
	c.reconcileAll(ctx, live)
	return c.cleanConnections(ctx, stale) && forgotten
}

// reconcileAll has those connections of UDP forgotten that go elsewhere than they may.
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
		c.log.Info("Connections of UDP to endpoints that went before the start are forgotten", "deleted", n)
		return
	}
	c.metrics.failed(stepTrack)
	c.log.Error(err, "Connections of UDP to endpoints that went before the start may be left", "deleted", n)
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

// cleanConnections reports whether no connections are left.
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
		c.log.V(1).Info("Connections to endpoints that went are forgotten", "deleted", n)
		return true
	}
	c.metrics.failed(stepTrack)
	c.log.Error(err, "Connections to endpoints that went may be left", "deleted", n)
	return false
}

// cleanClients reports whether no clients are left of those that were to be forgotten at a
// time.
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
		c.log.Error(err, "Clients of endpoints that went are not forgotten", "family", familyName(of.family))
	}
	return all
}
