package admission

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// review returns a review of objects in JSON. It leaves out an empty object.
func review(t *testing.T, operation admissionv1.Operation, object, stored string, change ...func(*admissionv1.AdmissionRequest)) string {
	t.Helper()
	request := &admissionv1.AdmissionRequest{UID: "1", Operation: operation, Namespace: "shop", Name: "web"}
	if object != "" {
		request.Object = runtime.RawExtension{Raw: []byte(object)}
	}
	if stored != "" {
		request.OldObject = runtime.RawExtension{Raw: []byte(stored)}
	}
	for _, f := range change {
		f(request)
	}
	text, err := json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request,
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// bench is a webhook with its metrics and log lines.
type bench struct {
	handler  http.Handler
	registry *prometheus.Registry
	lines    []string
}

func newBench(t *testing.T, judge func() Judge, o Options) *bench {
	t.Helper()
	b := &bench{registry: prometheus.NewPedanticRegistry()}
	var err error
	if o.Metrics, err = NewMetrics(b.registry); err != nil {
		t.Fatal(err)
	}
	o.Webhook, o.Log = "service", funcr.New(func(_, args string) { b.lines = append(b.lines, args) }, funcr.Options{})
	b.handler = New(judge, o)
	return b
}

// answer returns the answer to a review. Every review must get one, even an invalid one.
func (b *bench) answer(t *testing.T, review string) *admissionv1.AdmissionResponse {
	t.Helper()
	recorder := httptest.NewRecorder()
	b.handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(review)))
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil {
		t.Fatalf("the answer %q is not JSON: %v", recorder.Body, err)
	}
	if recorder.Code != http.StatusOK || recorder.Header().Get("Content-Type") != "application/json" ||
		got.APIVersion != "admission.k8s.io/v1" || got.Kind != "AdmissionReview" || got.Response == nil {
		t.Fatalf("the answer is %d, %s", recorder.Code, recorder.Body)
	}
	return got.Response
}

// counted returns the labels of the counted requests.
func (b *bench) counted(t *testing.T) string {
	t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var series []string
	for _, family := range families {
		if family.GetName() == "vicinity_webhook_requests_total" {
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					series = append(series, label.GetName()+"="+label.GetValue())
				}
			}
		}
	}
	return strings.Join(series, " ")
}

// says returns a judge of writes with a fixed verdict.
func says(verdict Verdict, err error) func() Judge {
	return OfWrites(func(context.Context, Write[corev1.Service]) (Verdict, error) { return verdict, err })
}

func TestVerdicts(t *testing.T) {
	const object = `{"metadata":{"name":"web","annotations":{"a":"b"}}}`
	never := Verdict{Faults: []string{"never"}}
	subresource := review(t, admissionv1.Update, object, object, func(r *admissionv1.AdmissionRequest) { r.SubResource = "status" })
	for _, test := range []struct {
		name           string
		judge          func() Judge
		review         string
		refused        string
		warnings       []string
		result, logged string
	}{
		{"nothing to say", says(Verdict{}, nil), review(t, admissionv1.Create, object, ""), "", nil, "allowed", ""},
		{"warnings", says(Verdict{Warnings: []string{"one", "two"}}, nil), review(t, admissionv1.Update, object, object), "", []string{"one", "two"}, "warned", ""},
		{
			"faults", says(Verdict{Faults: []string{"one", "two"}, Warnings: []string{"three"}}, nil),
			review(t, admissionv1.Create, object, ""), "one; two",
			[]string{"three"},
			"refused", "",
		},
		{"its own result", says(Verdict{Result: Skipped}, nil), review(t, admissionv1.Create, object, ""), "", nil, "skipped", ""},
		{"a deletion", says(never, nil), review(t, admissionv1.Delete, "", object), "", nil, "allowed", ""},
		{"a subresource", says(never, nil), subresource, "", nil, "allowed", ""},
		{"lacks facts", says(Verdict{}, errors.New("no list")), review(t, admissionv1.Create, object, ""), "", nil, "degraded", "no list"},
		{"faults, but lacks facts", says(Verdict{Faults: []string{"one"}}, errors.New("no list")), review(t, admissionv1.Create, object, ""), "one", nil, "refused", "no list"},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.judge, Options{OnFailure: FailOpen})
			response := b.answer(t, test.review)
			if response.Allowed != (test.refused == "") || response.UID != "1" || response.Patch != nil || response.PatchType != nil {
				t.Errorf("the answer is %+v", response)
			}
			if test.refused != "" && (response.Result.Message != test.refused || response.Result.Code != http.StatusUnprocessableEntity || response.Result.Reason != metav1.StatusReasonInvalid) {
				t.Errorf("refused by %+v, want %q", response.Result, test.refused)
			}
			if !slices.Equal(response.Warnings, test.warnings) {
				t.Errorf("warnings %q, want %q", response.Warnings, test.warnings)
			}
			if got, want := b.counted(t), "result="+test.result+" webhook=service"; got != want {
				t.Errorf("counted %q, want %q", got, want)
			}
			if logged := strings.Join(b.lines, "\n"); (test.logged == "") != (logged == "") || !strings.Contains(logged, test.logged) {
				t.Errorf("logged %q, want %q", logged, test.logged)
			}
		})
	}
}

