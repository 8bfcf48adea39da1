package endpointslice

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/routing/hints"
	"vicinity.dev/vicinity/internal/routing/intent"
)

const (
	upstreamUser   = "system:serviceaccount:kube-system:endpointslice-controller"
	controllerUser = "system:serviceaccount:vicinity-system:vicinity-controller"
)

// known is a cache of the siblings that a test knows.
type known struct {
	client.Reader
	slices []*discoveryv1.EndpointSlice
	err    error
}

func (k *known) List(_ context.Context, list client.ObjectList, options ...client.ListOption) error {
	var asked client.ListOptions
	asked.ApplyOptions(options)
	service, _ := asked.FieldSelector.RequiresExactMatch(serviceIndex)
	found := list.(*discoveryv1.EndpointSliceList)
	for _, s := range k.slices {
		if s.Namespace == asked.Namespace && s.Labels[discoveryv1.LabelServiceName] == service {
			found.Items = append(found.Items, *s)
		}
	}
	return k.err
}

func testHandler(t testing.TB, s client.Reader) (http.Handler, *prometheus.Registry) {
	return chosenHandler(t, s, intent.Exclusion{Own: "vicinity-system", Namespaces: intent.DefaultExcluded()})
}

func chosenHandler(t testing.TB, s client.Reader, alone intent.Exclusion) (http.Handler, *prometheus.Registry) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := admission.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	o := Options{User: controllerUser, Exclusion: alone, Metrics: metrics}
	return admission.New(newJudge(o, s), admissionOptions(o)), registry
}

// results returns the number of requests by result.
func results(t testing.TB, registry *prometheus.Registry) map[string]int {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counted := map[string]int{}
	for _, f := range families {
		if f.GetType() != dto.MetricType_COUNTER {
			continue
		}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "result" {
					counted[l.GetValue()] += int(m.GetCounter().GetValue())
				}
			}
		}
	}
	return counted
}

// ep reads an endpoint such as "10.0.0.1 a >a,b": its address and zone, and after ">" its hinted zones. The node follows
// from the zone. A "!" before the address makes the endpoint unready.
func ep(text string) discoveryv1.Endpoint {
	place, hinting, hinted := strings.Cut(text, " >")
	address, zone, zoned := strings.Cut(place, " ")
	ready := !strings.HasPrefix(address, "!")
	address = strings.TrimPrefix(address, "!")
	e := discoveryv1.Endpoint{
		Addresses:  []string{address},
		Conditions: discoveryv1.EndpointConditions{Ready: &ready},
		TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "cart-" + address, UID: "4711"},
	}
	if zoned {
		node := "node-" + zone
		e.NodeName, e.Zone = &node, &zone
	}
	if hinted {
		e.Hints = &discoveryv1.EndpointHints{}
		for zone := range strings.SplitSeq(hinting, ",") {
			if strings.HasPrefix(zone, "node-") || zone == hints.NoNode {
				e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: zone})
			} else {
				e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: zone})
			}
		}
	}
	return e
}

// aSlice returns a slice of a routed Service.
func aSlice(name string, endpoints ...string) *discoveryv1.EndpointSlice {
	port, protocol, written := int32(8080), corev1.ProtocolTCP, metav1.Unix(1_700_000_000, 0)
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "shop", UID: "1", ResourceVersion: "7", Generation: 3,
			Labels: map[string]string{
				v1alpha1.LabelRouted: "true", discoveryv1.LabelServiceName: "cart",
				discoveryv1.LabelManagedBy: "endpointslice-controller.k8s.io",
			},
			Annotations: map[string]string{corev1.EndpointsLastChangeTriggerTime: "2026-01-01T00:00:00Z"},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "discovery.k8s.io/v1",
				Time: &written, FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:endpoints":{},"f:ports":{}}`),
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Port: &port, Protocol: &protocol}},
	}
	for _, text := range endpoints {
		s.Endpoints = append(s.Endpoints, ep(text))
	}
	return s
}

