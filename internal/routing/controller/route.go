package controller

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/hints"
)

// syncHints writes the label and the hints of a decision as far as that is safe now. It is waiting if caches are behind.
func (s *pass) syncHints(ctx context.Context, d *routing.Decision) (waiting bool, err error) {
	if s.in.Service.Labels[v1alpha1.LabelRouted] != "true" {
		if s.waitsAfterLoss() {
			return false, nil
		}
		return s.labelService(ctx)
	}
	if s.areSlicesBehind() {
		s.requeueAfter(shell.BehindWait)
		return true, nil
	}
	if left := settle - s.now.Sub(s.record.labelled); left > 0 && s.isLabelPending() {
		s.requeueAfter(left)
		return true, nil
	}
	s.watchHints(ctx)
	if !s.waitsAfterLoss() {
		if err := s.writeStep(ctx, d); err != nil {
			return false, err
		}
	}
	return false, s.syncMark(ctx)
}

// waitsAfterLoss reports whether it is too early to write lost hints again.
func (s *pass) waitsAfterLoss() bool {
	wait := s.record.backoff.Wait(s.now)
	s.requeueAfter(wait)
	return wait > 0
}

// labelService sets the label of the Service. Hints wait until Kubernetes has copied it to the slices.
func (s *pass) labelService(ctx context.Context) (waiting bool, err error) {
	stored, err := s.patchService(ctx, "label "+v1alpha1.LabelRouted, shell.SetLabel(s.in.Service, v1alpha1.LabelRouted, "true"))
	if err != nil {
		return false, err
	}
	if stored.Labels[v1alpha1.LabelRouted] != "true" {
		s.noteLoss(ctx, "Service")
		return false, nil
	}
	s.record.labelled = s.now
	s.requeueAfter(settle)
	return true, nil
}

// noteLoss notes that hints or the label were removed or not stored. A loss counts once until the next write.
func (s *pass) noteLoss(ctx context.Context, object string) {
	backoff := &s.record.backoff
	s.record.slices = map[string]string{}
	backoff.noteLoss(s.now)
	s.requeueAfter(backoff.Wait(s.now))
	s.metrics.losses.Inc()
	log.FromContext(ctx).Info("hints do not stay", "object", object, "losses", backoff.Failures, "wait", backoff.Wait(s.now).String())
}

// unroute removes the hints, the label and the mark of a Service that Vicinity routed. Kubernetes' controller rewrites the hints
// of its own slices once they have no label.
func (s *pass) unroute(ctx context.Context) error {
	s.record.slices = map[string]string{}
	s.record.backoff, s.record.mark = hintLosses, markLosses
	operations := s.changeMark(false)
	if _, labelled := s.in.Service.Labels[v1alpha1.LabelRouted]; labelled {
		operations = append(operations, shell.SetLabel(s.in.Service, v1alpha1.LabelRouted, ""))
	}
	if len(operations) == 0 {
		return s.release(ctx, s.in.Slices)
	}
	// Kubernetes does not touch the slices of a Service that has become an external name or has lost its selector.
	abandoned := s.in.Service.Spec.Type == corev1.ServiceTypeExternalName || len(s.in.Service.Spec.Selector) == 0
	for _, write := range hints.Unroute(s.in.Slices).Writes {
		if !hints.IsForeign(write.Slice) && !abandoned {
			// Kubernetes does not touch the annotations.
			if write.Endpoints = write.Slice.Endpoints; write.Slice.Annotations[v1alpha1.AnnotationHeld] == "" {
				continue
			}
		}
		if _, err := s.writeHints(ctx, write); err != nil {
			return err
		}
		s.slices++
	}
	_, err := s.patchService(ctx, "label "+v1alpha1.LabelRouted, operations...)
	return err
}

// release removes the hints and the label from slices that Vicinity marked itself, for a Service that it does not
// route.
func (r *reconciler) release(ctx context.Context, eps []*discoveryv1.EndpointSlice) error {
	for _, write := range hints.Unroute(eps).Writes {
		if !hints.IsMarked(write.Slice) {
			continue
		}
		if _, err := r.writeHints(ctx, write); err != nil {
			return err
		}
		log.FromContext(ctx).Info("hints are removed from a slice that Kubernetes does not write", "slice", write.Slice.Name)
	}
	return nil
}

// areSlicesBehind reports whether the cache lacks the last write of a slice. A write that the cache will never show
// does not count.
func (s *pass) areSlicesBehind() bool {
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

func (s *pass) isLabelPending() bool {
	return slices.ContainsFunc(s.in.Slices, func(slice *discoveryv1.EndpointSlice) bool {
		return !hints.IsForeign(slice) && slice.Labels[v1alpha1.LabelRouted] != "true"
	})
}

// watchHints checks whether the written hints are still there.
func (s *pass) watchHints(ctx context.Context) {
	last := s.record.last.Hinted()
	if last == nil {
		return
	}
	for _, slice := range s.in.Slices {
		written, mine := s.record.slices[slice.Name]
		if !mine || written == slice.ResourceVersion {
			continue
		}
		if stayed, lost := last.Stay(slice); lost > 0 && stayed == 0 {
			s.noteLoss(ctx, "EndpointSlice "+slice.Name)
			return
		}
	}
}

func (s *pass) writeStep(ctx context.Context, d *routing.Decision) error {
	if s.record.holdUntil.IsZero() && hints.Holds(s.in.Slices) {
		// A restarted controller does not know when the hold began, so the grace period starts again.
		s.record.holdUntil = s.now.Add(s.options.Settings.ShrinkGrace)
	}
	hold := s.now.Before(s.record.holdUntil)
	step := d.Hints().Next(s.in.Slices, hold)
	s.record.prune(s.in.Slices)
	lost := ""
	for i, write := range step.Writes {
		if lost != "" && write.ChangesNodesOnly() {
			continue // its hints for nodes would be lost, too
		}
		stored, err := s.writeHints(ctx, write)
		s.metrics.countWrite(err)
		if err != nil {
			if i > 0 {
				s.record.noteHintsWritten(d) // this decision includes what is written
			}
			return err
		}
		s.record.slices[write.Slice.Name] = stored.ResourceVersion
		s.record.trust.Renew(s.now)
		if !write.IsStored(stored) {
			lost = cmp.Or(lost, "EndpointSlice "+write.Slice.Name)
			if write.AreZonesStored(stored) {
				continue
			}
			// The next write may take endpoints from a zone that did not gain the ones of this write.
			s.noteLoss(ctx, lost)
			return nil
		}
		s.record.backoff.written = s.now
		s.slices++
	}
	if len(step.Writes) > 0 {
		s.noteMoved(d)
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
	if lost != "" {
		s.noteLoss(ctx, lost)
		return nil
	}
	if len(step.Writes) == 0 && step.Held == 0 {
		s.record.backoff.confirm(s.now)
	}
	s.requeueAfter(s.record.backoff.untilProof(s.now))
	return nil
}

// patchService writes a part of the Service, and returns the stored one.
func (s *pass) patchService(ctx context.Context, part string, operations ...shell.Operation) (*corev1.Service, error) {
	service := serviceObject(s.in.Service)
	if err := shell.Patch(ctx, s.client, service, append([]shell.Operation{shell.Guard(s.in.Service)}, operations...)); err != nil {
		return nil, fmt.Errorf("writing the %s: %w", part, err)
	}
	s.record.noteServiceWrite(service, s.now)
	return service, nil
}
