package routing

import (
	"time"
)

// patience paces the writing of hints that something keeps removing, as Kubernetes'
// own controller does where the webhook that keeps them is away: each loss doubles
// the time until the next attempt.
type patience struct {
	losses int
	// written is when hints were written last, retry when they may be again.
	written, retry time.Time
}

const (
	// firstWait is the time after the first loss, longestWait the most there is.
	firstWait   = time.Second
	longestWait = 5 * time.Minute
	// proof is how long hints must stay to be thought safe: Kubernetes' controller
	// comes about a second after a write.
	proof = 5 * time.Second
	// reportedLosses is the number of losses in a row that is worth a word.
	reportedLosses = 3
)

// lose notes that what was written is gone.
func (p *patience) lose(now time.Time) {
	p.losses++
	p.retry = now.Add(doubled(p.losses, firstWait, longestWait))
}

// doubled is the wait after some failures in a row, each of which doubles it.
func doubled(failures int, first, longest time.Duration) time.Duration {
	if shift := failures - 1; shift < 16 {
		return min(longest, first<<shift)
	}
	return longest
}

// stay notes that what was written is still there.
func (p *patience) stay(now time.Time) {
	if p.losses > 0 && !p.written.IsZero() && now.Sub(p.written) >= proof {
		p.losses = 0
		p.retry = time.Time{}
	}
}

// reported says whether the losses are worth a word.
func (p *patience) reported() bool { return p.losses >= reportedLosses }

// wait is how long nothing should be written, and check when to look whether what was
// written stays. Both are zero if there is nothing to wait for.
func (p *patience) wait(now time.Time) time.Duration {
	return max(0, p.retry.Sub(now))
}

func (p *patience) check(now time.Time) time.Duration {
	if p.losses == 0 {
		return 0
	}
	return max(0, p.written.Add(proof).Sub(now))
}
