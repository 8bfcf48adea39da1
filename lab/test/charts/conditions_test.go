package charts_test

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// holds reports whether the match conditions let a webhook be called for a request.
func holds(t *testing.T, conditions []admissionv1.MatchCondition, request, object map[string]any) bool {
	t.Helper()
	p, cost := newPolicy(t, &admissionv1.ValidatingAdmissionPolicy{}), uint64(0)
	for _, c := range conditions {
		if fmt.Sprint(p.eval(t, c.Expression, map[string]any{"request": request, "object": object}, &cost)) != "true" {
			return false
		}
	}
	return true
}

func by(user, namespace string) map[string]any {
	return map[string]any{"namespace": namespace, "userInfo": map[string]any{"username": user}}
}

func with(field string, entries map[string]any) map[string]any {
	metadata := map[string]any{"name": "x"}
	if entries != nil {
		metadata[field] = entries
	}
	return map[string]any{"metadata": metadata}
}

const (
	own       = "system:serviceaccount:vicinity-system:vicinity-controller"
	upstream  = "system:serviceaccount:kube-system:endpointslice-controller"
	ofService = "kubernetes.io/service-name"
)

func TestWebhooksMatchTheirRequests(t *testing.T) {
	const slices, ordinals, services = "slices", "ordinals", "services"
	conditions := map[string][][]admissionv1.MatchCondition{}
	hooks := func(kind, set string, want int) {
		for _, w := range object[*admissionv1.MutatingWebhookConfiguration](t, rendered(t, set), "MutatingWebhookConfiguration vicinity").Webhooks {
			conditions[kind] = append(conditions[kind], w.MatchConditions)
			if *w.FailurePolicy != admissionv1.Ignore || *w.TimeoutSeconds > 2 || *w.SideEffects != admissionv1.SideEffectClassNone {
				t.Errorf("%s can delay or refuse writes", w.Name)
			}
		}
		if len(conditions[kind]) != want {
			t.Fatalf("%s: %d webhooks, want %d", set, len(conditions[kind]), want)
		}
	}
	hooks(slices, "routing.enabled=true", 2)
	hooks(ordinals, "rollouts.ordinals=true,webhooks.endpointSlices.enabled=false", 1)
	validating := object[*admissionv1.ValidatingWebhookConfiguration](t, rendered(t, "webhooks.policies.enabled=false"), "ValidatingWebhookConfiguration vicinity")
	conditions[services] = [][]admissionv1.MatchCondition{validating.Webhooks[0].MatchConditions}

	owned := func(kind, version string, annotations map[string]any) map[string]any {
		o := with("annotations", annotations)
		o["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{"kind": kind, "apiVersion": version, "controller": true}}
		return o
	}
	asks := map[string]any{"vicinity.dev/spread-ordinals": "topology.kubernetes.io/zone"}
	for _, test := range []struct {
		kind, name, user string
		object           map[string]any
		want             bool
	}{
		{slices, "Kubernetes writes", upstream, with("labels", map[string]any{ofService: "echo"}), true},
		{slices, "the controller writes", own, with("labels", map[string]any{ofService: "echo"}), false},
		{slices, "no labels", "tenant", with("labels", nil), true},
		{slices, "of no Service", "tenant", with("labels", map[string]any{"a": "b"}), true},
		{slices, "of the API server", "system:apiserver", with("labels", map[string]any{ofService: "kubernetes"}), false},
		{ordinals, "of a StatefulSet", "tenant", owned("StatefulSet", "apps/v1", asks), true},
		{ordinals, "without the annotation", "tenant", owned("StatefulSet", "apps/v1", nil), false},
		{ordinals, "of a ReplicaSet", "tenant", owned("ReplicaSet", "apps/v1", asks), false},
		{ordinals, "of another API", "tenant", owned("StatefulSet", "example.com/v1", asks), false},
		{ordinals, "without an owner", "tenant", with("annotations", asks), false},
		{services, "no annotations", "tenant", with("annotations", nil), false},
		{services, "others' annotations", "tenant", with("annotations", map[string]any{"example.com/a": "b", "my.vicinity.dev/x": "y"}), false},
		{services, "nearness", "tenant", with("annotations", map[string]any{"example.com/a": "b", "endpointslice.kubernetes.io/same-zone": "Prefer"}), true},
		{services, "keys", "tenant", with("annotations", map[string]any{"vicinity.dev/topology-keys": "*"}), true},
		{services, "mode", "tenant", with("annotations", map[string]any{"service.kubernetes.io/topology-mode": "Auto"}), true},
		{services, "older mode", "tenant", with("annotations", map[string]any{"service.kubernetes.io/topology-aware-hints": "auto"}), true},
		{services, "the controller writes", own, with("annotations", map[string]any{"endpointslice.kubernetes.io/same-zone": "Prefer"}), false},
	} {
		for _, c := range conditions[test.kind] {
			if got := holds(t, c, by(test.user, "default"), test.object); got != test.want {
				t.Errorf("%s, %s: called %t, want %t", test.kind, test.name, got, test.want)
			}
		}
	}
	for _, c := range conditions[slices] {
		if !holds(t, c, by(upstream, "other"), with("labels", map[string]any{ofService: "kubernetes"})) {
			t.Error("slices, of another Service with the name of the API server's: not called")
		}
	}
}

// A webhook that is down or slow must not block writes.
func TestWebhooksFailOpen(t *testing.T) {
	r := rendered(t, "routing.excludedNamespaces={a}")
	var all []admissionv1.ValidatingWebhook
	for _, w := range object[*admissionv1.MutatingWebhookConfiguration](t, r, "MutatingWebhookConfiguration vicinity").Webhooks {
		if *w.TimeoutSeconds != 1 {
			t.Errorf("%s keeps a writer of slices waiting for %d s", w.Name, *w.TimeoutSeconds)
		}
		all = append(all, admissionv1.ValidatingWebhook{
			Name: w.Name, FailurePolicy: w.FailurePolicy, SideEffects: w.SideEffects, NamespaceSelector: w.NamespaceSelector,
		})
	}
	all = append(all, object[*admissionv1.ValidatingWebhookConfiguration](t, r, "ValidatingWebhookConfiguration vicinity").Webhooks...)
	for _, w := range all {
		if *w.FailurePolicy != admissionv1.Ignore {
			t.Errorf("%s fails closed", w.Name)
		}
		if *w.SideEffects != admissionv1.SideEffectClassNone {
			t.Errorf("%s does not allow dry runs", w.Name)
		}
		if len(w.Rules) > 0 && *w.Rules[0].Scope == admissionv1.ClusterScope {
			continue // its objects are in no namespace
		}
		selector, err := metav1.LabelSelectorAsSelector(w.NamespaceSelector)
		if err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]bool{"a": false, namespace: false, "b": true} {
			if got := selector.Matches(labels.Set{"kubernetes.io/metadata.name": name}); got != want {
				t.Errorf("%s is called for namespace %s: %t, want %t", w.Name, name, got, want)
			}
		}
	}
}
