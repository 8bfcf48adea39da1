package pace

import "time"

// Budget bounds how often something is done: a few times at once, then once each time.
type Budget struct {
	Burst int
	Every time.Duration

	spent int
	since time.Time // of what was spent and is not given back
}

// Take reports whether it may be done now, and takes that from what is left.
func (b *Budget) Take(now time.Time) bool {
	if b.Empty(now) {
		return false
	}
	b.spent++
	return true
}

// Empty reports whether nothing is left.
func (b *Budget) Empty(now time.Time) bool {
	if b.spent == 0 {
		b.since = now
	}
	if back := int(now.Sub(b.since) / b.Every); back > 0 {
		b.spent = max(0, b.spent-back)
		b.since = b.since.Add(time.Duration(back) * b.Every)
	}
	return b.spent >= b.Burst
}

// Next is when there is something left again, if nothing is left now.
func (b *Budget) Next() time.Time { return b.since.Add(b.Every) }
