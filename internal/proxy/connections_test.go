package proxy

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

type fakeTracker struct {
	mu      sync.Mutex
	calls   int
	deleted map[ruleset.Stale]int
	fail    error
	hold    chan struct{}
}

func (f *fakeTracker) Delete(_ context.Context, stale []ruleset.Stale) (int, error) {
	if f.hold != nil {
		<-f.hold
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls++
	for _, one := range stale {
		f.deleted[one]++
	}
	return len(stale), f.fail
}

// Connections are looked for in the background, those of several syncs together.
func TestConnectionsAreForgotten(t *testing.T) {
	tracker := &fakeTracker{deleted: map[ruleset.Stale]int{}, hold: make(chan struct{})}
	c := newCleaner(tracker, newMetrics(func(string) int { return 0 }), logr.Discard())
	background(t, c.run)
	stale := func(n byte) ruleset.Stale {
		return ruleset.Stale{
			Front:  ruleset.Front{Address: netip.AddrFrom4([4]byte{10, 96, 0, 1}), Protocol: ruleset.UDP, Port: 53},
			Target: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 1, n}), 53),
		}
	}
	c.add([]ruleset.Stale{stale(1)})
	eventually(t, "the first is taken", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.stale) == 0
	})
	for range 3 {
		c.add([]ruleset.Stale{stale(2), stale(3)})
	}
	tracker.hold <- struct{}{}
	tracker.hold <- struct{}{}
	eventually(t, "all are deleted", func() bool {
		tracker.mu.Lock()
		defer tracker.mu.Unlock()
		return tracker.calls == 2 && tracker.deleted[stale(1)] == 1 && tracker.deleted[stale(2)] == 1 && tracker.deleted[stale(3)] == 1
	})
	tracker.mu.Lock()
	tracker.fail = errors.New("no")
	tracker.mu.Unlock()
	c.add([]ruleset.Stale{stale(4)})
	tracker.hold <- struct{}{}
	eventually(t, "the failure is counted", func() bool {
		return testutil.ToFloat64(c.metrics.deleted.WithLabelValues(resultError)) == 1 && testutil.ToFloat64(c.metrics.failures.WithLabelValues(stepTrack)) == 1
	})
}
