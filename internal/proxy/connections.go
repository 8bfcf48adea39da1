package proxy

import (
	"context"
	"sync"

	"github.com/go-logr/logr"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// tracker has the kernel forget connections.
type tracker interface {
	Delete(context.Context, []ruleset.Stale) (int, error)
}

// cleaner has the kernel forget connections that the rules no longer lead where they go.
// With many connections that takes long, so it holds nothing else up.
type cleaner struct {
	tracker tracker
	metrics *metrics
	log     logr.Logger
	wake    chan struct{}

	mu    sync.Mutex
	stale map[ruleset.Stale]bool
}

func newCleaner(t tracker, m *metrics, log logr.Logger) *cleaner {
	return &cleaner{tracker: t, metrics: m, log: log, wake: make(chan struct{}, 1), stale: map[ruleset.Stale]bool{}}
}

// add asks for connections to be forgotten. It may be called by any goroutine.
func (c *cleaner) add(stale []ruleset.Stale) {
	c.mu.Lock()
	for _, one := range stale {
		c.stale[one] = true
	}
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// run works until the context ends.
func (c *cleaner) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.wake:
			c.clean(ctx)
		}
	}
}

func (c *cleaner) clean(ctx context.Context) {
	c.mu.Lock()
	stale := make([]ruleset.Stale, 0, len(c.stale))
	for one := range c.stale {
		stale = append(stale, one)
	}
	clear(c.stale)
	c.mu.Unlock()
	if len(stale) == 0 {
		return
	}
	n, err := c.tracker.Delete(ctx, stale)
	if ctx.Err() != nil {
		return
	}
	c.metrics.deleted.WithLabelValues(resultOf(err)).Inc()
	if err != nil {
		c.metrics.failed(stepTrack)
		c.log.Error(err, "Connections to endpoints that went may be left", "deleted", n)
		return
	}
	c.log.V(1).Info("Connections to endpoints that went are forgotten", "deleted", n)
}
