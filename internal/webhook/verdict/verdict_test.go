package verdict

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"vicinity.dev/vicinity/internal/webhook/outcome"
)

// review is a review of objects in JSON.
func review(operation admissionv1.Operation, object, stored string) admission.Request {
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: operation, Namespace: "shop", Name: "web",
		Object: runtime.RawExtension{Raw: []byte(object)}, OldObject: runtime.RawExtension{Raw: []byte(stored)},
	}}
}

// handle answers one review by a judge, and returns what was counted and logged.
func handle(t *testing.T, judge Judge[corev1.Service], request admission.Request) (response admission.Response, counted, logged string) {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	metrics, err := outcome.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
	response = Handler(judge, Options{Webhook: "service", Metrics: metrics, Log: log}).Handle(t.Context(), request)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() == "vicinity_webhook_requests_total" {
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					counted += label.GetName() + "=" + label.GetValue() + " "
				}
			}
		}
	}
	return response, strings.TrimSpace(counted), strings.Join(lines, "\n")
}

func TestHandler(t *testing.T) {
	const object = `{"metadata":{"name":"web","annotations":{"a":"b"}}}`
	says := func(said Verdict) Judge[corev1.Service] {
		return func(context.Context, Write[corev1.Service]) Verdict { return said }
	}
	for _, test := range []struct {
		name           string
		judge          Judge[corev1.Service]
		request        admission.Request
		refused        string
		warnings       []string
		result, logged string
	}{
		{"nothing to say", says(Verdict{}), review(admissionv1.Create, object, ""), "", nil, "allowed", ""},
		{"warnings", says(Verdict{Warnings: []string{"one", "two"}}), review(admissionv1.Update, object, object), "", []string{"one", "two"}, "warned", ""},
		{"faults", says(Verdict{Faults: []string{"one", "two"}, Warnings: []string{"three"}}), review(admissionv1.Create, object, ""), "one; two", []string{"three"}, "refused", ""},
		{"a deletion", says(Verdict{Faults: []string{"never"}}), review(admissionv1.Delete, "", object), "", nil, "allowed", ""},
		{"not all is known", says(Verdict{Err: errors.New("no list")}), review(admissionv1.Create, object, ""), "", nil, "degraded", "no list"},
		{"no object", says(Verdict{Faults: []string{"never"}}), review(admissionv1.Create, "{", ""), "", nil, "degraded", "reading the object"},
		{"no stored object", says(Verdict{Faults: []string{"never"}}), review(admissionv1.Update, object, "[]"), "", nil, "degraded", "reading the stored object"},
		{
			"panic", func(context.Context, Write[corev1.Service]) Verdict { panic("oh") },
			review(admissionv1.Create, object, ""), "", nil, "degraded", "panic: oh",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			response, counted, logged := handle(t, test.judge, test.request)
			if response.Allowed != (test.refused == "") {
				t.Errorf("allowed is %t", response.Allowed)
			}
			if test.refused != "" && (response.Result.Message != test.refused || response.Result.Code != http.StatusUnprocessableEntity) {
				t.Errorf("refused by %d %q, want %q", response.Result.Code, response.Result.Message, test.refused)
			}
			if !slices.Equal(response.Warnings, test.warnings) {
				t.Errorf("warnings %q, want %q", response.Warnings, test.warnings)
			}
			if want := "result=" + test.result + " webhook=service"; counted != want {
				t.Errorf("counted %q, want %q", counted, want)
			}
			if (test.logged == "") != (logged == "") || !strings.Contains(logged, test.logged) {
				t.Errorf("logged %q, want %q", logged, test.logged)
			}
		})
	}
}

func TestJudgeSeesWhatIsWritten(t *testing.T) {
	for operation, stored := range map[admissionv1.Operation]bool{admissionv1.Create: false, admissionv1.Update: true} {
		_, _, _ = handle(t, func(_ context.Context, write Write[corev1.Service]) Verdict {
			if write.Object.Name != "new" || write.Namespace != "shop" || (write.Stored != nil) != stored || stored && write.Stored.Name != "old" {
				t.Errorf("%s: %+v", operation, write)
			}
			return Verdict{}
		}, review(operation, `{"metadata":{"name":"new"}}`, `{"metadata":{"name":"old"}}`))
	}
	request := review(admissionv1.Update, `{}`, `{}`)
	request.SubResource = "status"
	handle(t, func(context.Context, Write[corev1.Service]) Verdict {
		t.Error("a write to a subresource is judged")
		return Verdict{}
	}, request)
}

// The names of results are labels of a metric, which lint looks at.
func TestMetricsOfResults(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	metrics, err := outcome.New(registry)
	if err != nil {
		t.Fatal(err)
	}
	for _, judge := range []Verdict{{}, {Faults: []string{"x"}}, {Warnings: []string{"x"}}} {
		Handler(func(context.Context, Write[corev1.Service]) Verdict { return judge },
			Options{Webhook: "service", Metrics: metrics, Log: logr.Discard()}).Handle(t.Context(), review(admissionv1.Create, "{}", ""))
	}
	if n := testutil.CollectAndCount(registry, "vicinity_webhook_requests_total"); n != 3 {
		t.Errorf("%d series, want 3", n)
	}
}
