package endpointslice

import (
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
)

// Other writers of slices do not know the label that the routing controller adds. The webhook keeps it, and the hints.
func TestForeignSlices(t *testing.T) {
	by := func(manager string) func(*discoveryv1.EndpointSlice) {
		return func(s *discoveryv1.EndpointSlice) {
			if delete(s.Labels, discoveryv1.LabelManagedBy); manager != "" {
				s.Labels[discoveryv1.LabelManagedBy] = manager
			}
		}
	}
	hand, mirror := by(""), by("endpointslicemirroring-controller.k8s.io")
	unlabelled := labelled()
	for _, test := range []struct {
		name    string
		manager func(*discoveryv1.EndpointSlice)
		change  func(*discoveryv1.EndpointSlice) // of what is written
		want    string
		routed  bool
		result  admission.Result
	}{
		{name: "stripped by hand", manager: hand, change: unlabelled, want: "a,b b", routed: true, result: admission.Restored},
		{name: "mirrored anew", manager: mirror, change: unlabelled, want: "a,b b", routed: true, result: admission.Restored},
		{
			name: "all go", manager: mirror, want: "", routed: true, result: admission.Changed,
			change: func(s *discoveryv1.EndpointSlice) {
				unlabelled(s)
				replaced()(s)
			},
		},
		{
			name: "of another Service now", manager: hand, want: "- -", result: admission.Skipped,
			change: func(s *discoveryv1.EndpointSlice) {
				unlabelled(s)
				s.Labels[discoveryv1.LabelServiceName] = "shop"
			},
		},
		{
			name: "label set to false by a user", manager: hand, want: "- -", result: admission.Skipped,
			change: func(s *discoveryv1.EndpointSlice) { s.Labels[v1alpha1.LabelRouted] = "false" },
		},
		{name: "Kubernetes' own, routed no more", manager: by(v1alpha1.ManagedByKubernetes), change: unlabelled, want: "- -", result: admission.Skipped},
	} {
		t.Run(test.name, func(t *testing.T) {
			stored := with(aSlice("cart-1", "10.0.0.1 a >a,b", "10.0.0.2 b >b"), test.manager)
			object := with(rewritten(stored), test.change)
			h, registry := testHandler(t, &known{})
			a := ask{operation: admissionv1.Update, user: "system:serviceaccount:kube-system:mirror", object: object, stored: stored}
			got := admitted(t, h, a)
			if hints := hintsOf(got); hints != test.want {
				t.Errorf("the hints are %s, want %s", hints, test.want)
			}
			if routed := got.Labels[v1alpha1.LabelRouted] == "true"; routed != test.routed {
				t.Errorf("labels %v, want the slice to be routed: %t", got.Labels, test.routed)
			}
			if counted := results(t, registry); counted[string(test.result)] != 1 {
				t.Errorf("counted %v, want one %s", counted, test.result)
			}
			if test.result == admission.Restored && !equality.Semantic.DeepEqual(got, stored) {
				t.Errorf("the object is\n%+v, want the stored\n%+v", got, stored)
			}
		})
	}
}