// The webhook's policy answers a failure, which is also logged.
func TestFailurePolicies(t *testing.T) {
	const object = `{"metadata":{"name":"web"}}`
	create := review(t, admissionv1.Create, object, "")
	patch := []byte(`[{"op":"remove","path":"/x"}]`)
	for _, test := range []struct {
		name, review, uid, failure string
		judge                      func() Judge
		patch                      []byte
	}{
		{name: "the judge fails", judge: says(Verdict{}, errors.New("no list")), review: create, uid: "1", failure: "no list"},
		{name: "the judge fails in part", judge: says(Verdict{Patch: patch}, errors.New("no list")), review: create, uid: "1", failure: "no list", patch: patch},
		{
			name: "the judge panics", review: create, uid: "1", failure: "panic: oh",
			judge: OfWrites(func(context.Context, Write[corev1.Service]) (Verdict, error) { panic("oh") }),
		},
		{name: "no object", review: review(t, admissionv1.Create, "", ""), uid: "1", failure: "reading the object"},
		{name: "another object", review: review(t, admissionv1.Create, "[]", ""), uid: "1", failure: "reading the object"},
		{name: "no stored object", review: review(t, admissionv1.Update, object, "[]"), uid: "1", failure: "reading the stored object"},
		{name: "half a review", review: create[:len(create)-10], uid: "1", failure: "unexpected EOF"},
		{name: "more than a review", review: create + "{}", uid: "1", failure: "reading the review: text follows the review"},
		{name: "two requests", review: `{"request":{"uid":"1"},"request":{"uid":"2"}}`, uid: "1", failure: "duplicate object member name"},
		{name: "no UTF-8", review: strings.Replace(create, "shop", "\xff", 1), uid: "1", failure: "invalid UTF-8"},
		{name: "a member twice in what no webhook reads", review: `{"x":{"b":1,"b":2}}`, failure: "duplicate object member name"},
		{name: "no object in the review", review: `{"request":[]}`, failure: "instead of an object"},
		{name: "no review", failure: "reading the review: EOF"},
		{name: "too large a review", review: strings.Repeat(" ", maxReview+1), failure: "reading the review: http: request body too large"},
	} {
		for policy, allowed := range map[FailurePolicy]bool{FailOpen: true, FailClosed: false} {
			t.Run(test.name, func(t *testing.T) {
				judge := test.judge
				if judge == nil {
					judge = says(Verdict{Faults: []string{"never"}}, nil)
				}
				b := newBench(t, judge, Options{OnFailure: policy, Unjudged: Failed, Complaint: "Oh dear"})
				response := b.answer(t, test.review)
				if response.Allowed != allowed || string(response.UID) != test.uid {
					t.Errorf("the answer is %+v", response)
				}
				if allowed && !bytes.Equal(response.Patch, test.patch) || !allowed && response.Patch != nil {
					t.Errorf("the patch is %s", response.Patch)
				}
				if !allowed && (response.Result.Code != http.StatusTooManyRequests || response.Result.Reason != metav1.StatusReasonTooManyRequests || !strings.Contains(response.Result.Message, test.failure)) {
					t.Errorf("refused by %+v, want 429 and %q", response.Result, test.failure)
				}
				if got := b.counted(t); got != "result=failed webhook=service" {
					t.Errorf("counted %q", got)
				}
				if len(b.lines) != 1 || !strings.Contains(b.lines[0], test.failure) || !strings.Contains(b.lines[0], `"msg"="Oh dear"`) {
					t.Errorf("logged %q, want %q", b.lines, test.failure)
				}
			})
		}
	}
}

