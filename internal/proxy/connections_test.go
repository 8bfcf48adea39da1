package proxy

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

type fakeTracker struct {
	mu      sync.Mutex
	calls   int
	deleted map[ruleset.Stale]int
	fail    error
	// reconciled has the endpoints of the last reconciliation.
	reconciled map[ruleset.Front][]netip.AddrPort
}

func (f *fakeTracker) Reconcile(_ context.Context, live map[ruleset.Front][]netip.AddrPort) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	f.reconciled = live
	return len(live), f.fail
}

func (f *fakeTracker) Delete(_ context.Context, stale []ruleset.Stale) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	for _, one := range stale {
		f.deleted[one]++
	}
	return len(stale), f.fail
}

// TCP connections are gathered, and UDP connections are deleted at once.
func TestDelayedConnections(t *testing.T) {
	now := clocktesting.NewFakeClock(start)
	tracker := &fakeTracker{deleted: map[ruleset.Stale]int{}}
	c := newCleaner(tracker, newFakeKernel(), newMetrics(nil, func(string) int { return 0 }), logr.Discard())
	c.clock = now
	background(t, c.run)
	of := func(protocol ruleset.Protocol, port uint16) ruleset.Stale {
		return ruleset.Stale{Front: ruleset.Front{Protocol: protocol, Port: port}}
	}
	deleted := func(wanted ...ruleset.Stale) func() bool {
		return func() bool {
			tracker.mu.Lock()
			defer tracker.mu.Unlock()
			for _, one := range wanted {
				if tracker.deleted[one] != 1 {
					return false
				}
			}
			return len(tracker.deleted) == len(wanted)
		}
	}
	first, second, prompt := of(ruleset.TCP, 80), of(ruleset.SCTP, 80), of(ruleset.UDP, 80)
	c.disconnect([]ruleset.Stale{first})
	eventually(t, "it waits", now.HasWaiters)
	now.Step(tcpDelay / 2)
	c.disconnect([]ruleset.Stale{second, first, prompt})
	eventually(t, "only urgent connections are deleted", deleted(prompt))
	eventually(t, "all are deleted, each once", func() bool {
		now.Step(tcpDelay / 2)
		return deleted(prompt, first, second)()
	})
}

// Connections to drained endpoints are deleted at once, and counted.
func TestDrainedConnectionsAreCounted(t *testing.T) {
	tracker := &fakeTracker{deleted: map[ruleset.Stale]int{}}
	c := newCleaner(tracker, newFakeKernel(), newMetrics(nil, func(string) int { return 0 }), logr.Discard())
	c.clock = clocktesting.NewFakeClock(start)
	front := ruleset.Front{Protocol: ruleset.TCP, Port: 80}
	removed, drained := ruleset.Stale{Front: front}, ruleset.Stale{Front: front, Drained: true}
	c.disconnect([]ruleset.Stale{removed, drained})
	c.clean(t.Context())
	if want := map[ruleset.Stale]int{drained: 1}; !maps.Equal(tracker.deleted, want) {
		t.Errorf("deleted are %v, want %v", tracker.deleted, want)
	}
	c.finish(t.Context())
	if n := testutil.ToFloat64(c.metrics.drained); n != 1 || tracker.deleted[removed] != 1 {
		t.Errorf("%g connections are counted, and %v deleted", n, tracker.deleted)
	}
}

// Very many delayed connections are deleted at once: they take memory.
func TestManyDelayedConnectionsDoNotWait(t *testing.T) {
	now := clocktesting.NewFakeClock(start)
	tracker := &fakeTracker{deleted: map[ruleset.Stale]int{}}
	c := newCleaner(tracker, newFakeKernel(), newMetrics(nil, func(string) int { return 0 }), logr.Discard())
	c.clock = now
	stale := make([]ruleset.Stale, maxDelayed)
	for i := range stale {
		stale[i] = ruleset.Stale{Front: ruleset.Front{Protocol: ruleset.TCP, Port: uint16(i)}}
	}
	c.disconnect(stale[:1])
	<-c.wake
	c.disconnect(stale[1 : maxDelayed-1])
	c.clean(t.Context())
	if len(tracker.deleted) > 0 || len(c.wake) > 0 {
		t.Errorf("%d of a few are deleted at once", len(tracker.deleted))
	}
	c.disconnect(stale[maxDelayed-1:])
	if len(c.wake) == 0 {
		t.Error("nothing is due at once")
	}
	c.clean(t.Context())
	if len(tracker.deleted) != maxDelayed || len(c.delayed) > 0 {
		t.Errorf("%d of many are deleted, and %d wait", len(tracker.deleted), len(c.delayed))
	}
}

