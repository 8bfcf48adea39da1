package load

import (
	"context"
	"slices"
	"sync"
	"time"
)

// StallDetector notices when this machine stands still: its ticks come late then. A request
// that timed out in the meantime says nothing about its target.
type StallDetector struct {
	mu   sync.Mutex
	last []time.Time // tick of each observer
	gaps []gap
}

// gap is a time without ticks.
type gap struct{ from, to time.Time }

const (
	tickPeriod = 50 * time.Millisecond
	// lateTick is how late a tick must be to count: later than those of a busy machine.
	lateTick = 5 * tickPeriod
)

// NewStallDetector returns a detector that must be run.
func NewStallDetector(now time.Time) *StallDetector { return &StallDetector{last: []time.Time{now}} }

// Run ticks until the context ends.
func (p *StallDetector) Run(ctx context.Context) {
	ticker := time.NewTicker(tickPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.tick(0, time.Now())
		}
	}
}

// tick notes a tick of the observer with the given number.
func (p *StallDetector) tick(of int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last[of]) >= lateTick {
		p.gaps = append(p.gaps, gap{p.last[of], now})
	}
	p.last[of] = now
}

// Excuses reports whether this machine stood still for a fifth of a timeout or more: what
// was lost meanwhile is retransmitted later. Stalls after the timeout do not count.
func (p *StallDetector) Excuses(began time.Time, timeout time.Duration) bool {
	return p.Stalled(began, began.Add(timeout)) >= timeout/5
}

// Stalled is how long this machine stood still between two times. It counts a stall whose
// late tick is still to come, since another process may resume earlier.
func (p *StallDetector) Stalled(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var missed []gap
	note := func(g gap) {
		if g.from.Before(from) {
			g.from = from
		}
		if g.to.After(to) {
			g.to = to
		}
		if g.to.After(g.from) {
			missed = append(missed, g)
		}
	}
	for _, one := range p.gaps {
		note(one)
	}
	for _, last := range p.last {
		if to.Sub(last) >= lateTick {
			note(gap{last, to})
		}
	}
	return unionLength(missed)
}

// unionLength is the length of the union of gaps, which may overlap.
func unionLength(gaps []gap) time.Duration {
	slices.SortFunc(gaps, func(a, b gap) int { return a.from.Compare(b.from) })
	var sum time.Duration
	var end time.Time
	for _, g := range gaps {
		if g.from.Before(end) {
			g.from = end
		}
		if g.to.After(g.from) {
			sum += g.to.Sub(g.from)
			end = g.to
		}
	}
	return sum
}