// ask describes an admission request.
type ask struct {
	operation      admissionv1.Operation
	user           string
	object, stored *discoveryv1.EndpointSlice
	change         func(*admissionv1.AdmissionRequest)
}

func (a ask) review(t testing.TB) []byte {
	t.Helper()
	request := &admissionv1.AdmissionRequest{
		UID: "705ab4f5", Operation: a.operation, UserInfo: authenticationv1.UserInfo{Username: a.user},
		Resource: metav1.GroupVersionResource{Group: "discovery.k8s.io", Version: "v1", Resource: "endpointslices"},
	}
	raw := func(s *discoveryv1.EndpointSlice) runtime.RawExtension {
		if s == nil {
			return runtime.RawExtension{}
		}
		request.Namespace, request.Name = s.Namespace, s.Name
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return runtime.RawExtension{Raw: text}
	}
	request.OldObject, request.Object = raw(a.stored), raw(a.object)
	if a.change != nil {
		a.change(request)
	}
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// answer sends a review, expects it to be allowed, and returns the patch.
func answer(t testing.TB, h http.Handler, review []byte) []byte {
	t.Helper()
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, Path+"?timeout=1s", bytes.NewReader(review)))
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
		t.Fatalf("the answer %q is not JSON: %v", recorder.Body, err)
	}
	if recorder.Code != http.StatusOK || got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" || got.Response == nil || !got.Response.Allowed {
		t.Fatalf("the answer is %d, %s; want the request allowed", recorder.Code, recorder.Body)
	}
	if (got.Response.PatchType != nil) != (got.Response.Patch != nil) {
		t.Fatalf("the answer %s has a patch without its type, or a type without its patch", recorder.Body)
	}
	return got.Response.Patch
}

// patched applies a patch to an object.
func patched(t testing.TB, object, patch []byte) []byte {
	t.Helper()
	if patch == nil {
		return object
	}
	decoded, err := jsonpatch.DecodePatch(patch)
	if err != nil {
		t.Fatalf("the patch %s cannot be read: %v", patch, err)
	}
	text, err := decoded.Apply(object)
	if err != nil {
		t.Fatalf("the patch %s does not apply: %v", patch, err)
	}
	return text
}

// admitted returns the object of a request with the webhook's patch.
func admitted(t testing.TB, h http.Handler, a ask) *discoveryv1.EndpointSlice {
	t.Helper()
	text, err := json.Marshal(a.object)
	if err != nil {
		t.Fatal(err)
	}
	var got discoveryv1.EndpointSlice
	if err := json.Unmarshal(patched(t, text, answer(t, h, a.review(t))), &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

// hintsOf returns the hints of all endpoints in the form of ep, "-" for none.
func hintsOf(s *discoveryv1.EndpointSlice) string {
	var texts []string
	for _, e := range s.Endpoints {
		var names []string
		if e.Hints != nil {
			for _, zone := range e.Hints.ForZones {
				names = append(names, zone.Name)
			}
			for _, node := range e.Hints.ForNodes {
				names = append(names, node.Name)
			}
		}
		if len(names) == 0 {
			names = []string{"-"}
		}
		texts = append(texts, strings.Join(names, ","))
	}
	return strings.Join(texts, " ")
}

// rewritten returns a slice as upstream rewrites it: without hints, and with a new time in its managed fields.
func rewritten(s *discoveryv1.EndpointSlice) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	s.Annotations = map[string]string{}
	later := metav1.Unix(1_700_000_009, 0)
	s.ManagedFields[0].Time = &later
	for i := range s.Endpoints {
		s.Endpoints[i].Hints = nil
	}
	return s
}

func with(s *discoveryv1.EndpointSlice, change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
	s = s.DeepCopy()
	change(s)
	return s
}

func unready(i int) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) { s.Endpoints[i].Conditions.Ready = new(bool) }
}

