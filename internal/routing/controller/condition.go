package controller

import (
	"context"
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
)

// reportOutcome writes a changed outcome to the Service's status, with an event. A write to a Service wakes every proxy
// and Kubernetes' own controller.
func (s *pass) reportOutcome(ctx context.Context, d routing.Decision) error {
	if s.hintsAreUncertain() && !s.record.backoff.isReported() {
		return nil // wait some seconds to see whether they stay
	}
	before := routing.ConditionOf(s.in.Service)
	if !d.IsReported() {
		if before == nil {
			return nil
		}
		service := serviceObject(s.in.Service)
		if err := shell.RemoveCondition(ctx, s.client, service, v1alpha1.ConditionTopologyRouting); err != nil {
			return err
		}
		s.record.noteServiceWrite(service, s.now)
		s.recorder.Eventf(s.in.Service, nil, corev1.EventTypeNormal, "TopologyNotRouted", "Routing", "Vicinity no longer routes the Service")
		return nil
	}
	after := s.condition(&d)
	if before == nil && d.IsUnremarkable() || before != nil && shell.SameCondition(before, &after) {
		s.record.pending.Reset()
		return nil
	}
	if !s.hasLasted(&after) {
		return nil
	}
	return s.writeOutcome(ctx, &d, after)
}

func (s *pass) writeOutcome(ctx context.Context, d *routing.Decision, after metav1.Condition) error {
	after = shell.Transition(routing.ConditionOf(s.in.Service), after, s.now)
	service := serviceObject(s.in.Service)
	if err := shell.WriteCondition(ctx, s.client, service, after); err != nil {
		return err
	}
	s.record.noteServiceWrite(service, s.now)
	kind, reason := eventOf(d, &after)
	s.recorder.Eventf(s.in.Service, nil, kind, reason, "Routing", "%s", after.Message)
	return nil
}

// condition returns the condition of a decision. Lost hints do not matter if vicinity-proxy serves the Service.
func (s *pass) condition(d *routing.Decision) metav1.Condition {
	switch state, why := s.ineffective(d); state {
	case stateHintsLost:
		return routing.WithHintsLost(d.Condition())
	case stateNotInForce:
		return routing.TroubleNotInForce.AddTo(d.Condition(), why)
	}
	return d.Condition()
}

// ineffective returns the state of a Service whose hints have no effect, and the cause of stateNotInForce.
func (s *pass) ineffective(d *routing.Decision) (state, why string) {
	if s.record.backoff.isReported() && !isServed(d, s.in.Service) {
		return stateHintsLost, ""
	}
	return s.notInForce(d)
}

const failingReported = 30 * time.Second

// reportFailure notes that the decision could not be written, and reports it once if that continues. It returns the
// error of the sync.
func (s *pass) reportFailure(ctx context.Context, d *routing.Decision, cause error) error {
	if shell.IsChanged(cause) || shell.IsEnding(cause) || ctx.Err() != nil {
		return cause
	}
	if s.record.failing.IsZero() {
		s.record.failing = s.now
	}
	if s.now.Sub(s.record.failing) < failingReported || routing.TroubleNotWritten.IsOn(s.in.Service) {
		return cause
	}
	after := s.condition(d)
	return errors.Join(cause, s.writeOutcome(ctx, d, routing.WithNotWritten(after, cause)))
}

func (s *pass) hasLasted(condition *metav1.Condition) bool {
	outcome := string(condition.Status) + condition.Reason + condition.Message
	left := s.record.pending.Left(outcome, s.now, reportedAfter)
	s.requeueAfter(left)
	return left == 0
}

func eventOf(d *routing.Decision, condition *metav1.Condition) (kind, reason string) {
	reason, warning := routing.ReadReason(condition.Reason).Event()
	if warning || len(d.Request.Warnings) > 0 {
		return corev1.EventTypeWarning, reason
	}
	return corev1.EventTypeNormal, reason
}
