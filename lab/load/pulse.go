package load

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Pulse notes when this machine stood still: its beats come late then. A request whose
// time ran out meanwhile had none, and what it was sent to cannot be blamed for it.
type Pulse struct {
	mu   sync.Mutex
	last []time.Time // beat, of each of those that beat
	gaps []gap
}

// gap is a time without beats.
type gap struct{ from, to time.Time }

const (
	beat = 50 * time.Millisecond
	// lateBeat is when a beat is so late that it counts: busy machines are late by less.
	lateBeat = 5 * beat
)

// NewPulse is one that beat now. It is to be run.
func NewPulse(now time.Time) *Pulse { return &Pulse{last: []time.Time{now}} }

// Run beats until the context ends.
func (p *Pulse) Run(ctx context.Context) {
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			p.beat(0, time.Now())
		}
	}
}

// beat notes a beat of one of those that beat.
func (p *Pulse) beat(of int, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if now.Sub(p.last[of]) >= lateBeat {
		p.gaps = append(p.gaps, gap{p.last[of], now})
	}
	p.last[of] = now
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
		if to.Sub(last) >= lateBeat {
			note(gap{last, to})
		}
	}
	return together(missed)
}

// together is how long some gaps are that may lie over each other.
func together(gaps []gap) time.Duration {
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
