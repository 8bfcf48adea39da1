package requester

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const drain = "vicinity.dev/drain"

func yes() bool { return true }

func no() bool { return false }

func newPod(responders ...string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}}
	for _, responder := range responders {
		pod.Spec.EvictionResponders = append(pod.Spec.EvictionResponders, corev1.EvictionResponder{Name: responder, Priority: new(int32(1000))})
	}
	return pod
}

// evictions is an API server, without a network, that serves only pods/eviction.
type evictions func(eviction *policyv1.Eviction) error

// RoundTrip implements http.RoundTripper.
func (e evictions) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodPost || !strings.HasSuffix(request.URL.Path, "/eviction") {
		return answer(http.StatusTeapot, metav1.Status{Message: request.Method + " " + request.URL.Path})
	}
	var eviction policyv1.Eviction
	if err := json.NewDecoder(request.Body).Decode(&eviction); err != nil {
		return nil, err
	}
	if err := e(&eviction); err != nil {
		status := err.(apierrors.APIStatus).Status()
		return answer(int(status.Code), status)
	}
	return answer(http.StatusCreated, metav1.Status{Status: metav1.StatusSuccess})
}

func answer(code int, status metav1.Status) (*http.Response, error) {
	status.APIVersion, status.Kind = "v1", "Status"
	text, err := json.Marshal(status)
	header := http.Header{"Content-Type": {"application/json"}}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		header.Set("Retry-After", "1")
	}
	return &http.Response{StatusCode: code, Header: header, Body: io.NopCloser(bytes.NewReader(text))}, err
}

// client makes a client of the API server.
func (e evictions) client(t *testing.T) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{
		Host: "http://api", Transport: e, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// denial is an answer of budgets. One by a PodDisruptionBudget has a Retry-After.
func denial(seconds int, causes ...string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", seconds)
	for _, cause := range causes {
		err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: cause})
	}
	return err
}

func TestAnswersToEvictions(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	forbidden := apierrors.NewForbidden(pods, "web", nil)
	forbidden.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "no"}}
	for name, test := range map[string]struct {
		err     error
		want    State
		causes  []string
		unknown bool
	}{
		"evicted":       {want: Evicted},
		"denied":        {err: denial(0, "zone a has no more to spare"), want: Denied, causes: []string{"zone a has no more to spare"}},
		"denied by PDB": {err: denial(1, "needs 2"), want: Denied, causes: []string{"needs 2"}},
		"busy":          {err: denial(1), want: Denied, causes: []string{"Cannot evict pod as it would violate the pod's disruption budget."}},
		"no pod":        {err: apierrors.NewNotFound(pods, "web"), want: Gone},
		"another pod":   {err: apierrors.NewConflict(pods, "web", nil), want: Gone},
		// The code says whether to ask again: a cause does not.
		"forbidden":    {err: forbidden, want: Refused, causes: []string{"no"}},
		"two PDBs":     {err: apierrors.NewInternalError(io.ErrNoProgress), unknown: true},
		"not possible": {err: apierrors.NewBadRequest("no such thing"), want: Refused, causes: []string{"no such thing"}},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			api := evictions(func(eviction *policyv1.Eviction) error {
				asked++
				if uid := eviction.DeleteOptions.Preconditions.UID; eviction.Name != "web" || *uid != "uid-web" ||
					eviction.Annotations[v1alpha1.AnnotationEvictionReason] != "maintenance" {
					t.Errorf("the eviction is %+v", eviction)
				}
				return test.err
			})
			got, err := New(api.client(t), no).Request(t.Context(), newPod(v1alpha1.EvictionResponder), drain, "maintenance")
			if got.State != test.want || !slices.Equal(got.Causes, test.causes) || (err != nil) != test.unknown {
				t.Errorf("%+v, %v", got, err)
			}
			if asked != 1 {
				t.Errorf("%d calls, want 1", asked)
			}
		})
	}
}

// If requests are served, only pods with responders get one.
func TestPodsWithoutRespondersAreEvicted(t *testing.T) {
	grouped := newPod(v1alpha1.EvictionResponder)
	grouped.Spec.SchedulingGroup = &corev1.PodSchedulingGroup{}
	for name, pod := range map[string]*corev1.Pod{"no responders": newPod(), "of a PodGroup": grouped} {
		asked := 0
		r := New(evictions(func(*policyv1.Eviction) error { asked++; return nil }).client(t), yes)
		if got, err := r.Request(t.Context(), pod, drain, ""); err != nil || got.State != Evicted || asked != 1 {
			t.Errorf("%s: %+v after %d evictions, %v", name, got, asked, err)
		}
		if err := r.Withdraw(t.Context(), pod, drain); err != nil {
			t.Errorf("%s: withdrawing: %v", name, err)
		}
	}
}

// bench is an API server with a pod that has responders.
type bench struct {
	*testing.T
	client *fake.Clientset
	pod    *corev1.Pod
	*Requester
}

func newBench(t *testing.T) *bench {
	pod := newPod(v1alpha1.EvictionResponder)
	client := fake.NewClientset(pod)
	client.PrependReactor("update", "evictionrequests", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() == "" {
			action.(clienttesting.UpdateAction).GetObject().(*lifecyclev1alpha1.EvictionRequest).Generation++
		}
		return false, nil, nil
	})
	return &bench{t, client, pod, New(client, yes)}
}

func (b *bench) want(state State, causes ...string) {
	b.Helper()
	got, err := b.Request(b.Context(), b.pod, drain, "maintenance")
	if err != nil || got.State != state || !slices.Equal(got.Causes, causes) {
		b.Fatalf("%+v, %v; want %s %q", got, err, state, causes)
	}
}

