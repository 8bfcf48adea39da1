package shell

import (
	"context"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// Gatherer handles a burst of changes once, a delay after the first change.
type Gatherer struct {
	delay   time.Duration
	noticed chan struct{}
}

// NewGatherer makes a Gatherer.
func NewGatherer(delay time.Duration) *Gatherer {
	return &Gatherer{delay: delay, noticed: make(chan struct{}, 1)}
}

// Notice reports a change.
func (g *Gatherer) Notice() {
	select {
	case g.noticed <- struct{}{}:
	default:
	}
}

// Source makes a source that handles each burst. A failure is logged as what, and handled again after another delay.
func (g *Gatherer) Source(what string, handle func(context.Context, workqueue.TypedRateLimitingInterface[reconcile.Request]) error) source.Source {
	return source.Func(func(ctx context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		go func() {
			for g.gather(ctx) {
				if err := handle(ctx, q); err != nil {
					log.FromContext(ctx).Error(err, what)
					g.Notice()
				}
			}
		}()
		return nil
	})
}

// gather waits for a burst. It returns false if the context ends first.
func (g *Gatherer) gather(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-g.noticed:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(g.delay):
	}
	select {
	case <-g.noticed: // the rest of the burst
	default:
	}
	return true
}
