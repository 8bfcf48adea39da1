package charts_test

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	withBudgets        = "disruption.enabled=true"
	policyOfNamespaces = "vicinity-controller-namespaces"
	policyOfPDBs       = "vicinity-controller-poddisruptionbudgets"
)

const theNamespace = `
metadata: {name: shop, labels: {a: b, kubernetes.io/metadata.name: shop, pod-security.kubernetes.io/enforce: restricted}, annotations: {c: d}}
spec: {finalizers: [kubernetes]}
status: {phase: Active}
`

// The controller may change only one label of a namespace.
func TestControllerWritesItsOwnToNamespaces(t *testing.T) {
	p := newPolicy(t, object[*admissionv1.ValidatingAdmissionPolicy](t, rendered(t, withBudgets), "ValidatingAdmissionPolicy "+policyOfNamespaces))
	type labels = map[string]any
	given := labels{"a": "b", "kubernetes.io/metadata.name": "shop", "pod-security.kubernetes.io/enforce": "restricted"}
	with := func(key, value string) labels {
		all := labels{}
		for k, v := range given {
			all[k] = v
		}
		if all[key] = value; value == "" {
			delete(all, key)
		}
		return all
	}
	metadata := func(field string, value any) func(map[string]any) {
		return func(object map[string]any) { object["metadata"].(map[string]any)[field] = value }
	}
	for name, test := range map[string]struct {
		change func(map[string]any)
		want   string
	}{
		"nothing":                {metadata("resourceVersion", "8"), ""},
		"the label":              {metadata("labels", with(v1alpha1.LabelBudgets, "true")), ""},
		"the label says no":      {metadata("labels", with(v1alpha1.LabelBudgets, "false")), "to true only"},
		"another label":          {metadata("labels", with("e", "f")), "may change the label"},
		"a label of a like name": {metadata("labels", with("vicinity.dev/disruption-budgets2", "true")), "may change the label"},
		"pod security":           {metadata("labels", with("pod-security.kubernetes.io/enforce", "privileged")), "may change the label"},
		"pod security goes":      {metadata("labels", with("pod-security.kubernetes.io/enforce", "")), "may change the label"},
		"all labels go":          {func(object map[string]any) { delete(object["metadata"].(map[string]any), "labels") }, "may change the label"},
		"an annotation":          {metadata("annotations", map[string]any{"c": "e"}), "annotations, owners"},
		"annotations go":         {func(object map[string]any) { delete(object["metadata"].(map[string]any), "annotations") }, "annotations, owners"},
		"an owner":               {metadata("ownerReferences", []any{map[string]any{"name": "o"}}), "annotations, owners"},
		"a finalizer":            {metadata("finalizers", []any{"example.com/keep"}), "annotations, owners"},
		"the spec":               {func(object map[string]any) { object["spec"] = map[string]any{} }, "annotations, owners"},
		"the status":             {func(object map[string]any) { object["status"] = map[string]any{"phase": "Terminating"} }, "annotations, owners"},
		"kube-system":            {metadata("name", "kube-system"), ""},
		"the label, kube-system": {func(o map[string]any) {
			metadata("name", "kube-system")(o)
			metadata("labels", with(v1alpha1.LabelBudgets, "true"))(o)
		}, "not on kube-system"},
		"the label, own": {func(o map[string]any) {
			metadata("name", namespace)(o)
			metadata("labels", with(v1alpha1.LabelBudgets, "true"))(o)
		}, "not on kube-system"},
		"the label, like its own": {func(o map[string]any) {
			metadata("name", namespace+"2")(o)
			metadata("labels", with(v1alpha1.LabelBudgets, "true"))(o)
		}, ""},
	} {
		before, after := parsed(t, theNamespace), parsed(t, theNamespace)
		test.change(after)
		before["metadata"].(map[string]any)["name"] = after["metadata"].(map[string]any)["name"]
		if got, _ := p.refuses(t, "namespaces", before, after); test.want == "" && got != "" || !strings.Contains(got, test.want) {
			t.Errorf("%s: refused %q, want %q", name, got, test.want)
		}
	}
	marked := parsed(t, theNamespace)
	marked["metadata"].(map[string]any)["labels"].(map[string]any)[v1alpha1.LabelBudgets] = "true"
	if got, _ := p.refuses(t, "namespaces", marked, parsed(t, theNamespace)); got != "" {
		t.Errorf("the label cannot be removed: %s", got)
	}
	for _, validation := range p.spec.Validations {
		if strings.Contains(validation.Expression, "oldLabels") && !strings.Contains(validation.Message, "or of a webhook that changes it") {
			t.Errorf("%q does not name a webhook as a possible cause", validation.Message)
		}
	}
}
