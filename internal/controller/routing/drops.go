package routing

import (
	"context"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/hints"
)

// drops paces the writing of what the API server accepts and does not store, because a
// webhook or an old version drops it. That rarely ends by itself, so the waits are longer
// than for hints that are removed later.
type drops struct {
	// loss is what was not stored last, empty if all was.
	loss hints.Loss
	// slice is the first one that it was dropped from, empty for the Service's label.
	slice string
	shell.Backoff
}

const (
	firstDropWait   = time.Minute
	longestDropWait = 30 * time.Minute
)

// noteDrop notes that a write was accepted and not stored as it was sent.
func (s *pass) noteDrop(ctx context.Context, loss hints.Loss, slice string) {
	d := &s.record.drops
	d.loss, d.slice = loss, slice
	d.Fail(s.now, firstDropWait, longestDropWait)
	s.requeueAfter(d.Wait(s.now))
	s.metrics.drops.Inc()
	log.FromContext(ctx).Info("what was written is not stored", "loss", string(loss), "slice", slice, "wait", d.Wait(s.now).String())
}

// mark gives the Service the label, or waits while something drops it.
func (s *pass) mark(ctx context.Context) (waiting bool, err error) {
	if d := &s.record.drops; d.loss == hints.LossLabel {
		if wait := d.Wait(s.now); wait > 0 {
			s.requeueAfter(wait)
			return false, nil
		}
	}
	stored, err := s.label(ctx, true)
	if err != nil {
		return false, err
	}
	if stored.Labels[v1alpha1.LabelRouted] != "true" {
		s.noteDrop(ctx, hints.LossLabel, "")
		return false, nil
	}
	s.record.labelled = s.now
	s.requeueAfter(settle)
	return true, nil
}

// withhold takes out of a decision what would not be stored, until it is time to try again.
// While only hints for nodes are dropped, those for zones are written; otherwise all wait.
func (s *pass) withhold(d *routing.Decision) (all bool) {
	dropped := &s.record.drops
	at := slices.IndexFunc(s.in.Slices, func(slice *discoveryv1.EndpointSlice) bool { return slice.Name == dropped.slice })
	if at < 0 || d.Hints().IsWritten(s.in.Slices[at]) {
		*dropped = drops{} // there is none, or what was dropped is not wanted any more
		return false
	}
	wait := dropped.Wait(s.now)
	if wait <= 0 {
		return false
	}
	s.requeueAfter(wait)
	if dropped.loss == hints.LossNodes {
		d.LeaveOutNodes()
		return false
	}
	return true
}

// condition is that of a decision, with what keeps its hints from having effect. None of that
// matters to a Service that vicinity-proxy serves.
func (s *pass) condition(d *routing.Decision) metav1.Condition {
	switch condition := d.Condition(); {
	case isServed(d, s.in.Service):
		return condition
	case s.record.drops.loss != "":
		return routing.WithHintsDropped(condition, s.record.drops.loss)
	case s.record.backoff.isReported():
		return routing.WithHintsLost(condition)
	default:
		return condition
	}
}

// hintTrouble is what keeps the hints of a Service from having effect.
type hintTrouble struct {
	state string // as the metrics have it, empty if there is none
	all   bool   // not only hints for nodes
}

func (s *pass) troubleOf(d *routing.Decision) hintTrouble {
	switch {
	case isServed(d, s.in.Service):
	case s.record.drops.loss != "":
		return hintTrouble{stateHintsDropped, s.record.drops.loss != hints.LossNodes}
	case s.record.backoff.isReported():
		return hintTrouble{stateHintsLost, true}
	}
	return hintTrouble{}
}
