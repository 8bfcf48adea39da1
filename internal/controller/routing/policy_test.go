package routing

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

func (w *world) policyStatus(name string) v1alpha1.RoutingPolicyStatus {
	w.t.Helper()
	key := types.NamespacedName{Namespace: "shop", Name: name}
	if _, err := (policyReconciler{w.reconciler}).Reconcile(context.Background(), reconcile.Request{NamespacedName: key}); err != nil {
		w.t.Fatal(err)
	}
	policy := new(v1alpha1.RoutingPolicy)
	if err := w.client.Get(context.Background(), key, policy); err != nil {
		w.t.Fatal(err)
	}
	return policy.Status
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
	status := w.policyStatus("web")
	if status.Services != 2 || status.ObservedGeneration != 3 || len(status.Conditions) != 1 || status.Conditions[0].Status != metav1.ConditionTrue {
		t.Errorf("status %+v", status)
	}
	status = w.policyStatus("wrong")
	if status.Services != 0 || len(status.Conditions) != 1 || status.Conditions[0].Status != metav1.ConditionFalse ||
		!strings.Contains(status.Conditions[0].Message, "spec.overloadThreshold") || !strings.Contains(status.Conditions[0].Message, "spec.capacity.expression") {
		t.Errorf("status %+v", status)
	}
	w.sent()
	w.policyStatus("web")
	w.policyStatus("wrong")
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("a status that is right is written: %q", sent)
	}
}
