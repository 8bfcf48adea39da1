package eviction

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/webhook/admission"
)

// books are a ledger that says what the test does.
type books struct {
	cached, live *corev1.Pod
	answer       reservation.Answer
	err          error
	asked        []reservation.Request
	readErr      error
	reads        int
	givenUp      []string // holders
}

func (b *books) Admit(_ context.Context, r reservation.Request) (reservation.Answer, error) {
	b.asked = append(b.asked, r)
	return b.answer, b.err
}

func (b *books) ReadPod(context.Context, types.NamespacedName) (*corev1.Pod, error) {
	b.reads++
	return b.live, errors.Join(b.err, b.readErr)
}

func (b *books) GiveUp(_ types.NamespacedName, uid types.UID, holder string) {
	b.givenUp = append(b.givenUp, string(uid)+" by "+holder)
}

func (b *books) CachedPod(types.NamespacedName) *corev1.Pod { return b.cached }

func aPod(uid types.UID) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0", UID: uid}}
}

// ask posts a review of an eviction to a webhook.
func ask(t *testing.T, judge func(context.Context, *review) (admission.Verdict, error), object string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionResponse {
	t.Helper()
	request := &admissionv1.AdmissionRequest{
		UID: "r", Operation: admissionv1.Create, Namespace: "shop", Name: "web-0", SubResource: "eviction", Object: runtime.RawExtension{Raw: []byte(object)},
	}
	for _, f := range change {
		f(request)
	}
	text, err := json.Marshal(admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: request})
	if err != nil {
		t.Fatal(err)
	}
	m, err := admission.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	recorder := httptest.NewRecorder()
	admission.New(newJudge(judge), options("eviction", m)).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(text))))
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil || got.Response == nil {
		t.Fatalf("the answer is %s: %v", recorder.Body, err)
	}
	return got.Response
}

func TestPins(t *testing.T) {
	const mark = `{"op":"add","path":"/metadata/annotations","value":{"vicinity.dev/pinned":"true"}}`
	for name, test := range map[string]struct {
		object       string
		cached, live *corev1.Pod
		patch        string
		reads        int
	}{
		"no options":       {`{}`, aPod("u"), nil, `[{"op":"add","path":"/deleteOptions","value":{"preconditions":{"uid":"u"}}},` + mark + `]`, 0},
		"options":          {`{"deleteOptions":{"gracePeriodSeconds":5}}`, aPod("u"), nil, `[{"op":"add","path":"/deleteOptions/preconditions","value":{"uid":"u"}},` + mark + `]`, 0},
		"other conditions": {`{"deleteOptions":{"preconditions":{"resourceVersion":"7"}}}`, aPod("u"), nil, `[{"op":"add","path":"/deleteOptions/preconditions/uid","value":"u"},` + mark + `]`, 0},
		"an empty UID":     {`{"deleteOptions":{"preconditions":{"uid":""}}}`, aPod("u"), nil, `[{"op":"add","path":"/deleteOptions/preconditions/uid","value":"u"},` + mark + `]`, 0},
		"annotations": {
			`{"metadata":{"annotations":{"a":"b"}},"deleteOptions":{}}`, aPod("u"), nil,
			`[{"op":"add","path":"/deleteOptions/preconditions","value":{"uid":"u"}},{"op":"add","path":"/metadata/annotations/vicinity.dev~1pinned","value":"true"}]`, 0,
		},
		"a UID of one's own": {`{"deleteOptions":{"preconditions":{"uid":"v"}}}`, aPod("u"), nil, "", 0},
		"not in the cache":   {`{"deleteOptions":{}}`, nil, aPod("u"), `[{"op":"add","path":"/deleteOptions/preconditions","value":{"uid":"u"}},` + mark + `]`, 1},
		"no pod":             {`{}`, nil, nil, "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := &books{cached: test.cached, live: test.live}
			response := ask(t, pinner{b}.judge, test.object)
			if !response.Allowed || string(response.Patch) != test.patch || b.reads != test.reads {
				t.Errorf("allowed: %t, with %d reads, and the patch is %s, want %s", response.Allowed, b.reads, response.Patch, test.patch)
			}
		})
	}
}

const (
	pinned = `{"metadata":{"name":"web-0","annotations":{"vicinity.dev/pinned":"true"}},"deleteOptions":{"preconditions":{"uid":"u"}}}`
	chosen = `{"metadata":{"name":"web-0"},"deleteOptions":{"preconditions":{"uid":"u"}}}`
)

