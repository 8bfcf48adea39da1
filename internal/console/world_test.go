package console

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
)

// hostile would run a script wherever it is not escaped.
const hostile = `</title></style></script><script>alert(1)</script><img src=x onerror=alert(1)>"'{{.}}`

// fakeAnswers implements Cluster.
type fakeAnswers struct {
	mu         sync.Mutex
	traffic    func(asked int) []inspect.ProxyReading // nil without proxies
	trafficErr error
	asked      int
	name       *inspect.NameExplanation
	nameErr    error
	from       string
	complete   func(*inspect.Explanation) error
}

func (f *fakeAnswers) ExplainName(_ context.Context, name, from string) (*inspect.NameExplanation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.from = from
	if f.nameErr != nil || f.name == nil {
		return nil, cmp.Or(f.nameErr, fmt.Errorf("no name %q", name))
	}
	return f.name, nil
}

func (f *fakeAnswers) Traffic(context.Context) ([]inspect.ProxyReading, []string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked++
	if f.traffic == nil {
		return nil, nil, cmp.Or(f.trafficErr, errors.New("vicinity-proxy is not installed"))
	}
	return f.traffic(f.asked), nil, nil
}

func (f *fakeAnswers) Complete(_ context.Context, e *inspect.Explanation, _ *corev1.Service) ([]string, error) {
	if f.complete == nil {
		return nil, nil
	}
	return nil, f.complete(e)
}

// world is a console of a fake cluster.
type world struct {
	*console
	typed   *fake.Clientset
	dynamic *dynamicfake.FakeDynamicClient
	answers *fakeAnswers
	server  *httptest.Server
	cookie  *http.Cookie
}

const token = "the-token"

var ownKinds = map[string]string{
	"routingpolicies": "RoutingPolicy", "clusterroutingpolicies": "ClusterRoutingPolicy", "zoneshifts": "ZoneShift", "endpointgroups": "EndpointGroup",
	"topologydisruptionbudgets": "TopologyDisruptionBudget", "domainrollouts": "DomainRollout",
}

// newWorld makes a console that does not read the cluster yet.
func newWorld(t testing.TB, objects ...runtime.Object) *world {
	t.Helper()
	var typed, own []runtime.Object
	for _, object := range objects {
		kind := object.GetObjectKind().GroupVersionKind()
		if kind.Group != v1alpha1.GroupVersion.Group {
			typed = append(typed, object)
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
		if err != nil {
			t.Fatal(err)
		}
		own = append(own, &unstructured.Unstructured{Object: content})
	}
	lists := map[schema.GroupVersionResource]string{}
	for plural, kind := range ownKinds {
		lists[v1alpha1.GroupVersion.WithResource(plural)] = kind + "List"
	}
	w := &world{
		typed: fake.NewClientset(typed...), dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), lists, own...),
		answers: &fakeAnswers{},
	}
	return w
}

// start lets the console read the cluster and serve.
func (w *world) start(t testing.TB) *world {
	t.Helper()
	w.console = newConsole(Options{Typed: w.typed, Dynamic: w.dynamic, Cluster: w.answers, Server: "https://cluster.test", TrafficEvery: 20 * time.Millisecond})
	w.server = httptest.NewServer(newAccess(w.routes(), token, "1"))
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		w.server.CloseClientConnections()
		w.server.Close()
		<-done
	})
	answer := w.raw(t, http.MethodGet, "/?token="+token, nil)
	w.cookie = answer.Cookies()[0]
	w.eventually(t, "all is read", func() bool { return len(w.watcher.newest.Load().waiting) == 0 })
	return w
}

// eventually waits until a condition is true.
func (w *world) eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !so() {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// raw sends a request of a browser that was just opened.
func (w *world) raw(t testing.TB, method, path string, change func(*http.Request)) *http.Response {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, w.server.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.cookie != nil {
		request.AddCookie(w.cookie)
	}
	if change != nil {
		change(request)
	}
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = answer.Body.Close() })
	return answer
}

