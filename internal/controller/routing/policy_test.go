package routing

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// still is a cache that has one Service with its slices.
type still struct {
	client.Client
	service *corev1.Service
	slices  []*discoveryv1.EndpointSlice
}

func (s still) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	*object.(*corev1.Service) = *s.service
	return nil
}

func (s still) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if eps, ok := list.(*discoveryv1.EndpointSliceList); ok {
		for _, slice := range s.slices {
			eps.Items = append(eps.Items, *slice)
		}
	}
	return nil
}

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

// How many Services follow a policy is known once all were synced. Until then, as
// after a restart, its status says what it said, and the policy is looked at again.
func TestPolicyStatusAfterRestart(t *testing.T) {
	one, two := aService("one"), aService("two")
	for _, service := range []*corev1.Service{one, two} {
		service.Labels = map[string]string{"tier": "web"}
	}
	w := newWorld(t, append(threeZones(), one, two, aService("silent"),
		aPolicy("web", v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}))...)
	names := []string{"one", "two", "silent"}
	for _, name := range names {
		w.settle(name)
	}
	if got := w.policyStatus("web").Services; got != 2 {
		t.Fatalf("%d Services, want 2", got)
	}
	w.start(testOptions())
	p := newPolicyReconciler(w.reconciler)
	request := reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	w.sent()
	for i := 0; i <= len(names); i++ {
		result, err := p.Reconcile(context.Background(), request)
		if err != nil || (result.RequeueAfter > 0) != (i < len(names)) {
			t.Errorf("after %d Services: result %+v, error %v", i, result, err)
		}
		if sent := w.sent(); len(sent) > 0 {
			t.Errorf("after %d Services: sent %q", i, sent)
		}
		if i < len(names) {
			w.settle(names[i])
			w.sent()
		}
		w.clock.SetTime(w.clock.Now().Add(policyPause))
	}
	if err := w.client.Delete(context.Background(), w.service("two")); err != nil {
		t.Fatal(err)
	}
	w.sync("two")
	if got := w.policyStatus("web").Services; got != 1 {
		t.Errorf("%d Services, want 1", got)
	}
}

// A status that the cache shows and that is not the one written last is not taken for
// what is there.
func TestPolicyStatusWhileTheCacheIsBehind(t *testing.T) {
	one, two := aService("one"), aService("two")
	for _, service := range []*corev1.Service{one, two} {
		service.Labels = map[string]string{"tier": "web"}
	}
	w := newWorld(t, append(threeZones(), one,
		aPolicy("web", v1alpha1.RoutingPolicySpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "web"}}}))...)
	w.settle("one")
	w.policyStatus("web")
	cache := newLagging(w)
	p := newPolicyReconciler(w.reconciler)
	reconciled := func(want int32) (again time.Duration) {
		t.Helper()
		p.client = cache
		defer func() { p.client = w.client }()
		result, err := p.Reconcile(context.Background(), serviceNamed("shop", "web")[0])
		if err != nil {
			t.Fatal(err)
		}
		policy := new(v1alpha1.RoutingPolicy)
		if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: "shop", Name: "web"}, policy); err != nil {
			t.Fatal(err)
		}
		if got := policy.Status.Services; got != want {
			t.Errorf("%d Services, want %d", got, want)
		}
		return result.RequeueAfter
	}
	w.create(two)
	w.settle("two")
	reconciled(2)
	if err := w.client.Delete(context.Background(), w.service("two")); err != nil {
		t.Fatal(err)
	}
	w.sync("two")
	if again := reconciled(2); again == 0 {
		t.Error("nobody looks again")
	}
	if err := cache.catchUp(&v1alpha1.RoutingPolicyList{}); err != nil {
		t.Fatal(err)
	}
	if again := reconciled(1); again != 0 {
		t.Errorf("looks again after %s", again)
	}
}

// A Service whose slices cannot be written follows its policy all the same.
func TestPolicyOfServiceThatCannotBeWritten(t *testing.T) {
	service := aService("web", v1alpha1.AnnotationTopologyMode, "vicinity.dev/near")
	w := newWorld(t, append(threeZones(), service, aSlice("web", 0, twelve), aPolicy("near", v1alpha1.RoutingPolicySpec{}))...)
	w.refuse = func(client.Object, string) error { return errors.New("no") }
	if err := w.attempt(0); err == nil {
		t.Fatal("no error")
	}
	w.refuse = nil
	if got := w.policyStatus("near").Services; got != 1 {
		t.Errorf("%d Services, want 1", got)
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

// A policy that is asked for many times before it is looked at is looked at once, and those
// that were asked for first come first. What is asked for before there is a queue waits for
// nothing: the controller begins with all policies.
func TestPoliciesAreQueuedOnce(t *testing.T) {
	requests := new(policyRequests)
	far, near := types.NamespacedName{Name: "far"}, types.NamespacedName{Namespace: "shop", Name: "near"}
	requests.ask(far)
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	if err := requests.start(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		requests.ask(far)
		requests.ask(types.NamespacedName{})
		requests.ask(near)
	}
	for _, want := range []types.NamespacedName{far, near} {
		got, _ := q.Get()
		if got.NamespacedName != want {
			t.Errorf("looked at %s, want %s", got, want)
		}
		q.Done(got)
	}
	if n := q.Len(); n != 0 {
		t.Errorf("%d more requests", n)
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