// Connections to an endpoint that serves again stay, whatever delayed the deletion of its earlier ones.
func TestConnectionsOfReturningEndpoints(t *testing.T) {
	for _, test := range []struct {
		name     string
		protocol corev1.Protocol
		fail     error
	}{
		{"they can wait", corev1.ProtocolTCP, nil},
		{"to delete them failed", corev1.ProtocolUDP, errors.New("lost")},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t)
			tracker := &fakeTracker{deleted: map[ruleset.Stale]int{}}
			c := newCleaner(tracker, newFakeKernel(), newMetrics(nil, func(string) int { return 0 }), logr.Discard())
			c.clock, w.writer.stale, c.stillStale = w.clock, c.disconnect, w.stillStale
			service, six := aService("web", "10.96.0.1"), aService("six", "fd00::1")
			six.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol}
			groups := func(first ...int) (all []metav1.Object) {
				for _, group := range []*v1alpha1.EndpointGroup{
					aGroup("web", "web-1", "10.1.1.1", "10.1.1.2", "10.1.1.3"), aGroup("six", "six-1", "fd01::1", "fd01::2", "fd01::3"),
				} {
					if group.Spec.Service == "six" {
						group.Spec.AddressType = corev1.IPv6Protocol
					}
					group.Spec.Ports[0].Protocol = test.protocol
					for _, i := range first {
						group.Spec.Endpoints[i].NotReady, group.Spec.Endpoints[i].NotServing = true, true
					}
					all = append(all, group)
				}
				return all
			}
			service.Spec.Ports[0].Protocol, six.Spec.Ports[0].Protocol = test.protocol, test.protocol
			w.put(service, six)
			w.put(groups()...)
			w.run(time.Minute)
			c.clean(t.Context()) // those from before there were endpoints
			w.put(groups(0, 1)...)
			w.run(2 * time.Second)
			tracker.fail = test.fail
			c.clean(t.Context())
			w.put(groups(0)...)
			w.run(2 * tcpDelay)

			tracker.fail, tracker.deleted = nil, map[ruleset.Stale]int{}
			c.clean(t.Context())
			ended := map[netip.Addr]bool{}
			for one := range tracker.deleted {
				ended[one.Target.Addr()] = true
			}
			if want := map[netip.Addr]bool{netip.MustParseAddr("10.1.1.1"): true, netip.MustParseAddr("fd01::1"): true}; !maps.Equal(ended, want) {
				t.Errorf("connections to %v are deleted, want %v", ended, want)
			}
		})
	}
}

