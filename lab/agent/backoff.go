package agent

import "time"

// backoff is the time from the end of a container to its next attempt: zero after the first
// attempt, then First, doubled after each up to Most.
type backoff struct {
	First, Most time.Duration
}

// after returns the back-off after a number of consecutive failures.
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

// note sets the back-off after an attempt ended. An attempt that ran for twice the longest
// back-off, or whose image was replaced, resets it.
func (b backoff) note(c *container) {
	a := c.Current
	if a.Replaced || !a.Begun.IsZero() && a.Ended.Sub(a.Begun) >= 2*b.Most {
		c.Failures = 0
	}
	c.NextStart = a.Ended.Add(b.after(c.Failures))
	c.Failures++
}

// refuse sets the back-off of a container that could not be started at all, which is
// counted apart. An unknown image backs off like a container that ends; a missing object is
// looked for more often, since it may be created at any moment.
func (b backoff) refuse(c *container, image bool, now time.Time) {
	c.Refusals++
	wait := min(b.First, time.Duration(c.Refusals)*time.Second)
	if image {
		wait = b.after(c.Refusals)
	}
	c.NextStart = now.Add(wait)
}
