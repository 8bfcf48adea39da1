package main

import (
	"maps"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// written returns a Service of a test.
func written(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "services-1", Name: "web"}}
	if change != nil {
		change(s)
	}
	return s
}

func annotated(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{name: value} }
}

func labelled(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Labels = map[string]string{name: value} }
}

func TestMissingAnnotations(t *testing.T) {
	const proxy, near = "vicinity.dev/proxy=true", "endpointslice.kubernetes.io/same-zone=Prefer"
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		want   string
	}{
		"plain":                  {nil, near + " " + proxy},
		"headless":               {func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, ""},
		"a name":                 {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }, ""},
		"of another proxy":       {labelled("service.kubernetes.io/service-proxy-name", "foo-bar"), ""},
		"handed over":            {labelled("service.kubernetes.io/service-proxy-name", "vicinity"), near + " " + proxy},
		"annotated":              {annotated("vicinity.dev/proxy", "true"), near},
		"kept from the proxy":    {annotated("vicinity.dev/proxy", "false"), near},
		"near already":           {annotated("endpointslice.kubernetes.io/same-zone", "Require"), proxy},
		"near by keys":           {annotated("vicinity.dev/topology-keys", "*"), proxy},
		"by the topology mode":   {annotated("service.kubernetes.io/topology-mode", "Auto"), proxy},
		"by the older mode":      {annotated("service.kubernetes.io/topology-aware-hints", "auto"), proxy},
		"by the label of zones":  {labelled("endpoint-slice-hints.resources.gardener.cloud/consider", "true"), proxy},
		"by its own preference":  {func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferClose") }, proxy},
		"with other annotations": {annotated("example.com/a", "b"), near + " " + proxy},
	} {
		t.Run(name, func(t *testing.T) {
			service := written(test.change)
			want := map[string]string{}
			for _, word := range strings.Fields(test.want) {
				key, value, _ := strings.Cut(word, "=")
				want[key] = value
			}
			if got := newAnnotator(true, true).missing(service); !maps.Equal(got, want) {
				t.Errorf("missing are %v, want %v", got, want)
			}
			if got := newAnnotator(false, false).missing(service); len(got) > 0 {
				t.Errorf("without a task, missing are %v", got)
			}
		})
	}
}
