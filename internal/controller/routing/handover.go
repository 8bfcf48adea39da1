package routing

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/routing/handover"
)

func (s *groupSync) handOver(ctx context.Context, step handover.Step) error {
	before := s.record.groups.memory
	s.record.groups.memory = step.Memory
	s.progress.notes = append(s.progress.notes, step.Notes...)
	s.requeueAfter(step.After)
	if s.proxies.follow(s.key, step) {
		s.requeueAfter(time.Millisecond)
	}
	switch {
	case step.Take:
		if err := s.giveTo(ctx, v1alpha1.ServiceProxyName); err != nil {
			return err
		}
		log.FromContext(ctx).Info("handed over to vicinity-proxy", "service", s.key.String(), "groups", len(s.in.Groups))
	case step.Release:
		if err := s.giveTo(ctx, ""); err != nil {
			s.record.groups.memory = before
			return err
		}
		log.FromContext(ctx).Info("handed back to kube-proxy", "service", s.key.String())
	case step.Phase == handover.PhaseLeft:
		return s.removeAll(ctx)
	}
	return nil
}

func (s *groupSync) giveTo(ctx context.Context, proxy string) error {
	service := serviceObject(s.in.Service)
	if err := shell.Patch(ctx, s.client, service, shell.SetLabel(s.in.Service, v1alpha1.LabelServiceProxyName, proxy)); err != nil {
		return fmt.Errorf("writing the label %s of Service %s: %w", v1alpha1.LabelServiceProxyName, s.key, err)
	}
	s.record.wrote(service, s.now)
	s.progress.writes++
	s.progress.given = true
	return nil
}
