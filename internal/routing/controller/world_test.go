package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// world is a fake API server, a clock and a reconciler.
type world struct {
	t          testing.TB
	client     client.WithWatch
	clock      *clocktesting.FakePassiveClock
	recorder   *events.FakeRecorder
	reconciler *reconciler
	// patches are the patches that were sent, each as "TYPE NAME BODY".
	patches []string
	// refuse, if set, can refuse a patch or, with an empty body, a creation.
	refuse func(object client.Object, body string) error
	// drop, if set, changes the stored form of a patched object, as a mutating webhook does.
	drop func(object client.Object)
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return scheme
}

func testOptions() Options {
	return Options{Settings: routing.DefaultSettings(), Exclusion: intent.Exclusion{Own: "vicinity", Namespaces: intent.DefaultExcluded()}, Workers: 1, TopServices: 2, MarkServices: MarkAuto}
}

func newWorld(t testing.TB, objects ...client.Object) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakePassiveClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)), recorder: events.NewFakeRecorder(1000)}
	w.client = fake.NewClientBuilder().
		WithScheme(testScheme(t)).
		WithStatusSubresource(&corev1.Service{}, &v1alpha1.RoutingPolicy{}, &v1alpha1.ClusterRoutingPolicy{}, &v1alpha1.ZoneShift{}).
		WithIndex(&discoveryv1.EndpointSlice{}, indexSliceService, byLabel(discoveryv1.LabelServiceName)).
		WithIndex(&v1alpha1.EndpointGroup{}, indexGroupService, byLabel(v1alpha1.LabelService)).
		WithObjects(objects...).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
				if w.refuse != nil {
					if err := w.refuse(object, ""); err != nil {
						return err
					}
				}
				return c.Create(ctx, object, options...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
				if err := w.record("", object, patch); err != nil {
					return err
				}
				if err := c.Patch(ctx, object, patch, options...); err != nil || w.drop == nil {
					return err
				}
				w.drop(object)
				return c.Update(ctx, object)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
				if err := w.record("/"+sub, object, patch); err != nil {
					return err
				}
				return c.SubResource(sub).Patch(ctx, object, patch, options...)
			},
		}).
		Build()
	w.start(testOptions())
	return w
}

// start replaces the reconciler by one without memory, as a restart does.
func (w *world) start(options Options) {
	w.reconciler = newReconciler(w.client, w.recorder, w.clock, options)
}

func (w *world) record(sub string, object client.Object, patch client.Patch) error {
	body, err := patch.Data(object)
	if err != nil {
		return err
	}
	if w.refuse != nil {
		if err := w.refuse(object, string(body)); err != nil {
			return err
		}
	}
	w.patches = append(w.patches, fmt.Sprintf("%T%s %s %s", object, sub, object.GetName(), body))
	return nil
}

func (w *world) sync(name string) reconcile.Result {
	w.t.Helper()
	namespace, name, found := strings.Cut(name, "/")
	if !found {
		namespace, name = "shop", namespace
	}
	result, err := w.reconciler.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}})
	if err != nil {
		w.t.Fatal(err)
	}
	return result
}

