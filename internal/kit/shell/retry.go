package shell

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const (
	// BehindWait is when to look again at a cache that is behind a write, should its event
	// be lost.
	BehindWait = 5 * time.Second
	// ConflictWait is when to try again after a conflict, should the event of the other
	// write be lost. Until the cache shows that write, which takes long while the API server
	// is overloaded, each attempt fails like the last.
	ConflictWait = time.Second
)

// Outcome is how a sync or a write ended, as metrics have it.
type Outcome string

// The outcomes.
const (
	Done     Outcome = "done"
	Conflict Outcome = "conflict"
	Failed   Outcome = "error"
)

// Outcomes are all of them.
func Outcomes() []Outcome { return []Outcome{Done, Conflict, Failed} }

// OutcomeOf is how something ended that may have failed.
func OutcomeOf(err error) Outcome {
	switch {
	case err == nil:
		return Done
	case IsChanged(err):
		return Conflict
	}
	return Failed
}

// Finish is the end of a sync that wants to come back after some time, if it did not fail.
// A conflict is no error, nor is a namespace that is being deleted.
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

// Sooner is the shorter of two waits, of which zero is none.
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

// Fail notes a failure. The first one makes the first wait, and none is longer than the
// longest.
func (b *Backoff) Fail(now time.Time, first, longest time.Duration) {
	b.Failures++
	wait := longest
	if shift := b.Failures - 1; shift < 16 {
		wait = min(longest, first<<shift)
	}
	b.retry = now.Add(wait)
}

// Wait is how long the next attempt has to wait.
func (b *Backoff) Wait(now time.Time) time.Duration { return max(0, b.retry.Sub(now)) }

// Lasting is a value that has to stay the same for some time before it counts.
type Lasting[T comparable] struct {
	value T
	since time.Time
}

// Left is how much longer a value has to stay, if it must for some time. A value other than
// the last begins anew.
func (l *Lasting[T]) Left(value T, now time.Time, need time.Duration) time.Duration {
	if l.value != value {
		l.value, l.since = value, now
	}
	return max(0, l.since.Add(need).Sub(now))
}

// Reset forgets the value.
func (l *Lasting[T]) Reset() { *l = Lasting[T]{} }