// recording is a judge that records its calls.
type recording struct {
	requests []Request
	read     []string
	resets   int
}

func (r *recording) Reset() { r.resets++ }

func (r *recording) Read(reader *Reader, stored bool) error {
	var text []byte
	err := reader.Raw(&text)
	word := "object "
	if stored {
		word = "stored "
	}
	r.read = append(r.read, word+string(text))
	return err
}

func (r *recording) Judge(_ context.Context, request *Request) (Verdict, error) {
	r.requests = append(r.requests, *request)
	return Verdict{Patch: []byte("[]"), Result: Changed}, nil
}

func TestRequestsAreReadWhole(t *testing.T) {
	judge := &recording{}
	b := newBench(t, func() Judge { return judge }, Options{})
	response := b.answer(t, `{"kind":"AdmissionReview","request":{"uid":"7","kind":{"kind":"Pod"},"name":"a\"b","namespace":"shop","operation":"UPDATE",
		"subResource":"eviction","userInfo":{"groups":["x"],"username":"me"},"object":{"a":1},"oldObject":null,"dryRun":true}}`)
	if want := (Request{UID: "7", Operation: "UPDATE", Namespace: "shop", Name: `a"b`, SubResource: "eviction", User: "me", DryRun: true}); len(judge.requests) != 1 || judge.requests[0] != want {
		t.Errorf("the request is %+v, want %+v", judge.requests, want)
	}
	if want := []string{`object {"a":1}`, "stored "}; !slices.Equal(judge.read, want) {
		t.Errorf("read are %q, want %q", judge.read, want)
	}
	if response.UID != "7" || string(response.Patch) != "[]" || response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch {
		t.Errorf("the answer is %+v", response)
	}
	b.answer(t, `{"request":{"uid":"8"}}`)
	if last := judge.requests[len(judge.requests)-1]; last != (Request{UID: "8"}) || judge.resets != 2 {
		t.Errorf("the next request is %+v, after %d resets", last, judge.resets)
	}
	if got, want := b.counted(t), "result=changed webhook=service"; got != want {
		t.Errorf("counted %q, want %q", got, want)
	}
}

// A temporary denial says what to do, and gives programs the cause.
func TestDenials(t *testing.T) {
	create := review(t, admissionv1.Create, `{"metadata":{"name":"web"}}`, "")
	full := TryAgain("the budget is used up")
	full.Cause = "DisruptionBudget"
	for _, test := range []struct {
		name  string
		judge func() Judge
		want  metav1.Status
		count string
	}{
		{"for now", says(Verdict{Denial: TryAgain("later")}, nil), metav1.Status{Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: "later"}, "refused"},
		{
			"with a cause", says(Verdict{Denial: full, Patch: []byte("[]")}, nil),
			metav1.Status{
				Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: "the budget is used up",
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "DisruptionBudget", Message: "the budget is used up"}}},
			},
			"refused",
		},
		{
			"for good", says(Verdict{Denial: &Denial{Code: 500, Reason: metav1.StatusReasonInternalError, Message: "never"}}, nil),
			metav1.Status{Code: 500, Reason: metav1.StatusReasonInternalError, Message: "never"},
			"refused",
		},
		{
			"unjudged", says(Verdict{}, errors.New("no list")),
			metav1.Status{
				Code: 429, Reason: metav1.StatusReasonTooManyRequests, Message: "the request cannot be judged now: no list. See the runbook.",
				Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: "DisruptionBudget", Message: "the request cannot be judged now: no list. See the runbook."}}},
			},
			"failed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBench(t, test.judge, Options{OnFailure: FailClosed, Unjudged: Failed, Advice: "See the runbook", Cause: "DisruptionBudget"})
			response := b.answer(t, create)
			if response.Allowed || response.Patch != nil || response.Result == nil || !reflect.DeepEqual(*response.Result, test.want) {
				t.Errorf("the answer is %+v, want %+v", response.Result, test.want)
			}
			if got, want := b.counted(t), "result="+test.count+" webhook=service"; got != want {
				t.Errorf("counted %q, want %q", got, want)
			}
		})
	}
}
