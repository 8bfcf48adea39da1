package routing

import (
	"time"

	"vicinity.dev/vicinity/internal/controller/shell"
)

// hintBackoff paces the writing of hints that something keeps removing, as Kubernetes' own
// controller does while the webhook is down, or that are not stored as they are written, as with a
// mutating webhook of somebody else. A failure is a loss of hints.
type hintBackoff struct {
	shell.Backoff
	written time.Time
}

const (
	// firstWait is the time after the first loss, longestWait the most there is.
	firstWait   = time.Second
	longestWait = 5 * time.Minute
	// proof is how long hints must stay to be thought safe: Kubernetes' controller
	// comes about a second after a write.
	proof = 5 * time.Second
	// reportedLosses is the number of losses in a row that is reported.
	reportedLosses = 3
)

func (b *hintBackoff) lose(now time.Time) { b.Fail(now, firstWait, longestWait) }

func (b *hintBackoff) confirm(now time.Time) {
	if b.Failures > 0 && !b.written.IsZero() && now.Sub(b.written) >= proof {
		b.Backoff = shell.Backoff{}
	}
}

func (b *hintBackoff) isReported() bool { return b.Failures >= reportedLosses }

// untilProof is how long what was written must still stay to be thought safe, zero if
// nothing was lost.
func (b *hintBackoff) untilProof(now time.Time) time.Duration {
	if b.Failures == 0 {
		return 0
	}
	return max(0, b.written.Add(proof).Sub(now))
}