func (b *bench) request() *lifecyclev1alpha1.EvictionRequest {
	b.Helper()
	list, err := b.client.LifecycleV1alpha1().EvictionRequests("shop").List(b.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		b.Fatalf("%d requests, %v", len(list.Items), err)
	}
	return &list.Items[0]
}

// judge sets a condition of the request, as Kubernetes' controller does.
func (b *bench) judge(condition lifecyclev1alpha1.EvictionConditionType, reason lifecyclev1alpha1.EvictionConditionReason) {
	b.Helper()
	request := b.request()
	request.Status.ObservedGeneration = new(request.Generation)
	request.Status.Conditions = []metav1.Condition{{Type: string(condition), Status: metav1.ConditionTrue, Reason: string(reason), Message: "so it is"}}
	if _, err := b.client.LifecycleV1alpha1().EvictionRequests("shop").UpdateStatus(b.Context(), request, metav1.UpdateOptions{}); err != nil {
		b.Fatal(err)
	}
}

func TestRequests(t *testing.T) {
	b := newBench(t)
	b.want(Waiting)
	b.want(Waiting) // nothing is done twice
	request := b.request()
	if target := request.Spec.Target.Pod; target.Name != "web" || target.UID != b.pod.UID || request.Spec.Requester != drain ||
		request.Spec.Intent != lifecyclev1alpha1.EvictionRequestIntentEviction || request.OwnerReferences[0].UID != b.pod.UID ||
		request.Annotations[v1alpha1.AnnotationEvictionReason] != "maintenance" {
		t.Errorf("the request is %+v", request)
	}
	b.judge("Seen", "Seen")
	eviction := &lifecyclev1alpha1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "e", Labels: map[string]string{drain: "requester"}}}
	eviction.Spec.Target.Pod = &lifecyclev1alpha1.EvictionPodReference{Name: "web", UID: b.pod.UID}
	eviction.Status.TargetResponders = []lifecyclev1alpha1.TargetResponder{
		{Name: "example.com/before", State: lifecyclev1alpha1.ResponderStateCompleted},
		{Name: v1alpha1.EvictionResponder, State: lifecyclev1alpha1.ResponderStateActive},
	}
	eviction.Status.Responders = []lifecyclev1alpha1.ResponderStatus{
		{Name: "example.com/before", Message: new("done")},
		{Name: v1alpha1.EvictionResponder, Message: new("zone a has no more to spare")},
	}
	if err := b.client.Tracker().Add(eviction); err != nil {
		t.Fatal(err)
	}
	b.want(Waiting, "vicinity.dev/budget: zone a has no more to spare")
	b.judge(lifecyclev1alpha1.EvictionConditionTargetEvicted, lifecyclev1alpha1.EvictionConditionReasonPodTerminal)
	b.want(Evicted)
}

func TestRequestsThatFail(t *testing.T) {
	b := newBench(t)
	b.want(Waiting)
	b.judge(lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.EvictionConditionReasonNoFurtherResponder)
	b.want(Denied, "so it is")
	if intent := b.request().Spec.Intent; intent != lifecyclev1alpha1.EvictionRequestIntentWithdrawn {
		t.Errorf("the intent is %s", intent)
	}
	if _, err := b.Request(t.Context(), b.pod, drain, ""); err != nil {
		t.Fatal(err)
	}
	if intent := b.request().Spec.Intent; intent != lifecyclev1alpha1.EvictionRequestIntentEviction {
		t.Errorf("asked again, the intent is %s", intent)
	}
	b.judge(lifecyclev1alpha1.EvictionConditionFailed, lifecyclev1alpha1.EvictionConditionReasonEvictionInvalid)
	b.want(Refused, "so it is")
}

func TestWithdraw(t *testing.T) {
	b := newBench(t)
	if err := b.Withdraw(t.Context(), b.pod, drain); err != nil {
		t.Errorf("nothing was requested: %v", err)
	}
	b.want(Waiting)
	if err := b.Withdraw(t.Context(), b.pod, drain); err != nil {
		t.Fatal(err)
	}
	if intent := b.request().Spec.Intent; intent != lifecyclev1alpha1.EvictionRequestIntentWithdrawn {
		t.Errorf("the intent is %s", intent)
	}
}

// An ended pod is not requested again, whatever the state of its request.
func TestPodsThatHaveEnded(t *testing.T) {
	other := newPod(v1alpha1.EvictionResponder)
	other.UID = "another"
	finished := newPod(v1alpha1.EvictionResponder)
	finished.Status.Phase = corev1.PodFailed
	ending := newPod(v1alpha1.EvictionResponder)
	ending.DeletionTimestamp, ending.Finalizers = new(metav1.Now()), []string{"example.com/wait"}
	for name, test := range map[string]struct {
		pod  *corev1.Pod
		want State
	}{
		"gone": {want: Gone}, "another one": {other, Gone}, "finished": {finished, Evicted}, "ending": {ending, Evicted},
	} {
		client := fake.NewClientset()
		if test.pod != nil {
			if err := client.Tracker().Add(test.pod); err != nil {
				t.Fatal(err)
			}
		}
		got, err := New(client, yes).Request(context.Background(), newPod(v1alpha1.EvictionResponder), drain, "")
		if err != nil || got.State != test.want || len(client.Actions()) != 1 {
			t.Errorf("%s: %+v after %v, %v", name, got, client.Actions(), err)
		}
	}
}
