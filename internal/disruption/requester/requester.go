// Package requester evicts pods for Vicinity's rollouts and repairs. It decides nothing about budgets:
// eviction webhooks and responders do.
//
// If the API server serves EvictionRequests and the pod names responders, it creates a request for the
// pod and follows it. Otherwise it posts pods/eviction. Both are limited to the UID of the pod.
//
//	r := requester.New(kubernetes.NewForConfigOrDie(config), detector.Served)
//	outcome, err := r.Request(ctx, pod, "vicinity.dev/drain", "node n1 is replaced")
//	err = r.Withdraw(ctx, pod, "vicinity.dev/drain")
//
// Request is idempotent and makes at most three calls to the API server. After a denial the caller must call it again.
package requester

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// State is the state of a request.
type State string

// The states.
const (
	Evicted State = "Evicted" // the pod is being deleted, or has finished
	Waiting State = "Waiting" // responders work on the EvictionRequest
	Denied  State = "Denied"  // a budget does not allow it now
	Gone    State = "Gone"    // the pod no longer exists
	Refused State = "Refused" // never allowed, so a retry does not help
)

// Outcome is the result of a request.
type Outcome struct {
	State State
	// Causes say why the pod is not evicted yet.
	Causes []string
}

// Requester requests evictions. It is safe for concurrent use.
type Requester struct {
	client kubernetes.Interface
	served func() bool
}

// New makes a Requester. served reports whether EvictionRequests are served, as lifecycle.Detector does.
func New(client kubernetes.Interface, served func() bool) *Requester {
	return &Requester{client: client, served: served}
}

// Request requests the eviction of a pod in the name of a requester, a key with a domain such as vicinity.dev/rollout.
// After an error the outcome is unknown, and a retry is safe.
func (r *Requester) Request(ctx context.Context, pod *corev1.Pod, requester, reason string) (Outcome, error) {
	if !r.served() || !hasResponders(pod) {
		return r.evict(ctx, pod, reason, nil)
	}
	// Kubernetes would notice a missing pod only when it processes the request.
	now, err := r.client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID:
		return Outcome{State: Gone}, nil
	case err != nil:
		return Outcome{}, fmt.Errorf("reading pod %s/%s: %w", pod.Namespace, pod.Name, err)
	case now.DeletionTimestamp != nil || now.Status.Phase == corev1.PodSucceeded || now.Status.Phase == corev1.PodFailed:
		return Outcome{State: Evicted}, nil
	}
	request, err := r.ensure(ctx, pod, requester, reason)
	if err != nil {
		return Outcome{}, fmt.Errorf("requesting the eviction of %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return r.progress(ctx, pod, request)
}

// Try returns the outcome of an eviction as a dry run.
func (r *Requester) Try(ctx context.Context, pod *corev1.Pod, reason string) (Outcome, error) {
	return r.evict(ctx, pod, reason, []string{metav1.DryRunAll})
}

// hasResponders reports whether EvictionRequests apply to a pod.
func hasResponders(pod *corev1.Pod) bool {
	return len(pod.Spec.EvictionResponders) > 0 && pod.Spec.SchedulingGroup == nil
}

func (r *Requester) evict(ctx context.Context, pod *corev1.Pod, reason string, dryRun []string) (Outcome, error) {
	eviction := &policyv1.Eviction{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, Annotations: map[string]string{v1alpha1.AnnotationEvictionReason: reason},
		},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID)), DryRun: dryRun},
	}
	// Without MaxRetries(0) the client retries by itself after a denial with a Retry-After.
	err := r.client.CoreV1().RESTClient().Post().MaxRetries(0).Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
		SubResource("eviction").VersionedParams(&metav1.CreateOptions{DryRun: dryRun}, scheme.ParameterCodec).Body(eviction).Do(ctx).Error()
	switch {
	case err == nil:
		return Outcome{State: Evicted}, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err): // another UID has the name
		return Outcome{State: Gone}, nil
	case apierrors.IsTooManyRequests(err):
		return Outcome{State: Denied, Causes: causes(err)}, nil
	case apierrors.IsForbidden(err), apierrors.IsBadRequest(err), apierrors.IsInvalid(err):
		return Outcome{State: Refused, Causes: causes(err)}, nil
	}
	return Outcome{}, fmt.Errorf("evicting %s/%s: %w", pod.Namespace, pod.Name, err)
}

// causes returns the API server's messages about budgets, or else its whole message.
func causes(err error) []string {
	var messages []string
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == policyv1.DisruptionBudgetCause {
				messages = append(messages, cause.Message)
			}
		}
	}
	if len(messages) == 0 {
		messages = append(messages, err.Error())
	}
	return messages
}

// name returns the name of a requester's EvictionRequest for a pod.
func name(pod *corev1.Pod, requester string) string {
	hash := fnv.New32a()
	hash.Write([]byte(requester))
	return fmt.Sprintf("%s-%08x", pod.UID, hash.Sum32())
}

