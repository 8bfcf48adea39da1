package load

import (
	"context"
	"sync"
	"time"
)

// Pulse notes when this machine stood still: its beats come late then. A request whose
// time ran out meanwhile had none, and what it was sent to cannot be blamed for it.
type Pulse struct {
	mu   sync.Mutex
	last time.Time // beat
	gaps []gap
}

// gap is a time without a beat.
type gap struct{ from, to time.Time }

const (
	beat = 50 * time.Millisecond
	// lateBeat is when a beat is so late that it counts: busy machines are late by less.
	lateBeat = 5 * beat
)

// NewPulse is one that beat now. It is to be run.
func NewPulse(now time.Time) *Pulse { return &Pulse{last: now} }

// Run beats until the context ends.
func (p *Pulse) Run(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.beat(time.Now())
		}
	}
}

func (p *Pulse) beat(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last) >= lateBeat {
		p.gaps = append(p.gaps, gap{p.last, now})
	}
	p.last = now
}

// Excuses says whether this machine stood still for so much of a time that it ran out: for
// a fifth of it, since what was lost meanwhile was not sent again at once. What was missed
// after its time is no excuse.
func (p *Pulse) Excuses(began time.Time, timeout time.Duration) bool {
	return p.Missed(began, began.Add(timeout)) >= timeout/5
}

// Missed is how much of a time was without beats. It may end before the beat does that is
// late: whoever stood still, too, can be the first to go on.
func (p *Pulse) Missed(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	var sum time.Duration
	if to.Sub(p.last) >= lateBeat {
		sum = within(gap{p.last, to}, from, to)
	}
	for _, one := range p.gaps {
		sum += within(one, from, to)
	}
	return sum
}

// within is how much of a gap lies between two times.
func within(g gap, from, to time.Time) time.Duration {
	if g.from.Before(from) {
		g.from = from
	}
	if g.to.After(to) {
		g.to = to
	}
	return max(0, g.to.Sub(g.from))
}