// A failed request is retried, together with later ones.
func TestCleaningIsRetried(t *testing.T) {
	tracker, k := &fakeTracker{deleted: map[ruleset.Stale]int{}, fail: errors.New("lost")}, newFakeKernel()
	k.unforgetful = errors.New("changed")
	c := newCleaner(tracker, k, newMetrics(nil, func(string) int { return 0 }), logr.Discard())
	now := clocktesting.NewFakeClock(start)
	c.clock = now
	reported := map[string]time.Time{} // guarded by k.mu
	c.forgotten = func(_ ruleset.Family, set string, began time.Time) {
		k.mu.Lock()
		defer k.mu.Unlock()
		reported[set] = began
	}
	background(t, c.run)
	failures := func(step string) float64 { return testutil.ToFloat64(c.metrics.failures.WithLabelValues(step)) }
	stale := ruleset.Stale{Front: ruleset.Front{Protocol: ruleset.UDP, Port: 53}}
	keep := func(n byte) []netip.AddrPort {
		return []netip.AddrPort{netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 1, n}), 53)}
	}
	c.disconnect([]ruleset.Stale{stale})
	eventually(t, "the connections failed", func() bool { return failures(stepTrack) == 1 && now.HasWaiters() })
	c.forget(ruleset.IPv4, []ruleset.Forget{{Set: "old", Keep: keep(1)}, {Set: "same", Keep: keep(1)}})
	eventually(t, "the clients failed, and connections again", func() bool { return failures(stepForget) == 2 && failures(stepTrack) == 2 && now.Waiters() == 2 })

	c.mu.Lock()
	c.clients[remembered{ruleset.IPv4, "same"}] = ruleset.Forget{Set: "same", Keep: keep(2)}
	c.mu.Unlock()
	k.mu.Lock()
	k.unforgetful, k.forgotten = nil, nil
	k.mu.Unlock()
	tracker.mu.Lock()
	tracker.fail, tracker.deleted = nil, map[ruleset.Stale]int{}
	tracker.mu.Unlock()
	now.Step(cleanMost)
	eventually(t, "all is done", func() bool {
		tracker.mu.Lock()
		defer tracker.mu.Unlock()
		return tracker.deleted[stale] == 1
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	kept := map[string]netip.AddrPort{}
	for _, one := range k.forgotten {
		kept[one.Set] = one.Keep[0]
	}
	if want := map[string]netip.AddrPort{"old": keep(1)[0], "same": keep(2)[0]}; len(k.forgotten) != 2 || !maps.Equal(kept, want) {
		t.Errorf("forgotten is %v, want %v", k.forgotten, want)
	}
	at := start.Add(cleanMost)
	if want := map[string]time.Time{"old": at, "same": at}; !maps.Equal(reported, want) {
		t.Errorf("reported %v, want %v", reported, want)
	}
}

// interrupted is a kernel that ends a context during its first request.
type interrupted struct {
	fakeTracker
	clients *fakeKernel
	ctx     context.Context
	begun   chan struct{}
	once    sync.Once
}

func (i *interrupted) first() (err error) {
	i.once.Do(func() {
		close(i.begun)
		<-i.ctx.Done()
		err = i.ctx.Err()
	})
	return err
}

func (i *interrupted) Delete(ctx context.Context, stale []ruleset.Stale) (int, error) {
	if err := i.first(); err != nil {
		return 0, err
	}
	return i.fakeTracker.Delete(ctx, stale)
}

func (i *interrupted) Reconcile(ctx context.Context, live map[ruleset.Front][]netip.AddrPort) (int, error) {
	if err := i.first(); err != nil {
		return 0, err
	}
	return i.fakeTracker.Reconcile(ctx, live)
}

func (i *interrupted) Forget(family ruleset.Family, all []ruleset.Forget) error {
	if err := i.first(); err != nil {
		return err
	}
	return i.clients.Forget(family, all)
}

// A request that the end of the context interrupts is finished, together with later ones.
func TestCleaningIsFinished(t *testing.T) {
	stale := ruleset.Stale{Front: ruleset.Front{Protocol: ruleset.UDP, Port: 53}}
	front := ruleset.Front{Address: netip.MustParseAddr("10.96.0.1"), Protocol: ruleset.UDP, Port: 53}
	other := ruleset.Front{Address: netip.MustParseAddr("fd00::1"), Protocol: ruleset.UDP, Port: 53}
	one, two := []netip.AddrPort{netip.MustParseAddrPort("10.1.1.1:53")}, []netip.AddrPort{netip.MustParseAddrPort("10.1.1.2:53")}
	for _, test := range []struct {
		name        string
		first, then func(*cleaner)
		isDone      func(*interrupted) bool
	}{
		{
			"connections", func(c *cleaner) { c.disconnect([]ruleset.Stale{stale}) }, func(*cleaner) {},
			func(i *interrupted) bool { return i.deleted[stale] == 1 },
		},
		{
			"connections from before the start", func(c *cleaner) {
				c.reconcile(ruleset.IPv4, map[ruleset.Front][]netip.AddrPort{front: one})
			}, func(c *cleaner) {
				c.reconcile(ruleset.IPv6, map[ruleset.Front][]netip.AddrPort{other: two})
			},
			func(i *interrupted) bool { return len(i.reconciled[front]) == 1 && len(i.reconciled[other]) == 1 },
		},
		{
			"clients", func(c *cleaner) { c.forget(ruleset.IPv4, []ruleset.Forget{{Set: "a", Keep: one}}) }, func(*cleaner) {},
			func(i *interrupted) bool {
				return len(i.clients.forgotten) == 1 && slices.Equal(i.clients.forgotten[0].Keep, one)
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			i := &interrupted{fakeTracker: fakeTracker{deleted: map[ruleset.Stale]int{}}, clients: newFakeKernel(), ctx: ctx, begun: make(chan struct{})}
			c := newCleaner(i, i, newMetrics(nil, func(string) int { return 0 }), logr.Discard())
			test.first(c)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				c.run(ctx)
			}()
			<-i.begun
			test.then(c)
			cancel()
			<-ended
			c.finish(ctx)
			if !test.isDone(i) {
				t.Errorf("at the end %v are deleted, %v are reconciled and %v are forgotten", i.deleted, i.reconciled, i.clients.forgotten)
			}
			for _, step := range []string{stepTrack, stepForget} {
				if n := testutil.ToFloat64(c.metrics.failures.WithLabelValues(step)); n > 0 {
					t.Errorf("%v failures of %s are counted", n, step)
				}
			}
		})
	}
}

