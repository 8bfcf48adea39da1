package intent

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestForNamespace(t *testing.T) {
	choosing := func(name string, selector *metav1.LabelSelector) *v1alpha1.ClusterRoutingPolicy {
		p := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.NamespaceSelector = selector
		return p
	}
	policies := []*v1alpha1.ClusterRoutingPolicy{
		choosing("all", &metav1.LabelSelector{}),
		choosing("near", &metav1.LabelSelector{MatchLabels: map[string]string{"near": "yes"}}),
		choosing("not-near", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "near", Operator: metav1.LabelSelectorOpDoesNotExist}}}),
		choosing("none", nil),
		choosing("faulty", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "near", Operator: "Near"}}}),
	}
	for _, test := range []struct {
		labels map[string]string
		want   string
	}{
		{map[string]string{"near": "yes"}, "all near"},
		{map[string]string{"near": "no"}, "all"},
		{nil, "all not-near"},
	} {
		var names []string
		for _, p := range ForNamespace(policies, test.labels) {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); got != test.want {
			t.Errorf("%v: got %q, want %q", test.labels, got, test.want)
		}
	}
	for name, want := range map[string]string{
		"near":   "",
		"none":   "spec.namespaceSelector: it is missing; the policy selects no namespace",
		"faulty": `spec.namespaceSelector: "Near" is not a valid label selector operator; the policy selects no namespace`,
	} {
		at := slices.IndexFunc(policies, func(p *v1alpha1.ClusterRoutingPolicy) bool { return p.Name == name })
		if got := strings.Join(ReadClusterPolicy(policies[at]).Faults, " "); got != want {
			t.Errorf("%s: faults %q, want %q", name, got, want)
		}
	}
}
