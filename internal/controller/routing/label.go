package routing

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
)

// label puts the label for routed Services on, or takes it off, and returns the Service
// as it is stored then.
func (s *pass) label(ctx context.Context, on bool) (*corev1.Service, error) {
	value := ""
	if on {
		value = "true"
	}
	service := serviceObject(s.in.Service)
	if err := shell.Patch(ctx, s.client, service, shell.SetLabel(s.in.Service, v1alpha1.LabelRouted, value)); err != nil {
		return nil, fmt.Errorf("writing the label %s: %w", v1alpha1.LabelRouted, err)
	}
	s.record.wrote(service, s.now)
	return service, nil
}
