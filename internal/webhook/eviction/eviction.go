// Package eviction has the admission webhooks of pods/eviction, by which evictions are held to
// TopologyDisruptionBudgets. What is decided, and what is stored for it, is the Ledger's.
//
// A review names a pod, and its name may be that of another pod a moment later. So the mutating
// webhook has the eviction be for the UID of the pod, by a precondition that the API server keeps
// to; one that the client gave stays. The validating webhook decides about the pod of that UID,
// and reserves its eviction. Only one that is admitted costs a request to read the pod live: if it
// is another one than the cache had, the eviction is to be tried again.
//
// A pod that does not exist is let through, so that the API server says so. A denial has what one
// by a PodDisruptionBudget has: the code 429 and a cause of the type DisruptionBudget, by which
// drainers try again, and not the header Retry-After, on which clients do so within the call. A
// deletion that is no eviction, such as those by the garbage collector, of a node or of a
// namespace, comes by neither webhook.
//
// # How they are installed
//
//	rules:             CREATE of pods/eviction, v1, scope Namespaced
//	namespaceSelector: vicinity.dev/disruption-budgets=true, without kube-system and Vicinity's own
//	failurePolicy:     Fail
//	timeoutSeconds:    3
//	sideEffects:       NoneOnDryRun
package eviction

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/reservation"
	"vicinity.dev/vicinity/internal/webhook/admission"
)

// Where the webhooks are served.
const (
	MutatingPath   = "/mutate-eviction"
	ValidatingPath = "/validate-eviction"
)

// timeout is how long a review may take. The API server waits 3 s, and what it says then does not
// tell people what is slow, nor clients to try again.
const timeout = 1500 * time.Millisecond

// ledger is what the webhooks ask.
type ledger interface {
	Admit(context.Context, reservation.Request) (reservation.Answer, error)
	// GiveUp gives up what was reserved for an eviction that is refused after all, without a wait.
	GiveUp(pod types.NamespacedName, uid types.UID, holder string)
	// ReadPod reads the name, UID and version of a pod live; nil if there is none.
	ReadPod(context.Context, types.NamespacedName) (*corev1.Pod, error)
	// CachedPod is a pod as the cache has it, nil if it does not.
	CachedPod(types.NamespacedName) *corev1.Pod
}

