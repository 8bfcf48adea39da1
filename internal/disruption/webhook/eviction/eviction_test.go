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

	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/admission"
)

// books is a ledger with answers from the test.
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

func ofReplicaSet(pod *corev1.Pod) *corev1.Pod {
	pod.OwnerReferences = []metav1.OwnerReference{{Kind: "ReplicaSet", Controller: new(true)}}
	return pod
}

// ask posts a review of an eviction to the webhook.
func ask(t *testing.T, l ledger, object string, change ...func(*admissionv1.AdmissionRequest)) *admissionv1.AdmissionResponse {
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
	admission.New(newJudge(l), options(m)).ServeHTTP(recorder, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(text))))
	var got admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &got); err != nil || got.Response == nil {
		t.Fatalf("the answer is %s: %v", recorder.Body, err)
	}
	return got.Response
}

func TestPins(t *testing.T) {
	for name, test := range map[string]struct{ object, patch string }{
		"no options":         {`{}`, `[{"op":"add","path":"/deleteOptions","value":{"preconditions":{"uid":"u"}}}]`},
		"options":            {`{"deleteOptions":{"gracePeriodSeconds":5}}`, `[{"op":"add","path":"/deleteOptions/preconditions","value":{"uid":"u"}}]`},
		"other conditions":   {`{"deleteOptions":{"preconditions":{"resourceVersion":"7"}}}`, `[{"op":"add","path":"/deleteOptions/preconditions/uid","value":"u"}]`},
		"an empty UID":       {`{"deleteOptions":{"preconditions":{"uid":""}}}`, `[{"op":"add","path":"/deleteOptions/preconditions/uid","value":"u"}]`},
		"a UID of one's own": {chosen, ""},
	} {
		for _, b := range []*books{{cached: aPod("u"), live: aPod("u")}, {live: aPod("u")}} {
			if response := ask(t, b, test.object); !response.Allowed || string(response.Patch) != test.patch {
				t.Errorf("%s: allowed: %t, and the patch is %s, want %s", name, response.Allowed, response.Patch, test.patch)
			}
		}
	}
	for name, b := range map[string]*books{"no pod": {}, "a denial": {cached: aPod("u"), answer: reservation.Answer{Denial: "no"}}} {
		if response := ask(t, b, `{}`); response.Patch != nil {
			t.Errorf("%s: the patch is %s", name, response.Patch)
		}
	}
}

const (
	unpinned = `{"metadata":{"name":"web-0"}}`
	chosen   = `{"metadata":{"name":"web-0"},"deleteOptions":{"preconditions":{"uid":"u"}}}`
)

// A later pod of the same name is not evicted.
func TestPodThatIsNotThere(t *testing.T) {
	b := &books{}
	if response := ask(t, b, unpinned); response.Allowed || response.Result.Reason != metav1.StatusReasonNotFound || len(b.asked) > 0 {
		t.Errorf("the answer is %+v", response)
	}
}

// Checks which pod the Ledger is asked about. A denial costs no live read.
func TestPodThatIsMeant(t *testing.T) {
	for name, test := range map[string]struct {
		object       string
		cached, live *corev1.Pod
		denial       string
		asked        types.UID
		reads        int
		refused      string
	}{
		"as cached":                      {unpinned, aPod("u"), aPod("u"), "", "u", 1, ""},
		"as cached, and chosen":          {chosen, aPod("u"), aPod("u"), "", "u", 1, ""},
		"as cached, and denied":          {unpinned, aPod("u"), nil, "no", "u", 0, "no"},
		"cached, of a ReplicaSet":        {unpinned, ofReplicaSet(aPod("u")), aPod("v"), "", "u", 0, ""},
		"not cached, of a ReplicaSet":    {unpinned, nil, ofReplicaSet(aPod("u")), "", "u", 1, ""},
		"cached, and gone":               {unpinned, aPod("u"), nil, "", "u", 1, ""},
		"cached, and replaced":           {unpinned, aPod("u"), aPod("v"), "", "u", 1, "replaced"},
		"cached, replaced, and chosen":   {chosen, aPod("u"), aPod("v"), "", "u", 1, ""},
		"chosen, and newer than cached":  {chosen, aPod("t"), aPod("u"), "", "u", 1, ""},
		"not in the cache":               {unpinned, nil, aPod("u"), "", "u", 1, ""},
		"chosen, and gone":               {chosen, nil, nil, "", "", 1, ""},
		"replaced, and chosen by a user": {chosen, nil, aPod("v"), "", "", 1, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &books{cached: test.cached, live: test.live, answer: reservation.Answer{Denial: test.denial}}
			response := ask(t, b, test.object)
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
		unpinned: inQuery,
		`{"deleteOptions":{"preconditions":{"uid":"u"},"dryRun":["All"]}}`: func(*admissionv1.AdmissionRequest) {},
	} {
		b := &books{cached: aPod("u")}
		ask(t, b, object, change)
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
			response := ask(t, &books{cached: aPod("u"), live: aPod("u"), answer: test.answer, err: test.err}, unpinned)
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

// An admitted eviction is refused if it is then unknown which pod it is for, or the client has given up. Its reservation is given up.
func TestReservationOfAnEvictionThatIsRefusedAfterAll(t *testing.T) {
	for name, test := range map[string]struct {
		live    *corev1.Pod
		readErr error
	}{
		"the API server is slow": {nil, errors.New("the API server is slow")},
		"the pod was replaced":   {aPod("v"), nil},
	} {
		b := &books{cached: aPod("u"), live: test.live, readErr: test.readErr}
		if response := ask(t, b, unpinned); response.Allowed || response.Result.Code != http.StatusTooManyRequests {
			t.Errorf("%s: the answer is %+v", name, response)
		}
		b.wantGivenUp(t, name)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := &books{cached: aPod("u"), live: aPod("u")}
	uid := types.UID("u")
	waited := &review{request: "r", eviction: policyv1.Eviction{DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}}}
	if _, err := (&judge{ledger: b}).decide(ctx, waited); !errors.Is(err, context.Canceled) {
		t.Errorf("the client has given up: %v", err)
	}
	b.wantGivenUp(t, "the client has given up")
}

func (b *books) wantGivenUp(t *testing.T, when string) {
	t.Helper()
	if want := []string{"u by eviction/r"}; !slices.Equal(b.givenUp, want) {
		t.Errorf("%s: given up are %q, want %q", when, b.givenUp, want)
	}
}

// An unreadable eviction is refused, to be retried. Other requests pass.
func TestOtherRequests(t *testing.T) {
	b := &books{err: errors.New("never")}
	if response := ask(t, b, `{"deleteOptions":7}`); response.Allowed || response.Result.Code != http.StatusTooManyRequests {
		t.Errorf("the answer is %+v", response)
	}
	for _, change := range []func(*admissionv1.AdmissionRequest){
		func(r *admissionv1.AdmissionRequest) { r.SubResource = "" },
		func(r *admissionv1.AdmissionRequest) { r.Operation = admissionv1.Delete },
	} {
		if response := ask(t, b, unpinned, change); !response.Allowed {
			t.Errorf("the answer is %+v", response)
		}
	}
}
