package shell

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// BehindWait is the wait for a cache that is behind a write, in case its event is lost.
	BehindWait = 5 * time.Second
	// ConflictWait is the wait after a conflict, in case the event of the other write is lost. Retries fail until the cache shows that
	// write, which takes long while the API server is overloaded.
	ConflictWait = time.Second
)

// Outcome is the result of a sync or a write, as a label value of metrics.
type Outcome string

// The outcomes.
const (
	Done     Outcome = "done"
	Conflict Outcome = "conflict"
	Failed   Outcome = "error"
)

// Outcomes lists all outcomes.
func Outcomes() []Outcome { return []Outcome{Done, Conflict, Failed} }

// OutcomeOf maps an error to an outcome.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case IsChanged(err):
		return Conflict
	}
	return Failed
}

// Finish turns the end of a sync into a result. Without an error, the sync runs again after the given time. A conflict is no error,
// nor is a namespace that is being deleted.
func Finish(after time.Duration, err error) (reconcile.Result, Outcome, error) {
	if IsEnding(err) {
		return reconcile.Result{}, Done, nil
	}
	switch outcome := OutcomeOf(err); outcome {
	case Conflict:
		return reconcile.Result{RequeueAfter: ConflictWait}, outcome, nil
	case Failed:
		return reconcile.Result{}, outcome, err
	default:
		return reconcile.Result{RequeueAfter: after}, outcome, nil
	}
}

// Sooner returns the shorter of two waits. Zero means no wait.
func Sooner(a, b time.Duration) time.Duration {
	if b > 0 && (a == 0 || b < a) {
		return b
	}
	return a
}

// Backoff spaces attempts: each failure in a row doubles the wait for the next one.
type Backoff struct {
	Failures int
	retry    time.Time
}

// Fail notes a failure. The wait starts at first and grows to longest.
func (b *Backoff) Fail(now time.Time, first, longest time.Duration) {
	b.Failures++
	wait := longest
	if shift := b.Failures - 1; shift < 16 {
		wait = min(longest, first<<shift)
	}
	b.retry = now.Add(wait)
}

// Wait returns the time until the next attempt.
func (b *Backoff) Wait(now time.Time) time.Duration { return max(0, b.retry.Sub(now)) }

// Lasting tracks a value that counts only after it has stayed the same for some time.
type Lasting[T comparable] struct {
	value T
	since time.Time
}

// Left returns how much longer the value must stay the same. A new value starts the time again.
func (l *Lasting[T]) Left(value T, now time.Time, need time.Duration) time.Duration {
	if l.value != value {
		l.value, l.since = value, now
	}
	return max(0, l.since.Add(need).Sub(now))
}

// Reset forgets the value.
func (l *Lasting[T]) Reset() { *l = Lasting[T]{} }
