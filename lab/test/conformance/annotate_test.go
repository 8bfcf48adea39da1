package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/test/rig"
)

// written is a Service of a test.
func written(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "services-1", Name: "web"}}
	if change != nil {
		change(s)
	}
	return s
}

func annotated(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{name: value} }
}

func labelled(name, value string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Labels = map[string]string{name: value} }
}

func TestMissingAnnotations(t *testing.T) {
	const proxy, near = "vicinity.dev/proxy=true", "endpointslice.kubernetes.io/same-zone=Prefer"
	for name, test := range map[string]struct {
		change func(*corev1.Service)
		want   string
	}{
		"plain":                  {nil, near + " " + proxy},
		"headless":               {func(s *corev1.Service) { s.Spec.ClusterIP = corev1.ClusterIPNone }, ""},
		"a name":                 {func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }, ""},
		"of another proxy":       {labelled("service.kubernetes.io/service-proxy-name", "foo-bar"), ""},
		"handed over":            {labelled("service.kubernetes.io/service-proxy-name", "vicinity"), near + " " + proxy},
		"annotated":              {annotated("vicinity.dev/proxy", "true"), near},
		"kept from the proxy":    {annotated("vicinity.dev/proxy", "false"), near},
		"near already":           {annotated("endpointslice.kubernetes.io/same-zone", "Require"), proxy},
		"near by keys":           {annotated("vicinity.dev/topology-keys", "*"), proxy},
		"by the topology mode":   {annotated("service.kubernetes.io/topology-mode", "Auto"), proxy},
		"by the older mode":      {annotated("service.kubernetes.io/topology-aware-hints", "auto"), proxy},
		"by the label of zones":  {labelled("endpoint-slice-hints.resources.gardener.cloud/consider", "true"), proxy},
		"by its own preference":  {func(s *corev1.Service) { s.Spec.TrafficDistribution = ptr.To("PreferClose") }, proxy},
		"with other annotations": {annotated("example.com/a", "b"), near + " " + proxy},
	} {
		t.Run(name, func(t *testing.T) {
			service := written(test.change)
			want := map[string]string{}
			for _, word := range strings.Fields(test.want) {
				key, value, _ := strings.Cut(word, "=")
				want[key] = value
			}
			if got := newAnnotator(true, true).missing(service); !maps.Equal(got, want) {
				t.Errorf("missing are %v, want %v", got, want)
			}
			if got := newAnnotator(false, false).missing(service); len(got) > 0 {
				t.Errorf("missing for nothing are %v", got)
			}
		})
	}
}

// ask has an annotator review a write, and returns the patched annotations, nil without a patch.
func ask(t *testing.T, a *annotator, s *corev1.Service, change func(*admissionv1.AdmissionRequest)) map[string]string {
	t.Helper()
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	request := &admissionv1.AdmissionRequest{UID: "1", Namespace: s.Namespace, Name: s.Name, Object: runtime.RawExtension{Raw: text}}
	if change != nil {
		change(request)
	}
	body, err := json.Marshal(admissionv1.AdmissionReview{Request: request})
	if err != nil {
		t.Fatal(err)
	}
	answer := httptest.NewRecorder()
	a.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body)))
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(answer.Body.Bytes(), &review); err != nil || review.Response == nil || !review.Response.Allowed || review.Response.UID != types.UID("1") {
		t.Fatalf("the answer is %d %s, %v", answer.Code, answer.Body, err)
	}
	if review.Response.Patch == nil {
		return nil
	}
	var patch []struct {
		Op, Path string
		Value    map[string]string
	}
	if err := json.Unmarshal(review.Response.Patch, &patch); err != nil || len(patch) != 1 || patch[0].Op != "add" || patch[0].Path != "/metadata/annotations" {
		t.Fatalf("the patch is %s, %v", review.Response.Patch, err)
	}
	return patch[0].Value
}

func TestReviews(t *testing.T) {
	a := newAnnotator(true, false)
	got := ask(t, a, written(annotated("example.com/a", "b")), nil)
	if want := map[string]string{"example.com/a": "b", "vicinity.dev/proxy": "true"}; !maps.Equal(got, want) {
		t.Errorf("the annotations become %v, want %v", got, want)
	}
	if got := ask(t, a, written(nil), func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" }); got != nil {
		t.Errorf("a write of the status gets annotations %v", got)
	}
	for body, want := range map[string]int{"": http.StatusBadRequest, "{}": http.StatusBadRequest, `{"request": {"object": []}}`: http.StatusBadRequest} {
		answer := httptest.NewRecorder()
		a.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		if answer.Code != want {
			t.Errorf("the answer to %q is %d, want %d", body, answer.Code, want)
		}
	}
}

