package agent

import "time"

// backoff is how long a container that ended waits for its next attempt: nothing the
// first time, then First, doubled each time up to Most.
type backoff struct {
	First, Most time.Duration
}

// after returns the wait after so many failures in a row.
func (b backoff) after(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	d := b.First
	for range failures - 1 {
		if d >= b.Most {
			break
		}
		d *= 2
	}
	return min(d, b.Most)
}

// note enters the end of a container's attempt. One that ran for twice the longest wait
// counts as healthy, and starts over; so does one whose image was replaced.
func (b backoff) note(c *container) {
	a := c.Current
	if a.Replaced || !a.Begun.IsZero() && a.Ended.Sub(a.Begun) >= 2*b.Most {
		c.Failures = 0
	}
	c.NextStart = a.Ended.Add(b.after(c.Failures))
	c.Failures++
}

// refuse enters that no attempt could be made. That says nothing about how the container
// fares once it runs, and has a count of its own. An image that is none backs off like a
// container, while an object that is missing may come at any moment.
func (b backoff) refuse(c *container, image bool, now time.Time) {
	c.Refusals++
	wait := min(b.First, time.Duration(c.Refusals)*time.Second)
	if image {
		wait = b.after(c.Refusals)
	}
	c.NextStart = now.Add(wait)
}