// get returns the text of a page.
func (w *world) get(t testing.TB, path string, status int) string {
	t.Helper()
	answer := w.raw(t, http.MethodGet, path, nil)
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	if answer.StatusCode != status {
		t.Fatalf("GET %s: %s, want %d: %s", path, answer.Status, status, text)
	}
	return string(text)
}

// read reads a view as JSON.
func read[V any](t testing.TB, w *world, path string) (v V, about about) {
	t.Helper()
	whole := struct {
		About *aboutAlias `json:"about"`
		View  *V          `json:"view"`
	}{&about, &v}
	if err := json.Unmarshal([]byte(w.get(t, apiPrefix+path, http.StatusOK)), &whole); err != nil {
		t.Fatalf("GET %s: %v", path, err)
	}
	return v, about
}

// aboutAlias names the type where a result hides it.
type aboutAlias = about

// holds fails unless a page has all texts.
func holds(t testing.TB, page string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			t.Errorf("%q is missing in\n%s", text, page)
		}
	}
}

// refuse makes the cluster answer requests for a resource with an error.
func (w *world) refuse(resource string, err error) {
	w.typed.PrependReactor("list", resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	w.typed.PrependWatchReactor(resource, func(kubetesting.Action) (bool, watch.Interface, error) { return true, nil, err })
	w.dynamic.PrependReactor("list", resource, func(kubetesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	w.dynamic.PrependWatchReactor(resource, func(kubetesting.Action) (bool, watch.Interface, error) { return true, nil, err })
}

func forbidden(resource string) error {
	return apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no role allows it"))
}

func aNode(name, zone string, ready bool) *corev1.Node {
	status := corev1.ConditionTrue
	if !ready {
		status = corev1.ConditionFalse
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: "north"}},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status, LastTransitionTime: metav1.Unix(1700000000, 0)}},
			Addresses:   []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.7"}},
		},
	}
}

func aService(namespace, name string, annotations map[string]string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.1", Selector: map[string]string{"app": name}, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol}},
	}
}

// aSlice has an endpoint on each node, in the zone that its name begins with.
func aSlice(namespace, service string, nodes ...string) *discoveryv1.EndpointSlice {
	name, port, protocol := "http", int32(80), corev1.ProtocolTCP
	slice := &discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: service + "-1", Labels: map[string]string{
			discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
		}},
		AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &name, Port: &port, Protocol: &protocol}},
	}
	for i, node := range nodes {
		zone := strings.Split(node, "-")[0]
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: &node, Zone: &zone,
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: fmt.Sprintf("%s-%d", service, i)},
		})
	}
	return slice
}

func aController() *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: "vicinity-controller", Labels: map[string]string{
			"app.kubernetes.io/part-of": "vicinity", "app.kubernetes.io/component": "controller",
		}},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1},
	}
}

func aLease(node string, age time.Duration) *coordinationv1.Lease {
	renewed := metav1.NewMicroTime(time.Now().Add(-age))
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity-system", Name: "vicinity-proxy-" + node, Labels: map[string]string{v1alpha1.LabelProxyLease: "true"}},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &node, RenewTime: &renewed},
	}
}

func ownMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind}
}

var prefer = map[string]string{v1alpha1.AnnotationSameZone: v1alpha1.Prefer}

// aCluster has three zones with two nodes each, and Services.
func aCluster(more ...runtime.Object) []runtime.Object {
	headless := aService("data", "db", prefer)
	headless.Spec.ClusterIP = corev1.ClusterIPNone
	return append([]runtime.Object{
		aController(),
		aNode("a-1", "a", true), aNode("a-2", "a", true), aNode("b-1", "b", true), aNode("b-2", "b", false), aNode("c-1", "c", true), aNode("c-2", "c", true),
		aLease("a-1", 0), aLease("a-2", time.Hour),
		aService("shop", "web", prefer), aSlice("shop", "web", "a-1", "a-2", "b-1", "b-1", "c-1", "c-2"),
		aService("shop", "plain", nil), aSlice("shop", "plain", "a-1"),
		headless, aSlice("data", "db", "a-1", "b-1"),
	}, more...)
}

// notInstalled is the answer for kinds without CRDs.
var notInstalled = apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonNotFound, Code: 404, Message: "the server could not find the requested resource"}}