// Only what became of Services of tests shows that a run is about Vicinity.
func TestEffect(t *testing.T) {
	served := labelled("service.kubernetes.io/service-proxy-name", "vicinity")
	planned := func(s *corev1.Service) {
		s.Annotations = map[string]string{"endpointslice.kubernetes.io/same-zone": "Prefer", "vicinity.dev/proxy": "true"}
		s.Status.Conditions = []metav1.Condition{{Type: "vicinity.dev/TopologyRouting", Status: metav1.ConditionTrue}}
	}
	for name, test := range map[string]struct {
		handOver, prefer  bool
		changes           []func(*corev1.Service)
		change            func(*admissionv1.AdmissionRequest)
		want, wantProblem string
	}{
		"nothing to annotate": {},
		"no Services":         {handOver: true, want: "the webhook annotated 0 Services; vicinity-proxy took 0 of them over", wantProblem: "no test made a Service to annotate; vicinity-proxy took no Service of the tests over"},
		"handed over":         {handOver: true, changes: []func(*corev1.Service){nil, served}, want: "the webhook annotated 1 Services; vicinity-proxy took 1 of them over"},
		"not handed over":     {handOver: true, changes: []func(*corev1.Service){nil}, want: "the webhook annotated 1 Services; vicinity-proxy took 0 of them over", wantProblem: "vicinity-proxy took no Service of the tests over"},
		"planned":             {prefer: true, changes: []func(*corev1.Service){nil, planned}, want: "the webhook annotated 1 Services; 1 of them had a plan in force"},
		"not planned":         {prefer: true, changes: []func(*corev1.Service){nil, served}, want: "the webhook annotated 1 Services; 0 of them had a plan in force", wantProblem: "no Service of the tests had a plan in force"},
		"both":                {handOver: true, prefer: true, changes: []func(*corev1.Service){nil, served, planned}, want: "the webhook annotated 1 Services; vicinity-proxy took 1 of them over; 1 of them had a plan in force"},
		"not annotated":       {prefer: true, changes: []func(*corev1.Service){planned}, want: "the webhook annotated 0 Services; 0 of them had a plan in force", wantProblem: "no test made a Service to annotate; no Service of the tests had a plan in force"},
		"dry runs": {
			handOver: true, changes: []func(*corev1.Service){nil, served}, change: func(r *admissionv1.AdmissionRequest) { r.DryRun = ptr.To(true) },
			want: "the webhook annotated 0 Services; vicinity-proxy took 0 of them over", wantProblem: "no test made a Service to annotate; vicinity-proxy took no Service of the tests over",
		},
		"the cluster's own": {
			handOver: true, changes: []func(*corev1.Service){nil, served}, change: func(r *admissionv1.AdmissionRequest) { r.Namespace = "kube-system" },
			want: "the webhook annotated 0 Services; vicinity-proxy took 0 of them over", wantProblem: "no test made a Service to annotate; vicinity-proxy took no Service of the tests over",
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := newAnnotator(test.handOver, test.prefer)
			for _, change := range test.changes {
				ask(t, a, written(change), test.change)
			}
			problem := ""
			got, err := a.effect()
			if err != nil {
				problem = err.Error()
			}
			if got != test.want || problem != test.wantProblem {
				t.Errorf("the effect is %q, %q; want %q, %q", got, problem, test.want, test.wantProblem)
			}
		})
	}
}

// A real API server has Services annotated, and takes none while the webhook does not answer.
func TestAPIServerAsks(t *testing.T) {
	l := rig.Start(t)
	trusted := httptest.NewTLSServer(nil) // for its certificate
	trusted.Close()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAnnotator(true, false)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: trusted.Certificate().Raw})
	if err := a.serve(t.Context(), l.Client, tls.NewListener(listener, trusted.TLS), authority); err != nil {
		t.Fatal(err)
	}
	const manifest = "apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{port: 80}]}\n"
	namespace, err := l.MakeNamespace(t.Context(), "services")
	if err != nil {
		t.Fatal(err)
	}
	l.Make(namespace, fmt.Sprintf(manifest, "web"))
	service, err := l.CoreV1().Services(namespace).Get(t.Context(), "web", metav1.GetOptions{})
	if err != nil || service.Annotations["vicinity.dev/proxy"] != "true" {
		t.Errorf("the annotations are %v, %v", service.Annotations, err)
	}
	if text, _ := a.effect(); text != "the webhook annotated 1 Services; vicinity-proxy took 0 of them over" {
		t.Errorf("the effect is %q", text)
	}
	if err := a.server.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Apply(t.Context(), namespace, fmt.Sprintf(manifest, "other")); err == nil || !strings.Contains(err.Error(), webhookName) {
		t.Errorf("without an answer of the webhook the error is %v", err)
	}
	if err := a.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.Make(namespace, fmt.Sprintf(manifest, "other"))
}
