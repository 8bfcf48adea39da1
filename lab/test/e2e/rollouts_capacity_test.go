package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// updatedWithoutCapacity updates a StatefulSet whose first zone takes no pods. It takes one pod there and no more, says what it waits for,
// fails in time, and is tried again when there is room.
func updatedWithoutCapacity(ctx context.Context, s *scene) (figure string, err error) {
	r, err := s.roll(ctx, ofStatefulSet, "maxUnavailable: 1", "healthGate: {progressDeadline: 8s}")
	if err != nil {
		return "", err
	}
	o, err := r.observe(ctx)
	if err != nil {
		return "", err
	}
	defer o.stop()
	full := r.Zones()[1]
	nodes := r.Nodes(full)
	defer func() { err = errors.Join(err, r.SetSchedulable(context.WithoutCancel(ctx), true, nodes...)) }()
	if err := errors.Join(r.SetSchedulable(ctx, false, nodes...), r.update(ctx, "2", "500ms", "")); err != nil {
		return "", err
	}
	d, err := r.says(ctx, "without a node for a pod", func(d *v1alpha1.DomainRollout) bool {
		return strings.HasPrefix(d.Status.WaitingFor, "waits for a node for pod db-")
	})
	if err != nil {
		return "", err
	}
	waits := d.Status.WaitingFor
	d, err = r.phase(ctx, v1alpha1.PhaseFailed)
	if err != nil {
		return "", err
	}
	if f := d.Status.Failure; f == nil || f.Domain != full {
		return "", fmt.Errorf("the failure is %+v, want one in %s", f, full)
	}
	if err := o.since().within(1, full); err != nil {
		return "", err
	}
	if err := r.SetSchedulable(ctx, true, nodes...); err != nil {
		return "", err
	}
	again := time.Now().Add(time.Second).UTC().Format(time.RFC3339) // times of the API have no fractions
	edit := fmt.Sprintf(`{"approved":{"revision":%q,"failuresBefore":%q}}`, d.Status.Revision, again)
	if err := errors.Join(r.edit(ctx, edit), r.completes(ctx, "2")); err != nil {
		return "", err
	}
	return fmt.Sprintf("of a zone that takes no pods it takes one (%s), and none of another zone; it fails in time, and is complete after a second try", waits), o.since().within(1, r.inOrder()...)
}
