package controller

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func aPolicy(name string, spec v1alpha1.RoutingPolicySpec) *v1alpha1.RoutingPolicy {
	return &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 3}, Spec: spec}
}

func (w *world) policyStatus(namespace, name string) v1alpha1.RoutingPolicyStatus {
	w.t.Helper()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if _, err := (policyReconciler{w.reconciler}).Reconcile(context.Background(), reconcile.Request{NamespacedName: key}); err != nil {
		w.t.Fatal(err)
	}
	policy := newPolicy(key)
	if err := w.client.Get(context.Background(), key, policy.object); err != nil {
		w.t.Fatal(err)
	}
	return *policy.status
}

func TestPolicyStatus(t *testing.T) {
	one, two, silent := aService("one"), aService("two"), aService("silent")
	for _, service := range []*corev1.Service{one, two} {
		service.Labels = map[string]string{"tier": "web"}
	}
	w := newWorld(t, append(threeZones(), one, two, silent,
		aPolicy("web", v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}),
		aPolicy("wrong", v1alpha1.RoutingPolicySpec{
			OverloadThreshold: "much",
			Capacity:          v1alpha1.Capacity{Type: v1alpha1.CapacityExpression, Expression: "zone.nodes / 0.0"},
		}))...)
	for _, name := range []string{"one", "two", "silent"} {
		w.settle(name)
	}
	status := w.policyStatus("shop", "web")
	if status.Services != 2 || status.ObservedGeneration != 3 || len(status.Conditions) != 1 || status.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("status %+v", status)
	}
	status = w.policyStatus("shop", "wrong")
	if status.Services != 0 || len(status.Conditions) != 1 || status.Conditions[0].Status != metav1.ConditionFalse ||
		!strings.Contains(status.Conditions[0].Message, "spec.overloadThreshold") || !strings.Contains(status.Conditions[0].Message, "spec.capacity.expression") {
		t.Errorf("status %+v", status)
	}
	w.takePatches()
	w.policyStatus("shop", "web")
	w.policyStatus("shop", "wrong")
	if sent := w.takePatches(); len(sent) > 0 {
		t.Errorf("a status that is right is written: %q", sent)
	}
}

// aClusterPolicy selects the namespaces with the label.
func aClusterPolicy(name, label string) *v1alpha1.ClusterRoutingPolicy {
	policy := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Generation: 3}}
	policy.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
	return policy
}

func labelled(name string, labels ...string) *corev1.Namespace {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for _, label := range labels {
		namespace.Labels[label] = "true"
	}
	return namespace
}

// A cluster policy routes all Services of a namespace with the label, except a Service that opts out, until the
// namespace loses the label.
func TestClusterPolicyRoutesLabelledNamespaces(t *testing.T) {
	out := aService("out", v1alpha1.AnnotationSameZone, v1alpha1.Balanced)
	w := newWorld(t, append(threeZones(), labelled("shop", "near"), aService("web"), out,
		aSlice("web", 0, twelve), aSlice("out", 1, twelve), aClusterPolicy("near", "near"), aClusterPolicy("far", "far"))...)
	w.settle("web")
	w.settle("out")
	if got, want := w.hints(), "a a a a b b b b c c c c"; got != want {
		t.Errorf("hints %q, want %q", got, want)
	}
	if w.service("out").Labels[v1alpha1.LabelRouted] != "" {
		t.Error("a Service that says Balanced is routed")
	}
	for name, want := range map[string]int32{"near": 1, "far": 0} {
		status := w.policyStatus("", name)
		if status.Services != want || status.ObservedGeneration != 3 || len(status.Conditions) != 1 || status.Conditions[0].Status != metav1.ConditionTrue {
			t.Errorf("%s: status %+v, want %d Services", name, status, want)
		}
	}
	w.update(labelled("shop"))
	w.settle("web")
	if w.service("web").Labels[v1alpha1.LabelRouted] != "" {
		t.Error("a Service is routed although its namespace has lost the label")
	}
	if status := w.policyStatus("", "near"); status.Services != 0 {
		t.Errorf("%d Services follow the policy", status.Services)
	}
}
