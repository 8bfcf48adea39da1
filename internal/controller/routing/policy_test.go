package routing

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

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
	p := newPolicyReconciler(w.reconciler)
	if _, err := p.Reconcile(context.Background(), reconcile.Request{NamespacedName: key}); err != nil {
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

// Syncs of Services ask for a look at the policies that they follow, and followed.
func TestServicesAskForTheirPolicies(t *testing.T) {
	service := aService("web")
	service.Labels = map[string]string{"tier": "web"}
	w := newWorld(t, append(threeZones(), service, aSlice("web", 0, twelve),
		aPolicy("web", v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}))...)
	asked := w.asked()
	w.settle("web")
	if got := asked(); !slices.Equal(got, []string{"web"}) {
		t.Errorf("asked for %v", got)
	}
	w.settle("web")
	if got := asked(); len(got) > 0 {
		t.Errorf("asked for %v again", got)
	}
	service = w.service("web")
	delete(service.Labels, "tier")
	w.update(service)
	w.settle("web")
	if got := asked(); !slices.Equal(got, []string{"web"}) {
		t.Errorf("asked for %v after the Service left it", got)
	}
}

// Nodes matter to the status of policies that compute with them, and to no others.
func TestNodesAskForFewPolicies(t *testing.T) {
	w := newWorld(t, append(threeZones(), aService("web"),
		aPolicy("cpu", v1alpha1.RoutingPolicySpec{Capacity: v1alpha1.Capacity{Type: v1alpha1.CapacityCPU}}),
		aPolicy("plain", v1alpha1.RoutingPolicySpec{}),
		aPolicy("computed", v1alpha1.RoutingPolicySpec{Capacity: v1alpha1.Capacity{Type: v1alpha1.CapacityExpression, Expression: "zone.cpu"}}),
		&v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "computed-too"}, Spec: v1alpha1.ClusterRoutingPolicySpec{
			RoutingPolicySpec: v1alpha1.RoutingPolicySpec{Capacity: v1alpha1.Capacity{Type: v1alpha1.CapacityExpression, Expression: "zone.cpu"}},
		}})...)
	w.sync("web")
	asked := w.asked()
	if _, err := w.reconciler.nodes.current(context.Background()); err != nil {
		t.Fatal(err)
	}
	w.create(aNode("a-2", "a"))
	if err := w.reconciler.nodes.refresh(context.Background(), newQueue()); err != nil {
		t.Fatal(err)
	}
	if got := asked(); !slices.Equal(got, []string{"computed", "computed-too"}) {
		t.Errorf("asked for %v", got)
	}
}

// asked takes the place of the controller of policies. It returns a function whose result
// are the policies that were asked for since the last time, each once.
func (w *world) asked() func() []string {
	q := &delayedQueue{t: w.t}
	if err := w.reconciler.policies.start(context.Background(), q); err != nil {
		w.t.Fatal(err)
	}
	return func() []string {
		names := slices.Compact(slices.Sorted(slices.Values(q.names)))
		q.names = nil
		return names
	}
}

// delayedQueue keeps what is added for when policies are looked at.
type delayedQueue struct {
	queue
	t     testing.TB
	names []string
}

func (q *delayedQueue) AddAfter(request reconcile.Request, after time.Duration) {
	q.names = append(q.names, request.Name)
	if after != policyPause {
		q.t.Errorf("%s is looked at after %s, want %s", request.Name, after, policyPause)
	}
}
