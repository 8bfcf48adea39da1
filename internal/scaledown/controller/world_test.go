package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
	"vicinity.dev/vicinity/internal/scaledown/spread"
)

// world is an API server, an evictor and a reconciler.
type world struct {
	t        testing.TB
	client   client.WithWatch
	clock    *clocktesting.FakePassiveClock
	recorder *events.FakeRecorder
	r        *reconciler
	// writes has the patches of pods since the last check, in order.
	writes []string
	// outcome is the evictor's answer. requests has the pods of its requests.
	outcome  requester.State
	requests []string
	// lags keeps evicted pods in the cache.
	lags bool
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func testOptions() Options { return Options{Budgets: true, Workers: 4, Rate: 1000, Burst: 1000} }

var web = workload{types.NamespacedName{Namespace: "shop", Name: "web"}, pacing.Deployment}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), recorder: events.NewFakeRecorder(100), outcome: requester.Evicted}
	w.client = fake.NewClientBuilder().WithScheme(testScheme(t)).
		WithIndex(&corev1.Pod{}, indexController, controllerOf).WithIndex(&appsv1.ReplicaSet{}, indexController, controllerOf).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if err := c.Patch(ctx, object, patch, options...); err != nil {
					return err
				}
				w.writes = append(w.writes, object.GetName()+"="+object.GetAnnotations()[corev1.PodDeletionCost])
				return nil
			},
		}).Build()
	w.r = newReconciler(reconciler{client: w.client, live: w.client, evictor: w, recorder: w.recorder, clock: w.clock, options: testOptions()})
	w.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}})
	for _, zone := range []string{"a", "b", "c"} {
		for number := range 3 {
			w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", zone, number+1), Labels: map[string]string{corev1.LabelTopologyZone: zone}}})
		}
	}
	return w
}

// Request implements evictor.
func (w *world) Request(_ context.Context, pod *corev1.Pod, _, _ string) (requester.Outcome, error) {
	w.requests = append(w.requests, pod.Name)
	if w.outcome == requester.Evicted && !w.lags {
		w.delete(pod.Name)
	}
	return requester.Outcome{State: w.outcome}, nil
}

// Withdraw implements evictor.
func (w *world) Withdraw(_ context.Context, pod *corev1.Pod, _ string) error {
	w.requests = append(w.requests, "not "+pod.Name)
	return nil
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := w.client.Create(w.t.Context(), object); err != nil {
		w.t.Fatal(err)
	}
}

// change edits an object of the API server.
func change[T client.Object](w *world, object T, name string, edit func(T)) {
	w.t.Helper()
	namespace := "shop"
	switch any(object).(type) {
	case *corev1.Node, *corev1.Namespace:
		namespace = ""
	}
	err := w.client.Get(w.t.Context(), types.NamespacedName{Namespace: namespace, Name: name}, object)
	if err == nil {
		edit(object)
		err = w.client.Update(w.t.Context(), object)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) delete(pod string) {
	w.t.Helper()
	if err := w.client.Delete(w.t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: pod}}); err != nil {
		w.t.Fatal(err)
	}
}

func meta(name, uid string, owner *metav1.OwnerReference, annotations ...string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(uid), Annotations: map[string]string{}, Labels: map[string]string{"app": "web"}}
	if owner != nil {
		m.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	for i := 0; i < len(annotations); i += 2 {
		m.Annotations[annotations[i]] = annotations[i+1]
	}
	return m
}

func controlledBy(k pacing.Kind, uid string) *metav1.OwnerReference {
	return &metav1.OwnerReference{APIVersion: "apps/v1", Kind: string(k), Name: uid, UID: types.UID(uid), Controller: new(true)}
}

// deploy creates a Deployment with one ReplicaSet.
func (w *world) deploy(replicas int32, annotations ...string) {
	w.t.Helper()
	w.create(&appsv1.Deployment{ObjectMeta: meta("web", "web", nil, annotations...), Spec: appsv1.DeploymentSpec{Replicas: &replicas}})
	w.set("web-1", replicas, controlledBy(pacing.Deployment, "web"))
}

func (w *world) set(name string, replicas int32, owner *metav1.OwnerReference, annotations ...string) {
	w.t.Helper()
	w.create(&appsv1.ReplicaSet{ObjectMeta: meta(name, name, owner, annotations...), Spec: appsv1.ReplicaSetSpec{Replicas: &replicas}})
}

// pods creates ready pods of a ReplicaSet. The name of a pod is that of its node and a letter.
func (w *world) pods(set string, names ...string) {
	w.t.Helper()
	w.run(set, corev1.ConditionTrue, names)
}

// unready is like pods, but the pods are not ready.
func (w *world) unready(set string, names ...string) {
	w.t.Helper()
	w.run(set, corev1.ConditionFalse, names)
}

func (w *world) run(set string, ready corev1.ConditionStatus, names []string) {
	w.t.Helper()
	for _, name := range names {
		pod := &corev1.Pod{ObjectMeta: meta(name, set+name+fmt.Sprint(w.clock.Now().UnixNano()), controlledBy(pacing.ReplicaSet, set))}
		pod.Spec.NodeName = name[:2]
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
		w.create(pod)
	}
}

// sync syncs until no write is pending, and returns the time to the next sync.
func (w *world) sync(of workload) time.Duration {
	w.t.Helper()
	for range 20 {
		result, err := w.r.Reconcile(w.t.Context(), of)
		if err != nil {
			w.t.Fatal(err)
		}
		if result.RequeueAfter != gatherTime {
			return result.RequeueAfter
		}
	}
	w.t.Fatal("syncs do not end")
	return 0
}

// wrote compares the writes since the last check.
func (w *world) wrote(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.writes, want) {
		w.t.Errorf("writes are %q, want %q", w.writes, want)
	}
	w.writes = nil
}

func (w *world) asked(want ...string) {
	w.t.Helper()
	if !slices.Equal(w.requests, want) {
		w.t.Errorf("requested evictions are %q, want %q", w.requests, want)
	}
	w.requests = nil
}

// expectEvents compares the reasons of events since the last check.
func (w *world) expectEvents(want ...string) {
	w.t.Helper()
	var got []string
	for {
		select {
		case event := <-w.recorder.Events:
			got = append(got, strings.Fields(event)[1])
			continue
		default:
		}
		break
	}
	if !slices.Equal(got, want) {
		w.t.Errorf("events are %q, want %q", got, want)
	}
}

func (w *world) pass(d time.Duration) { w.clock.SetTime(w.clock.Now().Add(d)) }

// spread returns the input of package spread.
func (w *world) spread() []spread.Pod {
	w.t.Helper()
	c, err := w.r.read(w.t.Context(), web)
	if err != nil {
		w.t.Fatal(err)
	}
	pods, _, err := w.r.podsOf(w.t.Context(), w.r.notes.Of(web, newNotes), c)
	if err != nil {
		w.t.Fatal(err)
	}
	return pods
}
