package rollout

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// forgive forgets a failure that a person has approved.
func (r *run) forgive() {
	m, a := r.memory, &r.Spec.Approved
	if m.Failure == nil || a.Revision != m.Revision || a.FailuresBefore.Before(m.Failure.Time.Time) {
		return
	}
	m.Failure, m.QueryPassed = nil, false
	m.Phase = v1alpha1.PhaseWaiting
	r.say(Event{Type: RolloutResumed})
}

// hasFailed reports whether the revision has failed.
func (r *run) hasFailed() bool {
	m := r.memory
	if m.Failure != nil {
		return true
	}
	m.Failure = r.findFailure()
	if m.Failure == nil {
		return false
	}
	m.Failure.Time = metav1.NewTime(r.stored)
	m.BakingSince = nil
	r.say(Event{Type: RolloutFailed, Domains: m.CurrentDomains, Failure: m.Failure})
	return true
}

func (r *run) findFailure() *v1alpha1.RolloutFailure {
	m := r.memory
	for i := range m.Replacements {
		if failure := r.failureOf(&m.Replacements[i]); failure != nil {
			return failure
		}
	}
	for i := range r.Pods {
		p := &r.Pods[i]
		if p.Revision != r.Revision || p.Ready || p.Terminating || r.replacement(p.Slot) != nil || !slices.Contains(m.CurrentDomains, r.domainOf(p)) {
			continue
		}
		if r.hasPassed(r.deadline(latest(p.Since, p.Released))) {
			return &v1alpha1.RolloutFailure{Reason: PodUnhealthy, Domain: r.domainOf(p), Pod: p.Name}
		}
	}
	if r.Spec.HasQuery && r.Query == False && m.QueryPassed && len(m.CurrentDomains) > 0 && !m.RollingBack {
		return &v1alpha1.RolloutFailure{Reason: GateFailed}
	}
	return nil
}

// failureOf returns the failure of a replacement, or nil. While the old pod is not terminating it has not failed: budgets may refuse it
// for any time. The same holds for a replacement with an outdated revision.
func (r *run) failureOf(e *v1alpha1.RolloutReplacement) *v1alpha1.RolloutFailure {
	old, next := r.pod(e.Slot, e.UID), r.newest(e.Slot, e.UID)
	failure := &v1alpha1.RolloutFailure{Domain: e.Domain, Pod: e.Pod}
	since := e.Since.Time
	switch {
	case e.Stage == Evicting && r.Kind == Surge && next != nil && !r.isHealthy(next):
		failure.Reason, failure.Pod = PodUnhealthy, next.Name
		since = latest(since, next.Released).Add(r.Spec.ReadyFor)
	case e.Stage == Evicting && (old == nil || !old.Terminating):
		return nil
	case e.Stage == Evicting && r.Kind == Surge && next != nil: // a lost node can hold the old pod forever, but its replacement serves
		return nil
	case e.Stage == Evicting:
		failure.Reason, since = PodTerminating, latest(since, old.Since)
	case next == nil:
		failure.Reason = PodMissing
	case next.Revision != r.Revision:
		return nil
	default:
		failure.Reason, failure.Pod = PodUnhealthy, next.Name
		// A pod that became ready in time must stay ready.
		since = since.Add(r.Spec.ReadyFor)
	}
	if !r.hasPassed(r.deadline(since)) {
		return nil
	}
	return failure
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// hasPassed reports whether a time has come. If not, it schedules the next step for it.
func (r *run) hasPassed(at time.Time) bool {
	if !r.now.Before(at) {
		return true
	}
	r.again(at)
	return false
}