// settle syncs a Service until it asks for no sync within an hour. After each sync it copies labels to slices.
func (w *world) settle(name string) {
	w.t.Helper()
	for range 50 {
		result := w.sync(name)
		w.copyLabel(name)
		if result.RequeueAfter == 0 {
			return
		}
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	w.t.Fatal("the Service does not come to rest")
}

// copyLabel copies labels of a Service to its slices, as Kubernetes' controller does.
func (w *world) copyLabel(name string) {
	w.t.Helper()
	service := w.service(name)
	for _, slice := range w.slices(name) {
		value, routed := service.Labels[v1alpha1.LabelRouted]
		if slice.Labels[v1alpha1.LabelRouted] == value {
			continue
		}
		delete(slice.Labels, v1alpha1.LabelRouted)
		if routed {
			slice.Labels[v1alpha1.LabelRouted] = value
		}
		w.update(slice)
	}
}

func (w *world) update(object client.Object) {
	w.t.Helper()
	if err := w.client.Update(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) service(name string) *corev1.Service {
	w.t.Helper()
	service := new(corev1.Service)
	if err := w.client.Get(context.Background(), types.NamespacedName{Namespace: "shop", Name: name}, service); err != nil {
		w.t.Fatal(err)
	}
	return service
}

func (w *world) slices(name string) []*discoveryv1.EndpointSlice {
	w.t.Helper()
	var list discoveryv1.EndpointSliceList
	if err := w.client.List(context.Background(), &list, client.MatchingFields{indexSliceService: name}); err != nil {
		w.t.Fatal(err)
	}
	return shell.Pointers(list.Items)
}

// hints returns the hinted zones of all endpoints of the Service web, slice by slice.
func (w *world) hints() string {
	w.t.Helper()
	var parts []string
	for _, slice := range w.slices("web") {
		var words []string
		for _, e := range slice.Endpoints {
			word := "-"
			if e.Hints != nil {
				var zones []string
				for _, zone := range e.Hints.ForZones {
					zones = append(zones, zone.Name)
				}
				word = strings.Join(zones, "+")
			}
			words = append(words, word)
		}
		parts = append(parts, strings.Join(words, " "))
	}
	return strings.Join(parts, " | ")
}

// removeHints removes all hints of the Service web, as Kubernetes' controller does.
func (w *world) removeHints() {
	w.t.Helper()
	for _, slice := range w.slices("web") {
		for i := range slice.Endpoints {
			slice.Endpoints[i].Hints = nil
		}
		w.update(slice)
	}
}

// newEvents returns the events since the last call.
func (w *world) newEvents() []string {
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

// takePatches returns the patches since the last call.
func (w *world) takePatches() []string {
	patches := w.patches
	w.patches = nil
	return patches
}

// recordOfWeb returns what the reconciler remembers of the Service "web".
func (w *world) recordOfWeb() *record {
	w.t.Helper()
	record, _ := w.reconciler.memory.record(client.ObjectKeyFromObject(w.service("web")))
	return record
}

func (w *world) condition() *metav1.Condition {
	w.t.Helper()
	return routing.ConditionOf(w.service("web"))
}

func aNode(name, zone string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.Zone: zone, topology.Hostname: name}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
		},
	}
}

// threeZones returns a node in each of the zones a, b and c.
func threeZones() []client.Object {
	return []client.Object{aNode("a-1", "a"), aNode("b-1", "b"), aNode("c-1", "c")}
}

// aService takes annotations as key and value in turn.
func aService(name string, annotations ...string) *corev1.Service {
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Annotations: map[string]string{}},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.0.0.1", Selector: map[string]string{"app": name}},
	}
	for i := 0; i+1 < len(annotations); i += 2 {
		service.Annotations[annotations[i]] = annotations[i+1]
	}
	return service
}

func preferring(name string) *corev1.Service {
	return aService(name, v1alpha1.AnnotationSameZone, v1alpha1.Prefer)
}

// aSlice has an endpoint for each word: its zone, and after "=" its hinted zones.
func aSlice(service string, number int, zones string) *discoveryv1.EndpointSlice {
	port, name := int32(80), "http"
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: fmt.Sprintf("%s-%02d", service, number),
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: v1alpha1.ManagedByKubernetes},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
	}
	ready := true
	for i, word := range strings.Fields(zones) {
		zone, hints, hinted := strings.Cut(word, "=")
		node := zone + "-1"
		e := discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", number+1, i/200, i%200+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready},
			NodeName:   &node, Zone: &zone,
		}
		if hinted {
			e.Hints = &discoveryv1.EndpointHints{}
			for _, zone := range strings.Split(hints, "+") {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
			}
		}
		slice.Endpoints = append(slice.Endpoints, e)
	}
	return slice
}

const twelve = "a a a a b b b b c c c c"

// patchPaths returns the operations and paths of a recorded JSON patch.
func patchPaths(t testing.TB, sent string) []string {
	t.Helper()
	var operations []shell.Operation
	_, body, _ := strings.Cut(sent, "[")
	if err := json.Unmarshal([]byte("["+body), &operations); err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, o := range operations {
		list = append(list, o.Op+" "+o.Path)
	}
	return list
}

func patchesOf(sent []string, kind string) []string {
	return slices.DeleteFunc(slices.Clone(sent), func(s string) bool { return !strings.HasPrefix(s, kind+" ") })
}
