package routing

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/routing"
)

// route brings the hints to what the decision says, as far as it can be done now.
func (s *pass) route(ctx context.Context, d *routing.Decision) (waiting bool, err error) {
	if s.in.Service.Labels[v1alpha1.LabelRouted] != "true" {
		return s.mark(ctx)
	}
	if s.cachesBehind() {
		s.requeueAfter(shell.BehindWait)
		return true, nil
	}
	if left := settle - s.now.Sub(s.record.labelled); left > 0 && s.labelOnItsWay() {
		s.requeueAfter(left)
		return true, nil
	}
	if s.withhold(d) {
		return false, nil
	}
	s.watchHints(ctx)
	if wait := s.record.backoff.Wait(s.now); wait > 0 {
		s.requeueAfter(wait)
		return false, nil
	}
	return false, s.step(ctx, d)
}

// unroute takes the hints and the label away from a Service that Vicinity routed. As
// soon as the label has gone Kubernetes' controller brings its own slices to what it
// thinks right, all by itself.
func (s *pass) unroute(ctx context.Context) error {
	s.record.slices = map[string]string{}
	s.record.backoff = hintBackoff{}
	s.record.drops = drops{}
	_, labelled := s.in.Service.Labels[v1alpha1.LabelRouted]
	if !labelled {
		return s.release(ctx, s.in.Slices)
	}
	// It leaves alone what is left of a Service that has become a name for another.
	abandoned := s.in.Service.Spec.Type == corev1.ServiceTypeExternalName
	for _, write := range routing.Unroute(s.in.Slices).Writes {
		if !routing.IsForeign(write.Slice) && !abandoned {
			// It leaves the annotations as they are.
			if write.Endpoints = write.Slice.Endpoints; write.Slice.Annotations[v1alpha1.AnnotationHeld] == "" {
				continue
			}
		}
		if _, err := s.writeHints(ctx, write); err != nil {
			return err
		}
		s.slices++
	}
	_, err := s.label(ctx, false)
	return err
}

// release takes the hints and the label from slices that Vicinity has marked itself, of a
// Service that it does not route.
func (r *reconciler) release(ctx context.Context, eps []*discoveryv1.EndpointSlice) error {
	for _, write := range routing.Unroute(eps).Writes {
		if !routing.IsMarked(write.Slice) {
			continue
		}
		if _, err := r.writeHints(ctx, write); err != nil {
			return err
		}
		log.FromContext(ctx).Info("hints are removed from a slice of somebody else", "slice", write.Slice.Name)
	}
	return nil
}

// cachesBehind reports whether a slice is not yet as it was written last. If it never
// will be, what it lacks was not taken away.
func (s *pass) cachesBehind() bool {
	for _, slice := range s.in.Slices {
		if !shell.Behind(slice, s.record.slices[slice.Name]) {
			continue
		}
		if s.record.trust.Left(s.now) > 0 {
			return true
		}
		s.record.distrust()
	}
	return false
}

// labelOnItsWay reports whether Kubernetes has still to copy the label to a slice.
func (s *pass) labelOnItsWay() bool {
	for _, slice := range s.in.Slices {
		if !routing.IsForeign(slice) && slice.Labels[v1alpha1.LabelRouted] != "true" {
			return true
		}
	}
	return false
}

// watchHints looks whether the hints that were written last are still there. Where
// there is none to look at, because they are lost already or their slice is gone,
// nothing is proved.
func (s *pass) watchHints(ctx context.Context) {
	last, backoff := s.record.last.Hinted(), &s.record.backoff
	if last == nil {
		return
	}
	looked, intact := false, true
	for _, slice := range s.in.Slices {
		written, mine := s.record.slices[slice.Name]
		looked = looked || mine
		if !mine || written == slice.ResourceVersion {
			continue
		}
		stayed, lost := last.Stay(slice)
		intact = intact && lost == 0
		if lost > 0 && stayed == 0 {
			// What was written is looked at once: until it is written again, there is
			// nothing more to lose.
			s.record.slices = map[string]string{}
			backoff.lose(s.now)
			s.metrics.lost()
			log.FromContext(ctx).Info("hints were removed", "slice", slice.Name, "losses", backoff.Failures, "wait", backoff.Wait(s.now).String())
			return
		}
	}
	if looked && intact {
		backoff.confirm(s.now)
	}
}

// step writes what can safely be written now.
func (s *pass) step(ctx context.Context, d *routing.Decision) error {
	if s.record.holdUntil.IsZero() && routing.Holds(s.in.Slices) {
		// Whoever wrote that is no more, and nobody knows since when it is held.
		s.record.holdUntil = s.now.Add(s.options.Settings.ShrinkGrace)
	}
	hold := s.now.Before(s.record.holdUntil)
	step := routing.Next(s.in.Slices, *d, hold)
	s.record.prune(s.in.Slices)
	for i, write := range step.Writes {
		stored, err := s.writeHints(ctx, write)
		s.metrics.wrote(err)
		if err != nil {
			if i > 0 {
				s.record.hinted(d) // what is written is part of this
			}
			return err
		}
		s.record.slices[write.Slice.Name] = stored.ResourceVersion
		s.record.trust.Renew(s.now)
		if loss := write.Loss(stored); loss != "" {
			s.lose(ctx, d, loss, write.Slice.Name)
			return nil
		}
		s.record.backoff.written = s.now
		s.slices++
	}
	if len(step.Writes) > 0 {
		if s.record.drops.Wait(s.now) == 0 {
			s.record.drops = drops{} // nothing was withheld, and all is stored
		}
		s.count(d)
	}
	switch {
	case step.Held == 0:
		s.record.holdUntil = s.now.Add(-1)
	case !hold:
		s.record.holdUntil = s.now.Add(s.options.Settings.ShrinkGrace)
	}
	if left := s.record.holdUntil.Sub(s.now); left > 0 {
		s.requeueAfter(left)
	}
	if len(step.Writes) == 0 && step.Held == 0 {
		s.watchAnew()
	}
	s.requeueAfter(s.record.backoff.untilProof(s.now))
	return nil
}

// lose notes what of a write to a slice is not stored. The writes that were to follow it
// would fare alike.
func (s *pass) lose(ctx context.Context, d *routing.Decision, loss routing.Loss, slice string) {
	s.dropped(ctx, loss, slice)
	if loss == routing.LossNodes {
		d.LeaveOutNodes()
		s.slices++                       // its hints for zones are stored
		s.requeueAfter(time.Millisecond) // for the rest
		return
	}
	// There is nothing of it that could be removed.
	delete(s.record.slices, slice)
}

// watchAnew goes on looking after losses where nothing was left to write: what the
// slices say now has to stay, whoever wrote it. Without this nobody would ever find
// out that the losses are over, of a Service that needs no hints any more or whose
// hints an earlier controller wrote.
func (s *pass) watchAnew() {
	if backoff := &s.record.backoff; backoff.Failures == 0 || backoff.untilProof(s.now) > 0 && len(s.record.slices) > 0 {
		return
	}
	if len(s.in.Slices) == 0 {
		s.record.backoff = hintBackoff{}
		return
	}
	for _, slice := range s.in.Slices {
		s.record.slices[slice.Name] = slice.ResourceVersion
	}
	s.record.backoff.written = s.now
}