func replaced(endpoints ...string) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) { s.Endpoints = aSlice("", endpoints...).Endpoints }
}

func labelled(labels ...string) func(*discoveryv1.EndpointSlice) {
	return func(s *discoveryv1.EndpointSlice) {
		delete(s.Labels, v1alpha1.LabelRouted)
		for _, label := range labels {
			key, value, _ := strings.Cut(label, "=")
			s.Labels[key] = value
		}
	}
}

const out = hints.NoZone + "," + hints.NoNode

const gardener = v1alpha1.LabelOwnZone + "=true"

func TestHints(t *testing.T) {
	plan := aSlice("cart-1", "10.0.0.1 a >a,b", "10.0.0.2 b >b", "!10.0.0.3 c >c")
	none := aSlice("cart-1", "10.0.0.1 a", "10.0.0.2 b", "10.0.0.3 c")
	empty := aSlice("cart-1")
	for _, test := range []struct {
		name           string
		object, stored *discoveryv1.EndpointSlice
		others         []*discoveryv1.EndpointSlice
		failure        error
		want           string
		result         admission.Result
	}{
		{name: "stripped", object: rewritten(plan), stored: plan, want: "a,b b c", result: admission.Restored},
		{
			name: "set to another opinion", stored: plan, want: "a,b b c", result: admission.Restored,
			object: with(rewritten(plan), replaced("10.0.0.1 a >a", "10.0.0.2 b >b", "!10.0.0.3 c")),
		},
		{name: "an endpoint changes", object: with(rewritten(plan), unready(0)), stored: plan, want: "a,b b c", result: admission.Changed},
		{name: "written with its hints", object: plan, stored: plan, want: "a,b b c", result: admission.Unchanged},
		{name: "an endpoint goes", object: with(rewritten(plan), replaced("10.0.0.2 b", "!10.0.0.3 c")), stored: plan, want: "b c", result: admission.Changed},
		{name: "another order", object: with(rewritten(plan), replaced("!10.0.0.3 c", "10.0.0.2 b", "10.0.0.1 a")), stored: plan, want: "c b a,b", result: admission.Changed},
		{name: "all go", object: with(rewritten(plan), replaced()), stored: plan, want: "", result: admission.Unchanged},
		{
			name: "an endpoint is new", stored: plan, want: "a,b b c b", result: admission.Changed,
			object: with(rewritten(plan), replaced("10.0.0.1 a", "10.0.0.2 b", "!10.0.0.3 c", "!10.0.0.4 b")),
		},
		{
			name: "new ones in a zone out of service, and in one with an endpoint that is not", result: admission.Changed,
			stored: aSlice("cart-1", "10.0.0.1 a >"+out, "10.0.0.2 b >a,b", "10.0.0.3 c >"+out, "10.0.0.4 c >a,b"), want: out + " a,b " + out + " a,b " + out + " c",
			object: with(rewritten(plan), replaced("10.0.0.1 a", "10.0.0.2 b", "10.0.0.3 c", "10.0.0.4 c", "10.0.0.5 a", "10.0.0.6 c")),
		},
		{
			name: "a new one has no zone", stored: plan, want: "a,b -", result: admission.Changed,
			object: with(rewritten(plan), replaced("10.0.0.1 a", "10.0.0.4")),
		},
		{
			name: "a new one has no zone that can be a hint", stored: plan, want: "a,b -", result: admission.Changed,
			object: with(rewritten(plan), replaced("10.0.0.1 a", `10.0.0.4 zone"`)),
		},
		{name: "all are new", object: with(rewritten(plan), replaced("10.0.0.8 c")), stored: plan, want: "c", result: admission.Changed},
		{name: "an endpoint moves to another zone", object: with(rewritten(plan), replaced("10.0.0.1 c")), stored: plan, want: "c", result: admission.Changed},
		{
			name: "nodes", stored: aSlice("cart-1", "10.0.0.1 a >a,node-a", "10.0.0.2 b >b,node-b"), want: "a,node-a c,node-c", result: admission.Changed,
			object: with(rewritten(plan), replaced("10.0.0.1 a", "10.0.0.3 c")),
		},
		{
			name: "stripped of nodes alone", stored: aSlice("cart-1", "10.0.0.1 a >node-a,node-x"), want: "node-a,node-x", result: admission.Restored,
			object: rewritten(aSlice("cart-1", "10.0.0.1 a")),
		},
		{
			name: "a new one on a node that is skipped", stored: aSlice("cart-1", "10.0.0.1 a >a,node-none", "10.0.0.2 b >b,node-b"),
			want: "a,node-none b,node-b a,node-none", result: admission.Changed,
			object: aSlice("cart-1", "10.0.0.1 a", "10.0.0.2 b", "10.0.0.4 a"),
		},
		{
			name: "a new one beside one that another zone uses", stored: aSlice("cart-1", "10.0.0.1 a >b,node-none", "10.0.0.2 b >b,node-b"),
			want: "b,node-none b,node-b a,node-a", result: admission.Changed,
			object: aSlice("cart-1", "10.0.0.1 a", "10.0.0.2 b", "10.0.0.4 a"),
		},
		{
			name: "a new one on a node that is skipped, by another slice", stored: aSlice("cart-1", "10.0.0.2 b >b,node-b"),
			want: "b,node-b a,node-none", result: admission.Changed,
			object: aSlice("cart-1", "10.0.0.2 b", "10.0.0.4 a"),
			others: []*discoveryv1.EndpointSlice{aSlice("cart-3", "10.0.0.1 a >a,node-none")},
		},
		{
			name: "an address on another node", object: aSlice("cart-1", "10.0.0.1 a"), want: "a,node-a", result: admission.Changed,
			stored: with(aSlice("cart-1", "10.0.0.1 a >a,node-x"), func(s *discoveryv1.EndpointSlice) { *s.Endpoints[0].NodeName = "node-x" }),
		},
		{name: "balanced", object: rewritten(none), stored: none, want: "- - -", result: admission.Unchanged},
		{
			name: "balanced against another opinion", stored: none, want: "- - -", result: admission.Restored,
			object: with(none, replaced("10.0.0.1 a >a", "10.0.0.2 b >b", "10.0.0.3 c >c")),
		},
		{name: "first endpoints", object: none, stored: empty, want: "- - -", result: admission.Unchanged},
		{
			name: "a slice that stands beside others", object: with(none, replaced("10.0.0.1 a", "10.0.0.2 b")), stored: empty, want: "b a", result: admission.Changed,
			others: []*discoveryv1.EndpointSlice{aSlice("cart-2", "10.0.0.1 a >b", "10.0.0.2 b >a")},
		},
		{
			name: "a new slice of a balanced Service", object: with(none, replaced("10.0.0.1 a >a", "10.0.0.2 b")), want: "- -", result: admission.Changed,
			others: []*discoveryv1.EndpointSlice{aSlice("cart-2", "10.0.0.9 a")},
		},
		{
			name: "a new slice of a hinted Service", object: none, want: "a,b b c", result: admission.Changed,
			others: []*discoveryv1.EndpointSlice{aSlice("cart-2", "10.0.0.8 a"), aSlice("cart-3", "10.0.0.1 a >a,b", "10.0.0.2 a >c")},
		},
		{
			name: "slices of others", object: none, want: "- - -", result: admission.Unchanged,
			others: []*discoveryv1.EndpointSlice{
				with(aSlice("cart-2", "10.0.0.1 a >b"), func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 }),
				with(aSlice("cart-3", "10.0.0.1 a >b"), func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "cart-of-others" }),
			},
		},
		{
			name: "siblings cannot be found", object: with(rewritten(plan), replaced("10.0.0.1 a", "10.0.0.4 b")), stored: plan, want: "a,b b", result: admission.Degraded,
			failure: errors.New("not now"),
		},
		{name: "siblings of a new slice cannot be found", object: none, want: "- - -", result: admission.Degraded, failure: errors.New("not now")},
		{
			name: "stored hints beyond what is allowed", object: with(rewritten(plan), replaced("10.0.0.1 a")), want: "-", result: admission.Unchanged,
			stored: aSlice("cart-1", "10.0.0.1 a >1,2,3,4,5,6,7,8,9"),
		},
		{
			name: "a user's annotation", stored: plan, want: "a,b b c", result: admission.Changed,
			object: with(rewritten(plan), func(s *discoveryv1.EndpointSlice) { s.Annotations["note"] = "mine" }),
		},
		{name: "routed no more", object: with(rewritten(plan), labelled()), stored: plan, want: "- - -", result: admission.Skipped},
		{name: "routed from now on", object: rewritten(plan), stored: with(plan, labelled()), want: "a,b b c", result: admission.Changed},
		{name: "own zones", object: with(none, labelled(gardener)), want: "a b c", result: admission.Changed},
		{
			name: "own zones instead of others", want: "a b c -", result: admission.Changed,
			object: with(aSlice("cart-1", "10.0.0.1 a >b,c", "!10.0.0.2 b", "10.0.0.3 c >a", "10.0.0.4"), labelled(gardener)),
		},
		{
			name: "own zones keep nodes", want: "a,node-x", result: admission.Changed,
			object: with(aSlice("cart-1", "10.0.0.1 a >b,node-x"), labelled(gardener)),
		},
		{
			name: "own zones stripped", want: "a c", result: admission.Restored,
			object: rewritten(with(aSlice("cart-1", "10.0.0.1 a", "10.0.0.3 c"), labelled(gardener))),
			stored: with(aSlice("cart-1", "10.0.0.1 a >a", "10.0.0.3 c >c"), labelled(gardener)),
		},
		{
			name: "own zones not asked for", want: "-", result: admission.Skipped,
			object: with(aSlice("cart-1", "10.0.0.1 a"), labelled(v1alpha1.LabelOwnZone+"=false")),
		},
		{
			name: "own zones of a routed Service", want: "a,b b c", result: admission.Restored,
			object: with(rewritten(plan), labelled(gardener, v1alpha1.LabelRouted+"=true")),
			stored: with(plan, labelled(gardener, v1alpha1.LabelRouted+"=true")),
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, registry := testHandler(t, &known{slices: test.others, err: test.failure})
			a := ask{operation: admissionv1.Create, user: upstreamUser, object: test.object, stored: test.stored}
			if test.stored != nil {
				a.operation = admissionv1.Update
			}
			got := admitted(t, h, a)
			if hints := hintsOf(got); hints != test.want {
				t.Errorf("the hints are %s, want %s", hints, test.want)
			}
			if counted := results(t, registry); counted[string(test.result)] != 1 {
				t.Errorf("counted %v, want one %s", counted, test.result)
			}
			want := test.object
			if test.result == admission.Restored {
				want = test.stored
			}
			for i := range got.Endpoints {
				got.Endpoints[i].Hints = want.Endpoints[i].Hints
			}
			if !equality.Semantic.DeepEqual(got, want) {
				t.Errorf("beyond the hints the object is\n%+v, want\n%+v", got, want)
			}
		})
	}
}