// ensure creates the EvictionRequest, or renews the intent of an existing one.
func (r *Requester) ensure(ctx context.Context, pod *corev1.Pod, requester, reason string) (*lifecyclev1alpha1.EvictionRequest, error) {
	requests := r.client.LifecycleV1alpha1().EvictionRequests(pod.Namespace)
	request, err := requests.Get(ctx, name(pod, requester), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return requests.Create(ctx, &lifecyclev1alpha1.EvictionRequest{
			ObjectMeta: metav1.ObjectMeta{
				Name: name(pod, requester), Annotations: map[string]string{v1alpha1.AnnotationEvictionReason: reason},
				// The garbage collector deletes it with the pod.
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
			},
			Spec: lifecyclev1alpha1.EvictionRequestSpec{
				Target:    lifecyclev1alpha1.EvictionRequestTarget{Pod: &lifecyclev1alpha1.EvictionRequestPodReference{Name: pod.Name, UID: pod.UID}},
				Requester: requester, Intent: lifecyclev1alpha1.EvictionRequestIntentEviction,
			},
		}, metav1.CreateOptions{})
	case err != nil:
		return nil, err
	case request.Spec.Intent != lifecyclev1alpha1.EvictionRequestIntentEviction:
		request.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentEviction
		return requests.Update(ctx, request, metav1.UpdateOptions{})
	}
	return request, nil
}

// progress returns the outcome of an EvictionRequest so far.
func (r *Requester) progress(ctx context.Context, pod *corev1.Pod, request *lifecyclev1alpha1.EvictionRequest) (Outcome, error) {
	status := request.Status
	failed := meta.FindStatusCondition(status.Conditions, string(lifecyclev1alpha1.EvictionConditionFailed))
	switch {
	case status.ObservedGeneration == nil || *status.ObservedGeneration != request.Generation:
		return Outcome{State: Waiting}, nil // the conditions may belong to an earlier intent
	case meta.IsStatusConditionTrue(status.Conditions, string(lifecyclev1alpha1.EvictionConditionTargetEvicted)):
		return Outcome{State: Evicted}, nil
	case failed == nil || failed.Status != metav1.ConditionTrue:
	case failed.Reason == string(lifecyclev1alpha1.EvictionConditionReasonEvictionInvalid):
		return Outcome{State: Refused, Causes: []string{failed.Message}}, nil
	case failed.Reason == string(lifecyclev1alpha1.EvictionConditionReasonNoFurtherResponder):
		// Kubernetes retries a failed request only for a new intent.
		if err := r.withdraw(ctx, request); err != nil {
			return Outcome{}, err
		}
		return Outcome{State: Denied, Causes: []string{failed.Message}}, nil
	}
	return Outcome{State: Waiting, Causes: r.messages(ctx, pod, request.Spec.Requester)}, nil
}

// messages returns those of the responder that works on a pod. They are only for people, so a failed read returns none.
func (r *Requester) messages(ctx context.Context, pod *corev1.Pod, requester string) []string {
	list, err := r.client.LifecycleV1alpha1().Evictions(pod.Namespace).List(ctx, metav1.ListOptions{LabelSelector: requester, ResourceVersion: "0"})
	if err != nil {
		return nil
	}
	var messages []string
	for i := range list.Items {
		if target := list.Items[i].Spec.Target.Pod; target == nil || target.UID != pod.UID {
			continue
		}
		status := &list.Items[i].Status
		for _, responder := range status.TargetResponders {
			for _, report := range status.Responders {
				if responder.State == lifecyclev1alpha1.ResponderStateActive && report.Name == responder.Name && report.Message != nil {
					messages = append(messages, fmt.Sprintf("%s: %s", report.Name, *report.Message))
				}
			}
		}
	}
	return messages
}

// Withdraw withdraws an EvictionRequest. An evicted pod stays evicted.
func (r *Requester) Withdraw(ctx context.Context, pod *corev1.Pod, requester string) error {
	if !r.served() || !hasResponders(pod) {
		return nil
	}
	request, err := r.client.LifecycleV1alpha1().EvictionRequests(pod.Namespace).Get(ctx, name(pod, requester), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err == nil && request.Spec.Intent != lifecyclev1alpha1.EvictionRequestIntentWithdrawn {
		err = r.withdraw(ctx, request)
	}
	if err != nil {
		return fmt.Errorf("withdrawing the request to evict %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}

func (r *Requester) withdraw(ctx context.Context, request *lifecyclev1alpha1.EvictionRequest) error {
	request.Spec.Intent = lifecyclev1alpha1.EvictionRequestIntentWithdrawn
	_, err := r.client.LifecycleV1alpha1().EvictionRequests(request.Namespace).Update(ctx, request, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil // it was deleted with the pod
	}
	return err
}
