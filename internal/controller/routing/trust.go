package routing

import "time"

// trust is how long what was written last counts although the cache does not show it. A
// cache is behind for seconds at most. What it does not show for longer it never will: it
// was undone by somebody else, or etcd was restored from a copy, after which resource
// versions are lower than those that were written before.
type trust struct{ at time.Time }

// trustWritten is how long a write counts that the cache does not show.
const trustWritten = 30 * time.Second

// renew notes a write.
func (t *trust) renew(now time.Time) { t.at = now }

// left is how long the last write still counts.
func (t trust) left(now time.Time) time.Duration { return max(0, t.at.Add(trustWritten).Sub(now)) }
