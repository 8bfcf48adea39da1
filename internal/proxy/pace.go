package proxy

import "time"

// pace says when changes are programmed: the first at once, those that come soon after it
// together. A sync that takes long is followed by a rest as long, so that changes that
// come without end take half of one CPU at most.
type pace struct {
	// period is the least time from the beginning of one sync to that of the next.
	period time.Duration

	next time.Time
}

// longestRest bounds what one slow sync costs the changes after it.
const longestRest = time.Second

// ready is when the next sync may begin, now or later.
func (p *pace) ready(now time.Time) time.Time {
	if p.next.After(now) {
		return p.next
	}
	return now
}

// ran notes a sync. Changes do not wait for the period after one that only looked again at
// what had been written.
func (p *pace) ran(began, ended time.Time, looked bool) {
	p.next = ended.Add(min(ended.Sub(began), longestRest))
	if least := began.Add(p.period); !looked && least.After(p.next) {
		p.next = least
	}
}
