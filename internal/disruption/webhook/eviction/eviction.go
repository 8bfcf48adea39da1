// Package eviction has the admission webhook of pods/eviction, which enforces TopologyDisruptionBudgets. The Ledger decides and stores
// reservations.
//
// A review names a pod, but another pod may have the name a moment later. So the webhook decides
// about the pod of a UID, reserves its eviction, and limits the eviction to that UID by a
// precondition. A UID that the client chose stays. Before the webhook admits an
// eviction, it reads the pod live if another pod can have its name by now. If one has, the client must retry, unless it chose the
// UID. One webhook does all of this, because each call may reach a replica whose node has just died.
//
// If the pod does not exist and the client chose no UID, the webhook answers 404 as the API server would, so
// that a new pod of the same name is not evicted. A denial equals one by a PodDisruptionBudget: it has the code
// 429 and a cause of the type DisruptionBudget, so drainers retry. It has no header Retry-After, because
// clients would retry within the call. Direct deletions, such as those by the garbage collector, of a
// node or of a namespace, do not reach the webhook.
//
// # How it is installed
//
//	rules:             CREATE of pods/eviction, v1, scope Namespaced
//	namespaceSelector: vicinity.dev/disruption-budgets=true, without kube-system and Vicinity's own
//	failurePolicy:     Fail
//	timeoutSeconds:    10
//	sideEffects:       NoneOnDryRun
package eviction

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/admission"
)

// Path is where the webhook is served. The previous version had a second webhook at formerPath, which it asked first.
// During an update, that version refuses evictions without a UID at Path, to be retried. During a rollback, its configuration asks
// this version at formerPath, too.
const (
	Path       = "/validate-eviction"
	formerPath = "/mutate-eviction"
)

// timeout bounds a review. The API server waits 10 s, and its own message then neither names the cause nor makes
// clients retry. A shorter bound would cost more: a review that ends too early still stores its reservation, undoes it, and is asked
// for again.
const timeout = 8 * time.Second

type ledger interface {
	Admit(context.Context, reservation.Request) (reservation.Answer, error)
	// GiveUp gives up, in the background, the reservations of an eviction that is refused after all.
	GiveUp(pod types.NamespacedName, uid types.UID, holder string)
	// ReadPod reads the UID and version of a pod live. It returns nil if the pod does not exist.
	ReadPod(context.Context, types.NamespacedName) (*corev1.Pod, error)
	// CachedPod returns a pod of the cache, nil if the cache lacks it.
	CachedPod(types.NamespacedName) *corev1.Pod
}

// Options are what the webhook depends on.
type Options struct {
	Ledger *reservation.Ledger
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register has a manager serve the webhook.
func Register(mgr manager.Manager, o Options) {
	for _, path := range []string{Path, formerPath} {
		admission.Register(mgr, path, newJudge(o.Ledger), options(o.Metrics))
	}
}

func options(m *admission.Metrics) admission.Options {
	return admission.Options{
		Webhook: "eviction", OnFailure: admission.FailClosed, Unjudged: admission.Failed, Metrics: m,
		Complaint: "Eviction is refused, because it cannot be judged", Cause: policyv1.DisruptionBudgetCause, Advice: advice,
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

// uid returns the UID that the client chose, empty without one.
func (r *review) uid() types.UID {
	if o := r.eviction.DeleteOptions; o != nil && o.Preconditions != nil && o.Preconditions.UID != nil {
		return *o.Preconditions.UID
	}
	return ""
}

// judge judges evictions and skips all other requests.
type judge struct{ ledger ledger }

func newJudge(l ledger) func() admission.Judge {
	return admission.OfRequests((&judge{ledger: l}).judge)
}

func (j *judge) judge(ctx context.Context, r *admission.Request, object, _ []byte) (admission.Verdict, error) {
	if r.Operation != "CREATE" || r.SubResource != "eviction" {
		return admission.Verdict{Result: admission.Skipped}, nil
	}
	read := &review{pod: types.NamespacedName{Namespace: r.Namespace, Name: r.Name}, request: types.UID(r.UID), dryRun: r.DryRun}
	if err := json.Unmarshal(object, &read.eviction); err != nil {
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
	return j.decide(ctx, read)
}

// pin makes a patch that limits an eviction to the pod of a UID.
func pin(eviction *policyv1.Eviction, uid types.UID) ([]byte, error) {
	switch o := eviction.DeleteOptions; {
	case o == nil:
		return admission.AddPatch("/deleteOptions", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
	case o.Preconditions == nil:
		return admission.AddPatch("/deleteOptions/preconditions", metav1.Preconditions{UID: &uid})
	}
	return admission.AddPatch("/deleteOptions/preconditions/uid", uid)
}

// decide decides whether a pod may be evicted. It admits the eviction of a UID that no longer exists, so that the API server answers.
func (j *judge) decide(ctx context.Context, r *review) (admission.Verdict, error) {
	pod, chosen := j.ledger.CachedPod(r.pod), r.uid()
	cached := pod != nil && (chosen == "" || pod.UID == chosen)
	if !cached {
		live, err := j.ledger.ReadPod(ctx, r.pod)
		switch {
		case err != nil || chosen != "" && (live == nil || live.UID != chosen):
			return admission.Verdict{}, err
		case live == nil: // a new pod of the same name must not be evicted
			return admission.Verdict{Denial: &admission.Denial{Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound, Message: fmt.Sprintf("pods %q not found", r.pod.Name)}}, nil
		}
		pod = live
	}
	holder := "eviction/" + string(r.request)
	answer, err := j.ledger.Admit(ctx, reservation.Request{Pod: pod, Holder: holder, DryRun: r.dryRun})
	if err != nil {
		return admission.Verdict{}, err
	}
	if answer.Allowed() && ctx.Err() != nil { // the client has given up
		j.ledger.GiveUp(r.pod, pod.UID, holder)
		return admission.Verdict{}, ctx.Err()
	}
	verdict := admission.Verdict{Warnings: answer.Warnings}
	switch {
	case answer.Unsupported:
		verdict.Denial = &admission.Denial{Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError, Message: answer.Denial}
		return verdict, nil
	case !answer.Allowed():
		verdict.Denial = tryAgain(answer.Denial)
		return verdict, nil
	case cached && !isNamedOnce(pod):
		live, err := j.ledger.ReadPod(ctx, r.pod)
		if err != nil || live != nil && live.UID != pod.UID {
			j.ledger.GiveUp(r.pod, pod.UID, holder)
		}
		switch {
		case err != nil:
			return admission.Verdict{}, err
		case live != nil && live.UID != pod.UID && chosen == "": // for a chosen UID the API server refuses
			return replaced(r), nil
		}
	}
	if chosen == "" {
		verdict.Patch, err = pin(&r.eviction, pod.UID)
	}
	return verdict, err
}

// isNamedOnce reports whether no other pod will have the name: a ReplicaSet generates its pods' names at random. If another
// pod has the name nevertheless, the API server refuses the eviction by its UID.
func isNamedOnce(pod *corev1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(pod)
	return owner != nil && owner.Kind == "ReplicaSet"
}

func tryAgain(message string) *admission.Denial {
	denial := admission.TryAgain(message)
	denial.Cause = policyv1.DisruptionBudgetCause
	return denial
}

// replaced is the verdict if another pod now has the name.
func replaced(r *review) admission.Verdict {
	return admission.Verdict{Denial: tryAgain(fmt.Sprintf("pod %s was just replaced by another pod of the same name, which vicinity-controller has not seen yet. Try again.", r.pod.Name))}
}