// Options are what the webhooks depend on.
type Options struct {
	Ledger *reservation.Ledger
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register has a manager serve the webhooks.
func Register(mgr manager.Manager, o Options) {
	for path, webhook := range map[string]struct {
		name  string
		judge func(context.Context, *review) (admission.Verdict, error)
	}{
		MutatingPath: {"eviction-pin", pinner{o.Ledger}.judge}, ValidatingPath: {"eviction", decider{o.Ledger}.judge},
	} {
		admission.Register(mgr, path, newJudge(webhook.judge), options(webhook.name, o.Metrics))
	}
}

func options(name string, m *admission.Metrics) admission.Options {
	return admission.Options{
		Webhook: name, OnFailure: admission.FailClosed, Unjudged: admission.Failed, Metrics: m,
		Complaint: "Eviction is refused, since it cannot be judged", Cause: policyv1.DisruptionBudgetCause, Advice: advice,
	}
}

const advice = `Drainers try again. If it lasts, see the log of vicinity-controller and the runbook "Evictions fail"`

// review is a request to evict a pod.
type review struct {
	pod      types.NamespacedName
	request  types.UID
	dryRun   bool
	eviction policyv1.Eviction
}

// uid is that of the pod to evict, empty if any of the name is meant.
func (r *review) uid() types.UID {
	if o := r.eviction.DeleteOptions; o != nil && o.Preconditions != nil && o.Preconditions.UID != nil {
		return *o.Preconditions.UID
	}
	return ""
}

// judge reads reviews of evictions, and leaves all others alone.
type judge struct {
	of     func(context.Context, *review) (admission.Verdict, error)
	object []byte
}

func newJudge(of func(context.Context, *review) (admission.Verdict, error)) func() admission.Judge {
	return func() admission.Judge { return &judge{of: of} }
}

// Reset implements admission.Judge.
func (j *judge) Reset() { j.object = nil }

// Read implements admission.Judge.
func (j *judge) Read(r *admission.Reader, stored bool) error {
	if stored {
		return r.Skip()
	}
	return r.Raw(&j.object)
}

// Judge implements admission.Judge.
func (j *judge) Judge(ctx context.Context, r *admission.Request) (admission.Verdict, error) {
	if r.Operation != "CREATE" || r.SubResource != "eviction" {
		return admission.Verdict{Result: admission.Skipped}, nil
	}
	read := &review{pod: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, request: types.UID(r.UID), dryRun: r.DryRun}
	if err := json.Unmarshal(j.object, &read.eviction); err != nil {
		return admission.Verdict{}, fmt.Errorf("reading the eviction: %w", err)
	}
	if read.pod.Name == "" {
		read.pod.Name = read.eviction.Name
	}
	if o := read.eviction.DeleteOptions; o != nil && slices.Contains(o.DryRun, metav1.DryRunAll) {
		read.dryRun = true
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return j.of(ctx, read)
}

// pinner has evictions be for one pod.
type pinner struct{ ledger ledger }

func (p pinner) judge(ctx context.Context, r *review) (admission.Verdict, error) {
	if r.uid() != "" {
		return admission.Verdict{Result: admission.Unchanged}, nil
	}
	pod := p.ledger.CachedPod(r.pod)
	if pod == nil {
		var err error
		if pod, err = p.ledger.ReadPod(ctx, r.pod); err != nil {
			return admission.Verdict{}, err
		}
	}
	if pod == nil {
		return admission.Verdict{Result: admission.Unchanged}, nil
	}
	patch, err := pin(&r.eviction, pod.UID)
	return admission.Verdict{Patch: patch, Result: admission.Changed}, err
}

// pin is a patch by which an eviction is for the pod of a UID.
func pin(eviction *policyv1.Eviction, uid types.UID) ([]byte, error) {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	add, mark := operation{Op: "add"}, operation{Op: "add"}
	switch o := eviction.DeleteOptions; {
	case o == nil:
		add.Path, add.Value = "/deleteOptions", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}
	case o.Preconditions == nil:
		add.Path, add.Value = "/deleteOptions/preconditions", metav1.Preconditions{UID: &uid}
	default:
		add.Path, add.Value = "/deleteOptions/preconditions/uid", uid
	}
	if eviction.Annotations == nil {
		mark.Path, mark.Value = "/metadata/annotations", map[string]string{v1alpha1.AnnotationPinned: "true"}
	} else {
		mark.Path, mark.Value = "/metadata/annotations/"+strings.ReplaceAll(v1alpha1.AnnotationPinned, "/", "~1"), "true"
	}
	return json.Marshal([]operation{add, mark})
}

// decider says whether a pod may be evicted.
type decider struct{ ledger ledger }

func (d decider) judge(ctx context.Context, r *review) (admission.Verdict, error) {
	uid := r.uid()
	pod := d.ledger.CachedPod(r.pod)
	cached := pod != nil && pod.UID == uid
	if !cached {
		live, err := d.ledger.ReadPod(ctx, r.pod)
		if err != nil || live == nil { // which the API server says by itself
			return admission.Verdict{}, err
		}
		if uid == "" {
			return admission.Verdict{}, errNotPinned
		}
		if live.UID != uid {
			return replaced(r), nil
		}
		pod = live
	}
	holder := "eviction/" + string(r.request)
	answer, err := d.ledger.Admit(ctx, reservation.Request{Pod: pod, Holder: holder, DryRun: r.dryRun})
	if err != nil {
		return admission.Verdict{}, err
	}
	said := admission.Verdict{Warnings: answer.Warnings}
	switch {
	case answer.Unsupported:
		said.Denial = &admission.Denial{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: answer.Denial}
	case !answer.Allowed():
		said.Denial = tryAgain(answer.Denial)
	case cached:
		live, err := d.ledger.ReadPod(ctx, r.pod)
		if err != nil {
			d.ledger.GiveUp(r.pod, uid, holder)
			return admission.Verdict{}, err
		}
		if live != nil && live.UID != uid {
			return replaced(r), nil
		}
	}
	return said, nil
}

func tryAgain(message string) *admission.Denial {
	denial := admission.TryAgain(message)
	denial.Cause = policyv1.DisruptionBudgetCause
	return denial
}

// replaced is the verdict about the eviction of a pod that has gone, and whose name another one
// has. What a client asked for the API server refuses, for good; what was chosen for it here is
// chosen anew.
func replaced(r *review) admission.Verdict {
	if r.eviction.Annotations[v1alpha1.AnnotationPinned] == "" {
		return admission.Verdict{}
	}
	return admission.Verdict{Denial: tryAgain(fmt.Sprintf("pod %s has just been replaced by another one of its name, which vicinity-controller does not know yet. Try again.", r.pod.Name))}
}

// errNotPinned says that the other webhook was not asked, or the pod was made after that.
var errNotPinned = errors.New("the eviction is not for the UID of a pod, which the mutating webhook pin.eviction.vicinity.dev has it be")
