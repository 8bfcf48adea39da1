package charts_test

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// holds reports whether a webhook is called for a request, by its match conditions.
func holds(t *testing.T, conditions []admissionv1.MatchCondition, request, object map[string]any) bool {
	t.Helper()
	env, err := cel.NewEnv(cel.Variable("request", cel.DynType), cel.Variable("object", cel.DynType), cel.OptionalTypes())
	if err != nil {
		t.Fatal(err)
	}
	for _, condition := range conditions {
		ast, issues := env.Compile(condition.Expression)
		if issues.Err() != nil {
			t.Fatalf("%s: %v", condition.Name, issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatalf("%s: %v", condition.Name, err)
		}
		result, _, err := program.Eval(map[string]any{"request": request, "object": object})
		if err != nil {
			t.Fatalf("%s: %v", condition.Name, err)
		}
		if result.Value() != true {
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

func TestSlicesThatTheWebhookIsCalledFor(t *testing.T) {
	configuration := object[*admissionv1.MutatingWebhookConfiguration](t, rendered(t), "MutatingWebhookConfiguration vicinity")
	if len(configuration.Webhooks) != 2 {
		t.Fatalf("there are %d webhooks", len(configuration.Webhooks))
	}
	for _, test := range []struct {
		name    string
		request map[string]any
		labels  map[string]any
		want    bool
	}{
		{"Kubernetes writes", by(upstream, "default"), map[string]any{ofService: "echo"}, true},
		{"the controller writes", by(own, "default"), map[string]any{ofService: "echo"}, false},
		{"no labels", by("somebody", "default"), nil, true},
		{"of no Service", by("somebody", "default"), map[string]any{"a": "b"}, true},
		{"of the API server", by("system:apiserver", "default"), map[string]any{ofService: "kubernetes"}, false},
		{"of another Service of the name", by(upstream, "other"), map[string]any{ofService: "kubernetes"}, true},
	} {
		for _, webhook := range configuration.Webhooks {
			if got := holds(t, webhook.MatchConditions, test.request, with("labels", test.labels)); got != test.want {
				t.Errorf("%s, %s: called %t, want %t", webhook.Name, test.name, got, test.want)
			}
		}
	}
}

func TestPodsWhoseOrdinalsAreSpread(t *testing.T) {
	for set, want := range map[string]bool{
		"rollouts.ordinals=false":                      false,
		"rollouts.ordinals=true":                       true,
		"rollouts.ordinals=true,routing.enabled=false": false,
	} {
		if got := strings.Contains(rendered(t, set).Manifest, "name: ordinal.vicinity.dev"); got != want {
			t.Errorf("%s: the webhook is there: %t, want %t", set, got, want)
		}
	}
	r := rendered(t, "rollouts.ordinals=true,webhooks.endpointSlices.enabled=false")
	configuration := object[*admissionv1.MutatingWebhookConfiguration](t, r, "MutatingWebhookConfiguration vicinity")
	if len(configuration.Webhooks) != 1 || !strings.Contains(r.Manifest, "- --webhook-ordinals\n") {
		t.Fatalf("there are %d webhooks, or the controller does not serve them", len(configuration.Webhooks))
	}
	webhook := &configuration.Webhooks[0]
	if *webhook.FailurePolicy != admissionv1.Ignore || *webhook.TimeoutSeconds != 2 || *webhook.SideEffects != admissionv1.SideEffectClassNone {
		t.Errorf("new pods wait for %s, or are refused without it", webhook.Name)
	}
	owner := func(kind, version string) []any {
		return []any{map[string]any{"kind": kind, "apiVersion": version, "controller": true}}
	}
	asks := map[string]any{"vicinity.dev/spread-ordinals": "topology.kubernetes.io/zone"}
	for _, test := range []struct {
		name        string
		annotations map[string]any
		owners      []any
		want        bool
	}{
		{"of a StatefulSet", asks, owner("StatefulSet", "apps/v1"), true},
		{"without the annotation", nil, owner("StatefulSet", "apps/v1"), false},
		{"of a ReplicaSet", asks, owner("ReplicaSet", "apps/v1"), false},
		{"of another API", asks, owner("StatefulSet", "example.com/v1"), false},
		{"without an owner", asks, nil, false},
	} {
		metadata := map[string]any{"name": "db-0"}
		if test.annotations != nil {
			metadata["annotations"] = test.annotations
		}
		if test.owners != nil {
			metadata["ownerReferences"] = test.owners
		}
		if got := holds(t, webhook.MatchConditions, by("somebody", "shop"), map[string]any{"metadata": metadata}); got != test.want {
			t.Errorf("%s: called %t, want %t", test.name, got, test.want)
		}
	}
}

func TestServicesThatTheWebhookIsCalledFor(t *testing.T) {
	configuration := object[*admissionv1.ValidatingWebhookConfiguration](t,
		rendered(t, "webhooks.policies.enabled=false"), "ValidatingWebhookConfiguration vicinity")
	for _, test := range []struct {
		name        string
		user        string
		annotations map[string]any
		want        bool
	}{
		{"no annotations", "somebody", nil, false},
		{"others' annotations", "somebody", map[string]any{"example.com/a": "b", "my.vicinity.dev/x": "y"}, false},
		{"nearness", "somebody", map[string]any{"example.com/a": "b", "endpointslice.kubernetes.io/same-zone": "Prefer"}, true},
		{"keys", "somebody", map[string]any{"vicinity.dev/topology-keys": "*"}, true},
		{"mode", "somebody", map[string]any{"service.kubernetes.io/topology-mode": "Auto"}, true},
		{"older mode", "somebody", map[string]any{"service.kubernetes.io/topology-aware-hints": "auto"}, true},
		{"the controller writes", own, map[string]any{"endpointslice.kubernetes.io/same-zone": "Prefer"}, false},
	} {
		if got := holds(t, configuration.Webhooks[0].MatchConditions, by(test.user, "default"), with("annotations", test.annotations)); got != test.want {
			t.Errorf("%s: called %t, want %t", test.name, got, test.want)
		}
	}
}

// A webhook that is down or slow must not keep anybody from writing.
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
			continue // what it is called for is in no namespace
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
