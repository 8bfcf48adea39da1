package routing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing"
)

// report keeps the outcome in the Service's status and tells it by an event, if it is
// another than before. A write to a Service wakes every proxy and Kubernetes' own
// controller.
func (s *pass) report(ctx context.Context, d routing.Decision) error {
	before := routing.ConditionOf(s.in.Service)
	if !d.IsReported() {
		if before == nil {
			return nil
		}
		if err := s.writeCondition(ctx, map[string]string{"$patch": "delete", "type": v1alpha1.ConditionTopologyRouting}); err != nil {
			return err
		}
		s.recorder.Eventf(s.in.Service, nil, corev1.EventTypeNormal, "TopologyNotRouted", "Routing", "Vicinity does not route the Service any more")
		return nil
	}
	after := s.adorned(&d)
	if before == nil && unremarkable(&d) || before != nil && sameCondition(before, &after) {
		s.record.untold = ""
		return nil
	}
	if !s.lasts(&after) {
		return nil
	}
	return s.tell(ctx, &d, after)
}

// tell writes a condition that is another than before, and says it by an event.
func (s *pass) tell(ctx context.Context, d *routing.Decision, after metav1.Condition) error {
	before := routing.ConditionOf(s.in.Service)
	after.LastTransitionTime = metav1.NewTime(s.now.Truncate(1e9))
	if before != nil && before.Status == after.Status {
		after.LastTransitionTime = before.LastTransitionTime
	}
	if err := s.writeCondition(ctx, after); err != nil {
		return err
	}
	kind, reason := eventOf(d, &after)
	s.recorder.Eventf(s.in.Service, nil, kind, reason, "Routing", "%s", after.Message)
	return nil
}

// failingTold is how long writes must have failed to be told. An API server that is
// away for a moment is nobody's business.
const failingTold = 30 * time.Second

// fails notes that what was decided could not be written, and tells it once if that
// goes on. It returns what is to become of the sync.
func (s *pass) fails(ctx context.Context, d *routing.Decision, cause error) error {
	if isChanged(cause) || isEnding(cause) || ctx.Err() != nil {
		return cause
	}
	if s.record.failing.IsZero() {
		s.record.failing = s.now
	}
	if s.now.Sub(s.record.failing) < failingTold || routing.NotWritten(s.in.Service) {
		return cause
	}
	after := s.adorned(d)
	return errors.Join(cause, s.tell(ctx, d, routing.WithNotWritten(after, cause)))
}

// lasts reports whether an outcome has been the same for some time.
func (s *pass) lasts(condition *metav1.Condition) bool {
	outcome := string(condition.Status) + condition.Reason + condition.Message
	if s.record.untold != outcome {
		s.record.untold, s.record.untoldSince = outcome, s.now
	}
	left := s.record.untoldSince.Add(quiet).Sub(s.now)
	s.come(left)
	return left <= 0
}

// unremarkable reports whether a Service is merely new.
func unremarkable(d *routing.Decision) bool {
	for i := range d.Families {
		if d.Families[i].Outcome.Rule != allocate.RuleNoEndpoints {
			return false
		}
	}
	return d.Delivery != routing.DeliveryNone && len(d.Notes) == 0 && len(d.Request.Warnings) == 0
}

func sameCondition(a, b *metav1.Condition) bool {
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message
}

// writeCondition merges one condition into those that the Service has.
func (s *pass) writeCondition(ctx context.Context, condition any) error {
	body, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{condition}}})
	if err != nil {
		return err
	}
	service := serviceObject(s.in.Service)
	err = s.client.Status().Patch(ctx, service, client.RawPatch(types.StrategicMergePatchType, body))
	if apierrors.IsNotFound(err) {
		return errChanged
	}
	if err != nil {
		return fmt.Errorf("writing the condition %s: %w", v1alpha1.ConditionTopologyRouting, err)
	}
	s.record.wrote(service, s.now)
	return nil
}

// eventOf is the type and the reason of the event that tells a condition.
func eventOf(d *routing.Decision, condition *metav1.Condition) (kind, reason string) {
	kind = corev1.EventTypeNormal
	if len(d.Request.Warnings) > 0 {
		kind = corev1.EventTypeWarning
	}
	reason, warning := routing.ReadReason(condition.Reason).Event()
	if warning {
		kind = corev1.EventTypeWarning
	}
	return kind, reason
}