// A field that this version of the API does not know stays, and so does its manager.
func TestUnknownFieldsStay(t *testing.T) {
	stored := aSlice("cart-1", "10.0.0.1 a >a,b")
	var object []byte
	review := ask{
		operation: admissionv1.Update, user: upstreamUser, object: rewritten(stored), stored: stored,
		change: func(r *admissionv1.AdmissionRequest) {
			object = bytes.Replace(r.Object.Raw, []byte(`"zone":"a"`), []byte(`"zone":"a","rank":7`), 1)
			r.Object.Raw = object
		},
	}.review(t)
	h, _ := testHandler(t, &known{})
	got := patched(t, object, answer(t, h, review))
	for _, want := range []string{`"rank":7`, `"forZones":[{"name":"a"},{"name":"b"}]`, `"time":"2023-11-14T22:13:29Z"`} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("the object is %s, want it to have %s", got, want)
		}
	}
}

func TestOthersAreLeftAlone(t *testing.T) {
	stored := aSlice("cart-1", "10.0.0.1 a >a,b")
	for _, test := range []struct {
		name   string
		user   string
		change func(*admissionv1.AdmissionRequest)
		slice  func(*discoveryv1.EndpointSlice)
	}{
		{name: "the controller", user: controllerUser},
		{name: "its own namespace", change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "vicinity-system" }},
		{name: "kube-system", change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "kube-system" }},
		{name: "a deletion", change: func(r *admissionv1.AdmissionRequest) {
			r.Operation, r.Object = admissionv1.Delete, runtime.RawExtension{}
		}},
		{name: "a connection", change: func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Connect }},
		{name: "a part", change: func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }},
		{name: "names", slice: func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN }},
		{
			name:   "the API server's Service",
			change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "default" },
			slice:  func(s *discoveryv1.EndpointSlice) { s.Labels[discoveryv1.LabelServiceName] = "kubernetes" },
		},
		{name: "the API server's slice", change: func(r *admissionv1.AdmissionRequest) { r.Namespace, r.Name = "default", "kubernetes" }},
		{name: "a slice that is not routed", slice: labelled()},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, registry := testHandler(t, &known{})
			object, before := rewritten(stored), stored.DeepCopy()
			if test.slice != nil {
				test.slice(object)
				test.slice(before)
			}
			if test.user == "" {
				test.user = upstreamUser
			}
			review := ask{operation: admissionv1.Update, user: test.user, object: object, stored: before, change: test.change}.review(t)
			if patch := answer(t, h, review); patch != nil {
				t.Errorf("the patch is %s", patch)
			}
			if counted := results(t, registry); counted[string(admission.Skipped)] != 1 {
				t.Errorf("counted %v, want one skipped", counted)
			}
		})
	}
}

