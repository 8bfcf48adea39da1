package routing

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// aClusterPolicy is for the namespaces with the label.
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

func (w *world) clusterPolicyStatus(name string) v1alpha1.RoutingPolicyStatus {
	w.t.Helper()
	key := types.NamespacedName{Name: name}
	if _, err := (policyReconciler{w.reconciler}).Reconcile(context.Background(), reconcile.Request{NamespacedName: key}); err != nil {
		w.t.Fatal(err)
	}
	policy := new(v1alpha1.ClusterRoutingPolicy)
	if err := w.client.Get(context.Background(), key, policy); err != nil {
		w.t.Fatal(err)
	}
	return policy.Status
}

// All Services of a namespace with the label are routed, but for those that say something
// else, until the namespace loses the label.
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
		status := w.clusterPolicyStatus(name)
		if status.Services != want || status.ObservedGeneration != 3 || len(status.Conditions) != 1 || status.Conditions[0].Status != metav1.ConditionTrue {
			t.Errorf("%s: status %+v, want %d Services", name, status, want)
		}
	}
	w.update(labelled("shop"))
	w.settle("web")
	if w.service("web").Labels[v1alpha1.LabelRouted] != "" {
		t.Error("a Service is routed although its namespace has lost the label")
	}
	if status := w.clusterPolicyStatus("near"); status.Services != 0 {
		t.Errorf("%d Services follow the policy", status.Services)
	}
}
