// Package pace says when something is done again: a sync, what failed, and what is told others.
// Time is an argument.
package pace

import "time"

// Pace says when changes are programmed: the first at once, those that come soon after it
// together. A sync that takes long is followed by a rest as long, so that changes that
// come without end take half of one CPU at most.
type Pace struct {
	// Period is the least time from the beginning of one sync to that of the next.
	Period time.Duration

	next time.Time
}

// LongestRest bounds what one slow sync costs the changes after it.
const LongestRest = time.Second

// Ready is when the next sync may begin, now or later.
func (p *Pace) Ready(now time.Time) time.Time {
	if p.next.After(now) {
		return p.next
	}
	return now
}

// Ran notes a sync. Changes do not wait for the period after one that only looked again at
// what had been written.
func (p *Pace) Ran(began, ended time.Time, looked bool) {
	p.next = ended.Add(min(ended.Sub(began), LongestRest))
	if least := began.Add(p.Period); !looked && least.After(p.next) {
		p.next = least
	}
}