func TestWhatIsNotUnderstoodIsAllowed(t *testing.T) {
	plan := aSlice("cart-1", "10.0.0.1 a >a,b")
	good := string(ask{operation: admissionv1.Update, user: upstreamUser, object: rewritten(plan), stored: plan}.review(t))
	for _, test := range []struct{ name, old, with string }{
		{"hints twice", `"hints":`, `"hints":{},"hints":`},
		{"a member twice, once escaped", `"endpoints":[`, `"\u0065ndpoints":[],"endpoints":[`},
		{"an endpoint that is none", `"endpoints":[`, `"endpoints":[7,`},
		{"an address that is none", `"addresses":["10.0.0.1"`, `"addresses":[10`},
	} {
		t.Run(test.name, func(t *testing.T) {
			h, registry := testHandler(t, &known{})
			if patch := answer(t, h, []byte(strings.Replace(good, test.old, test.with, 1))); patch != nil {
				t.Errorf("the patch is %s", patch)
			}
			if counted := results(t, registry); counted[string(admission.Failed)] != 1 {
				t.Errorf("counted %v, want one failed", counted)
			}
		})
	}
}

// Without a cache the judge panics.
func TestPanicsAreAllowed(t *testing.T) {
	h, registry := testHandler(t, nil)
	if patch := answer(t, h, ask{operation: admissionv1.Create, object: aSlice("cart-1", "10.0.0.1 a")}.review(t)); patch != nil {
		t.Errorf("the patch is %s", patch)
	}
	if counted := results(t, registry); counted[string(admission.Failed)] != 1 {
		t.Errorf("counted %v, want one failed", counted)
	}
}
