package pace

import "time"

// Backoff doubles with every failure after the first.
func Backoff(first, most time.Duration, failures int) time.Duration {
	wait := first
	for i := 1; i < failures && wait < most; i++ {
		wait *= 2
	}
	return min(wait, most)
}
