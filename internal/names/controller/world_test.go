package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

const rack = "rack.example/name"

// world is an API server and a reconciler that works on it, a sync at a time.
type world struct {
	t          testing.TB
	client     client.WithWatch
	clock      *clocktesting.FakePassiveClock
	recorder   *events.FakeRecorder
	reconciler *reconciler
	// writes has the writes since the last check, in order.
	writes []string
	// refuse, if set, answers a write instead of the API server.
	refuse func(operation string) error
}

func testOptions() Options { return Options{Mode: All, Workers: 4, Rate: 1000, Burst: 1000} }

func newWorld(t testing.TB, objects ...client.Object) *world {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), recorder: events.NewFakeRecorder(100)}
	sent := func(operation string, object client.Object) error {
		if locator, ok := object.(*v1alpha1.PodLocator); ok {
			w.writes = append(w.writes, operation+" "+locator.Name)
			if w.refuse != nil {
				return w.refuse(operation)
			}
		}
		return nil
	}
	w.client = fake.NewClientBuilder().WithScheme(scheme).WithIndex(&corev1.Pod{}, indexNode, nodeOf).WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if err := sent("create", object); err != nil {
					return err
				}
				return c.Create(ctx, object, options...)
			},
			Update: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.UpdateOption) error {
				if err := sent("update", object); err != nil {
					return err
				}
				return c.Update(ctx, object, options...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
				if err := sent("delete", object); err != nil {
					return err
				}
				return c.Delete(ctx, object, options...)
			},
		}).Build()
	w.start(testOptions())
	return w
}

// start makes a reconciler that remembers nothing.
func (w *world) start(options Options) {
	w.reconciler = newReconciler(w.client, w.recorder, w.clock, options)
}

// sync syncs pods by their names and compares the writes.
func (w *world) sync(name string, want ...string) reconcile.Result {
	w.t.Helper()
	result, err := w.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}})
	if err != nil {
		w.t.Fatal(err)
	}
	if !slices.Equal(w.writes, want) {
		w.t.Errorf("wrote %q, want %q", w.writes, want)
	}
	w.writes = nil
	return result
}

// wantLocator compares the PodLocator of a pod with its addresses, node and labels, empty for none.
func (w *world) wantLocator(name, want string) {
	w.t.Helper()
	locator, err := read(context.Background(), w.client, types.NamespacedName{Namespace: "shop", Name: name}, &v1alpha1.PodLocator{})
	if err != nil {
		w.t.Fatal(err)
	}
	got := ""
	if locator != nil {
		var labels []string
		for key, value := range locator.NodeLabels {
			labels = append(labels, key[strings.LastIndex(key, "/")+1:]+"="+value)
		}
		slices.Sort(labels)
		got = fmt.Sprintf("%s on %s: %s", strings.Join(locator.IPs, " "), locator.NodeName, strings.Join(labels, " "))
	}
	if got != want {
		w.t.Errorf("%s: the PodLocator says %q, want %q", name, got, want)
	}
}

func (w *world) make(object client.Object) {
	w.t.Helper()
	if err := w.client.Create(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
	w.writes = nil
}

func (w *world) update(object client.Object) {
	w.t.Helper()
	if pod, ok := object.(*corev1.Pod); ok {
		if err := w.client.Status().Update(context.Background(), pod.DeepCopy()); err != nil {
			w.t.Fatal(err)
		}
		pod.ResourceVersion = "" // the latest
	}
	if err := w.client.Update(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
	w.writes = nil
}

func (w *world) remove(object client.Object) {
	w.t.Helper()
	if err := w.client.Delete(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
	w.writes = nil
}

func (w *world) locator(name string) *v1alpha1.PodLocator {
	w.t.Helper()
	locator := &v1alpha1.PodLocator{}
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: "shop", Name: name}, locator); err != nil {
		w.t.Fatal(err)
	}
	return locator
}

// events returns the events since the last call.
func (w *world) events() []string {
	var list []string
	for {
		select {
		case e := <-w.recorder.Events:
			list = append(list, e)
		default:
			return list
		}
	}
}

func aNode(name, zone string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.Zone: zone, rack: "r1", "other": "x"}},
		Spec:       corev1.NodeSpec{PodCIDRs: []string{"10.1.0.0/24", "fd00:1::/64"}},
	}
}

// podCreated is the creation time of all pods.
var podCreated = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)

// aPod is a pod on a node, or on none if that is empty.
func aPod(name, node string, ips ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(podCreated)},
		Spec:       corev1.PodSpec{NodeName: node},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, ip := range ips {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: ip})
	}
	return pod
}