// Which pod the Ledger is asked about, if it is. A denial costs no live read.
func TestPodThatIsMeant(t *testing.T) {
	for name, test := range map[string]struct {
		object       string
		cached, live *corev1.Pod
		denial       string
		asked        types.UID
		reads        int
		refused      string
	}{
		"as cached":                      {pinned, aPod("u"), aPod("u"), "", "u", 1, ""},
		"as cached, and denied":          {pinned, aPod("u"), nil, "no", "u", 0, "no"},
		"cached, and gone":               {pinned, aPod("u"), nil, "", "u", 1, ""},
		"cached, and replaced":           {pinned, aPod("u"), aPod("v"), "", "u", 1, "replaced"},
		"cached, replaced, and chosen":   {chosen, aPod("u"), aPod("v"), "", "u", 1, ""},
		"newer than the cache":           {pinned, aPod("t"), aPod("u"), "", "u", 1, ""},
		"not in the cache":               {pinned, nil, aPod("u"), "", "u", 1, ""},
		"gone":                           {pinned, nil, nil, "", "", 1, ""},
		"replaced":                       {pinned, nil, aPod("v"), "", "", 1, "replaced"},
		"replaced, and chosen by a user": {chosen, nil, aPod("v"), "", "", 1, ""},
		"not pinned, and no pod":         {`{}`, nil, nil, "", "", 1, ""},
		"not pinned, and one now":        {`{}`, aPod("u"), aPod("u"), "", "", 1, "pin.eviction.vicinity.dev"},
	} {
		t.Run(name, func(t *testing.T) {
			b := &books{cached: test.cached, live: test.live, answer: reservation.Answer{Denial: test.denial}}
			response := ask(t, decider{b}.judge, test.object)
			if response.Allowed != (test.refused == "") || test.refused != "" && (response.Result.Code != 429 || !strings.Contains(response.Result.Message, test.refused)) {
				t.Errorf("the answer is %+v", response)
			}
			var asked types.UID
			if len(b.asked) > 0 {
				if asked = b.asked[0].Pod.UID; b.asked[0].Holder != "eviction/r" || b.asked[0].DryRun {
					t.Errorf("asked is %+v", b.asked)
				}
			}
			if asked != test.asked || b.reads != test.reads {
				t.Errorf("asked about %q with %d reads, want %q with %d", asked, b.reads, test.asked, test.reads)
			}
		})
	}
}

func TestDryRuns(t *testing.T) {
	inQuery := func(r *admissionv1.AdmissionRequest) { r.DryRun = new(true) }
	for object, change := range map[string]func(*admissionv1.AdmissionRequest){
		pinned: inQuery,
		`{"deleteOptions":{"preconditions":{"uid":"u"},"dryRun":["All"]}}`: func(*admissionv1.AdmissionRequest) {},
	} {
		b := &books{cached: aPod("u")}
		ask(t, decider{b}.judge, object, change)
		if len(b.asked) != 1 || !b.asked[0].DryRun {
			t.Errorf("%s: asked is %+v", object, b.asked)
		}
	}
}

func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		answer  reservation.Answer
		err     error
		code    int32
		message string
		cause   bool
	}{
		"admitted":    {reservation.Answer{Warnings: []string{"w"}}, nil, 0, "", false},
		"denied":      {reservation.Answer{Denial: "zone a has no more to spare"}, nil, 429, "zone a has no more to spare", true},
		"unsupported": {reservation.Answer{Denial: "two budgets", Unsupported: true}, nil, 500, "two budgets", false},
		"not known":   {reservation.Answer{}, errors.New("the cache is behind"), 429, "the cache is behind. Drainers try again", true},
	} {
		t.Run(name, func(t *testing.T) {
			response := ask(t, decider{&books{cached: aPod("u"), live: aPod("u"), answer: test.answer, err: test.err}}.judge, pinned)
			if test.code == 0 {
				if !response.Allowed || len(response.Warnings) != 1 {
					t.Errorf("the answer is %+v", response)
				}
				return
			}
			status := response.Result
			if response.Allowed || status.Code != test.code || !strings.Contains(status.Message, test.message) {
				t.Fatalf("the answer is %+v", status)
			}
			if has := status.Details != nil && len(status.Details.Causes) == 1 && status.Details.Causes[0].Type == policyv1.DisruptionBudgetCause; has != test.cause ||
				has && status.Details.RetryAfterSeconds != 0 {
				t.Errorf("the details are %+v", status.Details)
			}
		})
	}
}

// An eviction that was admitted is refused if it is not known then which pod it would be, and its
// reservation is given up.
func TestReservationOfAnEvictionThatIsRefusedAfterAll(t *testing.T) {
	b := &books{cached: aPod("u"), readErr: errors.New("the API server is slow")}
	if response := ask(t, decider{b}.judge, pinned); response.Allowed || response.Result.Code != http.StatusTooManyRequests {
		t.Errorf("the answer is %+v", response)
	}
	if want := []string{"u by eviction/r"}; !slices.Equal(b.givenUp, want) {
		t.Errorf("given up are %q, want %q", b.givenUp, want)
	}
}

// What cannot be read is refused, to be tried again, and what is no eviction is let through.
func TestOtherRequests(t *testing.T) {
	b := &books{err: errors.New("never")}
	if response := ask(t, decider{b}.judge, `{"deleteOptions":7}`); response.Allowed || response.Result.Code != http.StatusTooManyRequests {
		t.Errorf("the answer is %+v", response)
	}
	for _, change := range []func(*admissionv1.AdmissionRequest){
		func(r *admissionv1.AdmissionRequest) { r.SubResource = "" },
		func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete },
	} {
		if response := ask(t, decider{b}.judge, pinned, change); !response.Allowed {
			t.Errorf("the answer is %+v", response)
		}
	}
}
