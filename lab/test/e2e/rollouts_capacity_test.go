package e2e_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// updatedWithoutCapacity updates a StatefulSet and a Deployment whose first zone takes no pods. One pod is to come there and no more, the
// rollout says what it waits for, fails in time, and is tried again when there is room.
func updatedWithoutCapacity(ctx context.Context, s *scene) (figure string, err error) {
	var waits []string
	spec := []string{"maxUnavailable: 1", "healthGate: {progressDeadline: 8s}"}
	err = s.withBoth(ctx, [2]string{ofStatefulSet, ofDeployment}, spec, func(a, b followed) (err error) {
		full := a.Zones()[1]
		nodes := a.Nodes(full)
		defer func() { err = errors.Join(err, a.SetSchedulable(context.WithoutCancel(ctx), true, nodes...)) }()
		if err := errors.Join(a.SetSchedulable(ctx, false, nodes...), a.update(ctx, "2", "500ms", ""), b.update(ctx, "2", "500ms", "")); err != nil {
			return err
		}
		both := []followed{a, b}
		for _, r := range both {
			d, err := r.says(ctx, "without a node for a pod", func(d *v1alpha1.DomainRollout) bool {
				return strings.HasPrefix(d.Status.WaitingFor, "waits for a node for pod db-")
			})
			if err != nil {
				return fmt.Errorf("%s: %w", r.kind, err)
			}
			waits = append(waits, d.Status.WaitingFor)
		}
		retries := make([]string, len(both))
		for i, r := range both {
			d, err := r.phase(ctx, v1alpha1.PhaseFailed)
			if err != nil {
				return fmt.Errorf("%s: %w", r.kind, err)
			}
			if f := d.Status.Failure; f == nil || f.Domain != full {
				return fmt.Errorf("the failure of the %s is %+v, want one in %s", r.kind, f, full)
			}
			again := time.Now().Add(time.Second).UTC().Format(time.RFC3339) // times of the API have no fractions
			retries[i] = fmt.Sprintf(`{"approved":{"revision":%q,"failuresBefore":%q}}`, d.Status.Revision, again)
		}
		// The Deployment keeps the pod that another one was to come for.
		if err := errors.Join(a.since().within(1, full), b.since().spared()); err != nil {
			return err
		}
		if err := a.SetSchedulable(ctx, true, nodes...); err != nil {
			return err
		}
		for i, r := range both {
			if err := r.edit(ctx, retries[i]); err != nil {
				return err
			}
		}
		for _, r := range both {
			if err := r.completes(ctx, "2"); err != nil {
				return fmt.Errorf("%s: %w", r.kind, err)
			}
			if err := r.since().within(1, r.inOrder()...); err != nil {
				return fmt.Errorf("%s: %w", r.kind, err)
			}
		}
		return nil
	})
	return fmt.Sprintf("of a zone that takes no pods it takes one of a StatefulSet and none of a Deployment (%q), and none of another zone; it fails in time, and is complete after a second try", waits), err
}
