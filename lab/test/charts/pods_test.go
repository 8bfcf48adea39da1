package charts_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	withScaleDown = "rollouts.scaleDown=true"
	policyOfPods  = "vicinity-controller-pods"
)

const thePod = `
metadata: {name: web, namespace: shop, labels: {a: b}, annotations: {c: d}}
spec: {nodeName: n1, containers: [{name: web, image: web}]}
status: {phase: Running}
`

// The controller may change only some annotations of a pod: the deletion cost and its own.
func TestControllerWritesItsOwnToPods(t *testing.T) {
	p := newPolicy(t, object[*admissionv1.ValidatingAdmissionPolicy](t, rendered(t, withScaleDown), "ValidatingAdmissionPolicy "+policyOfPods))
	metadata := func(field string, value any) func(map[string]any) {
		return func(object map[string]any) { object["metadata"].(map[string]any)[field] = value }
	}
	annotation := func(name string) func(map[string]any) {
		return metadata("annotations", map[string]any{"c": "d", name: "-2"})
	}
	for name, test := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"nothing":            {metadata("resourceVersion", "8"), ""},
		"the cost":           {annotation(corev1.PodDeletionCost), ""},
		"its mark":           {annotation(v1alpha1.AnnotationDeletionCost), ""},
		"another annotation": {annotation("e"), "annotations of a Pod"},
		"another value":      {metadata("annotations", map[string]any{"c": "e"}), "annotations of a Pod"},
		"annotations go":     {func(o map[string]any) { delete(o["metadata"].(map[string]any), "annotations") }, "annotations of a Pod"},
		"a label":            {metadata("labels", map[string]any{"a": "c"}), "labels, owners"},
		"labels go":          {func(o map[string]any) { delete(o["metadata"].(map[string]any), "labels") }, "labels, owners"},
		"an owner":           {metadata("ownerReferences", []any{map[string]any{"name": "o"}}), "labels, owners"},
		"a finalizer":        {metadata("finalizers", []any{"example.com/keep"}), "labels, owners"},
		"an image": {func(o map[string]any) {
			o["spec"].(map[string]any)["containers"] = []any{map[string]any{"name": "web", "image": "other"}}
		}, "the spec of a Pod"},
	} {
		before, after := parsed(t, thePod), parsed(t, thePod)
		test.change(after)
		if got, _ := p.refuses(t, "pods", before, after); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: refused %q, want %q", name, got, test.want)
		}
	}
}

// After rollouts are switched off, the controller may take its scheduling gate from a pod, and no other.
func TestControllerReleasesPods(t *testing.T) {
	p := newPolicy(t, object[*admissionv1.ValidatingAdmissionPolicy](t, rendered(t, "rollouts.enabled=false"), "ValidatingAdmissionPolicy "+policyOfPods))
	held := func(gates ...any) map[string]any {
		pod := parsed(t, thePod)
		pod["spec"].(map[string]any)["schedulingGates"] = gates
		return pod
	}
	ours, other := map[string]any{"name": v1alpha1.RolloutGate}, map[string]any{"name": "example.com/quota"}
	for _, test := range []struct {
		before, after map[string]any
		want          string
	}{
		{held(other, ours), held(other), ""},
		{held(other, ours), held(ours), "the spec of a Pod"},
		{held(other), held(), "the spec of a Pod"},
	} {
		if got, _ := p.refuses(t, "pods", test.before, test.after); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%v to %v: refused %q, want %q", test.before["spec"], test.after["spec"], got, test.want)
		}
	}
}
