package routing

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// label puts the label for routed Services on, or takes it off, and returns the Service
// as it is stored then.
func (s *pass) label(ctx context.Context, on bool) (*corev1.Service, error) {
	value := ""
	if on {
		value = "true"
	}
	service := serviceObject(s.in.Service)
	if err := patch(ctx, s.client, service, labelPatch(s.in.Service, v1alpha1.LabelRouted, value)); err != nil {
		return nil, fmt.Errorf("writing the label %s: %w", v1alpha1.LabelRouted, err)
	}
	s.record.wrote(service, s.now)
	return service, nil
}

// labelPatch gives a Service a label, or takes one that it has off if there is no
// value.
func labelPatch(service *corev1.Service, label, value string) []operation {
	path := "/metadata/labels/" + strings.ReplaceAll(label, "/", "~1")
	change := operation{"add", path, value}
	switch {
	case value == "":
		change = operation{"remove", path, nil}
	case service.Labels == nil:
		change = operation{"add", "/metadata/labels", map[string]string{label: value}}
	}
	return []operation{guard(service), change}
}