// slowMemory is a kernel in which clients take their time to be forgotten.
type slowMemory struct {
	each func()
}

func (m *slowMemory) Forget(ruleset.Family, []ruleset.Forget) error {
	m.each()
	return nil
}

// A request that comes during a deletion is not satisfied by it.
func TestForgottenReportsTheRequestTime(t *testing.T) {
	now := clocktesting.NewFakeClock(start)
	k := &slowMemory{}
	c := newCleaner(&fakeTracker{}, k, newMetrics(nil, func(string) int { return 0 }), logr.Discard())
	c.clock = now
	both := []ruleset.Forget{{Set: "a"}, {Set: "b"}}
	first := true
	k.each = func() {
		if first {
			first = false
			now.Step(time.Second)
			c.forget(ruleset.IPv4, both) // endpoints of both go meanwhile
			now.Step(9 * time.Second)
		}
	}
	reported := 0
	c.forgotten = func(_ ruleset.Family, set string, began time.Time) {
		if reported++; began.After(start) {
			t.Errorf("%s is reported as forgotten as of %s; the request of 1s is still pending", set, began.Sub(start))
		}
	}
	c.forget(ruleset.IPv4, both)
	if !c.clean(t.Context()) || reported != len(both) {
		t.Errorf("reported %d maps, want %d", reported, len(both))
	}
}

// UDP connections are reconciled after the first sync of a family, with all programmed targets, and not earlier.
func TestReconciledAfterTheFirstSync(t *testing.T) {
	w := newWorld(t)
	dns := aService("dns", "10.96.0.1")
	dns.Spec.Ports[0].Protocol = "UDP"
	group := aGroup("dns", "dns-1", "10.1.1.1", "10.1.1.2")
	group.Spec.Ports[0].Protocol = "UDP"
	w.put(dns, group, aService("web", "10.96.0.2"), aGroup("web", "web-1", "10.1.1.3"))
	w.kernel.refuses = func(ruleset.Transaction) error { return errRefused }
	w.run(time.Second)
	if len(w.flows.reconciled) > 0 {
		t.Error("connections are read before anything is programmed")
	}
	w.refusing()
	w.run(time.Minute)
	front := ruleset.Front{Address: netip.MustParseAddr("10.96.0.1"), Protocol: ruleset.UDP, Port: 80}
	if live := w.flows.reconciled[ruleset.IPv4]; len(live) != 1 || len(live[front]) != 2 {
		t.Errorf("connections may go to %v", live)
	}
	if _, asked := w.flows.reconciled[ruleset.IPv6]; asked {
		t.Error("a family without requests is read")
	}
	// By itself, if it failed.
	w.flows.reconciled = map[ruleset.Family]map[ruleset.Front][]netip.AddrPort{}
	w.run(time.Minute)
	if len(w.flows.reconciled[ruleset.IPv4]) != 1 {
		t.Error("it is not retried")
	}
}
