// Package requests is a small controller of EvictionRequests for tests. Kubernetes 1.37 serves their
// API and has no controller for it yet. This one follows the documentation of the API: it makes one
// Eviction for the requests about a pod, activates the pod's responders by priority, cancels withdrawn
// requests, and at last evicts by pods/eviction with a backoff. The API server validates each step.
package requests

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

const (
	// syncPeriod is the interval of syncs.
	syncPeriod = 50 * time.Millisecond
	// heartbeatDeadline is how long a responder may send no heartbeat.
	heartbeatDeadline = 20 * time.Minute
	evictorPriority   = 100
	firstBackoff      = time.Second
	longestBackoff    = 15 * time.Minute
)

// Controller manages the Evictions of one namespace.
type Controller struct {
	client    kubernetes.Interface
	namespace string
	attempts  map[types.UID]*attempt // by Eviction
}

// attempt is the last eviction by the controller.
type attempt struct {
	next    time.Time
	backoff time.Duration
}

// New returns a controller.
func New(client kubernetes.Interface, namespace string) *Controller {
	return &Controller{client: client, namespace: namespace, attempts: map[types.UID]*attempt{}}
}

// Run runs the controller until the context ends, and returns errors other than conflicts.
func (c *Controller) Run(ctx context.Context) error {
	ticker := time.NewTicker(syncPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := c.sync(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("controlling EvictionRequests of %s: %w", c.namespace, err)
		}
	}
}

// target is a pod with its requests and Eviction.
type target struct {
	name      string
	uid       types.UID
	pod       *corev1.Pod // nil if the pod does not exist
	requests  []*lifecyclev1alpha1.EvictionRequest
	evictions []*lifecyclev1alpha1.Eviction
}

// sync syncs all pods.
func (c *Controller) sync(ctx context.Context) error {
	requests, err := c.client.LifecycleV1alpha1().EvictionRequests(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	evictions, err := c.client.LifecycleV1alpha1().Evictions(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	targets := map[types.UID]*target{}
	of := func(name string, uid types.UID) *target {
		if targets[uid] == nil {
			targets[uid] = &target{name: name, uid: uid}
		}
		return targets[uid]
	}
	for i := range requests.Items {
		pod := requests.Items[i].Spec.Target.Pod
		t := of(pod.Name, pod.UID)
		t.requests = append(t.requests, &requests.Items[i])
	}
	for i := range evictions.Items {
		pod := evictions.Items[i].Spec.Target.Pod
		t := of(pod.Name, pod.UID)
		t.evictions = append(t.evictions, &evictions.Items[i])
	}
	if len(targets) == 0 {
		return nil
	}
	// Pods are read last: a pod that is missing now is gone.
	pods, err := c.client.CoreV1().Pods(c.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range pods.Items {
		if t := targets[pods.Items[i].UID]; t != nil {
			t.pod = &pods.Items[i]
		}
	}
	for _, t := range targets {
		err = errors.Join(err, c.syncTarget(ctx, t))
	}
	return err
}

// isWanted reports whether a request asks for the eviction.
func (t *target) isWanted() bool {
	return slices.ContainsFunc(t.requests, func(r *lifecyclev1alpha1.EvictionRequest) bool {
		return r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction && r.DeletionTimestamp == nil
	})
}

func (c *Controller) syncTarget(ctx context.Context, t *target) error {
	slices.SortFunc(t.evictions, func(a, b *lifecyclev1alpha1.Eviction) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	var last *lifecyclev1alpha1.Eviction
	if len(t.evictions) > 0 {
		last = t.evictions[len(t.evictions)-1]
	}
	invalid := ""
	switch {
	case t.pod == nil && last == nil:
		invalid = "Target pod " + t.name + " was not found"
	case t.pod != nil && t.pod.Spec.SchedulingGroup != nil:
		invalid = "Target pod " + t.name + " is part of a PodGroup"
	case t.isWanted() && t.pod != nil && (last == nil || c.isRequestedAgain(t, last)):
		return c.createEviction(ctx, t)
	}
	if last != nil && !isFinal(last.Status.Conditions) {
		if err := c.syncEviction(ctx, t, last); err != nil {
			return err
		}
	}
	return c.updateRequests(ctx, t, last, invalid)
}

// isRequestedAgain reports whether the last Eviction has ended and a request is newer.
func (c *Controller) isRequestedAgain(t *target, last *lifecyclev1alpha1.Eviction) bool {
	return isFinal(last.Status.Conditions) && slices.ContainsFunc(t.requests, func(r *lifecyclev1alpha1.EvictionRequest) bool {
		return r.Spec.Intent == lifecyclev1alpha1.EvictionRequestIntentEviction && (r.Status.ObservedGeneration == nil || *r.Status.ObservedGeneration < r.Generation)
	})
}

// createEviction creates the Eviction of a pod.
func (c *Controller) createEviction(ctx context.Context, t *target) error {
	eviction := &lifecyclev1alpha1.Eviction{
		ObjectMeta: metav1.ObjectMeta{
			Name:   fmt.Sprintf("pod-%d-%s", len(t.evictions)+1, t.uid),
			Labels: map[string]string{lifecyclev1alpha1.EvictionResponderImperativeEviction: string(lifecyclev1alpha1.EvictionParticipantRoleResponder)},
		},
		Spec: lifecyclev1alpha1.EvictionSpec{Target: lifecyclev1alpha1.EvictionTarget{
			Pod: &lifecyclev1alpha1.EvictionPodReference{Name: t.name, UID: t.uid},
		}},
	}
	for _, responder := range t.pod.Spec.EvictionResponders {
		eviction.Labels[responder.Name] = string(lifecyclev1alpha1.EvictionParticipantRoleResponder)
	}
	for _, request := range t.requests {
		eviction.Labels[request.Spec.Requester] = string(lifecyclev1alpha1.EvictionParticipantRoleRequester)
		eviction.OwnerReferences = append(eviction.OwnerReferences, metav1.OwnerReference{
			APIVersion: lifecyclev1alpha1.SchemeGroupVersion.String(), Kind: "EvictionRequest", Name: request.Name, UID: request.UID,
		})
	}
	_, err := c.client.LifecycleV1alpha1().Evictions(c.namespace).Create(ctx, eviction, metav1.CreateOptions{})
	return err
}

// syncEviction writes the status of an Eviction.
func (c *Controller) syncEviction(ctx context.Context, t *target, eviction *lifecyclev1alpha1.Eviction) error {
	changed := eviction.DeepCopy()
	status := &changed.Status
	status.ObservedGeneration = new(changed.Generation)
	status.Requesters = nil
	for _, request := range t.requests {
		intent := lifecyclev1alpha1.RequesterIntent(request.Spec.Intent)
		status.Requesters = append(status.Requesters, lifecyclev1alpha1.Requester{Name: request.Spec.Requester, Intent: intent})
	}
	if len(status.TargetResponders) == 0 && t.pod != nil {
		for _, r := range t.pod.Spec.EvictionResponders {
			status.TargetResponders = append(status.TargetResponders, lifecyclev1alpha1.TargetResponder{Name: r.Name, Priority: r.Priority})
		}
		status.TargetResponders = append(status.TargetResponders, lifecyclev1alpha1.TargetResponder{
			Name: lifecyclev1alpha1.EvictionResponderImperativeEviction, Priority: new(int32(evictorPriority)),
		})
		slices.SortStableFunc(status.TargetResponders, func(a, b lifecyclev1alpha1.TargetResponder) int { return cmp.Compare(*b.Priority, *a.Priority) })
		for i := range status.TargetResponders {
			status.TargetResponders[i].State = lifecyclev1alpha1.ResponderStateInactive
			status.Responders = append(status.Responders, lifecyclev1alpha1.ResponderStatus{Name: status.TargetResponders[i].Name})
		}
		activate(status, 0)
	}
	gone := t.pod == nil || t.pod.Status.Phase == corev1.PodSucceeded || t.pod.Status.Phase == corev1.PodFailed
	active := slices.IndexFunc(status.TargetResponders, func(r lifecyclev1alpha1.TargetResponder) bool {
		return r.State == lifecyclev1alpha1.ResponderStateActive
	})
	evicted, failed := lifecyclev1alpha1.EvictionConditionReasonAwaitingEviction, lifecyclev1alpha1.EvictionConditionReasonAwaitingEviction
	isEvicted, isFailed := gone, !gone && !t.isWanted()
	switch {
	case gone:
		evicted, failed = lifecyclev1alpha1.EvictionConditionReasonPodDeleted, lifecyclev1alpha1.EvictionConditionReasonSucceeded
		finish(status, active, lifecyclev1alpha1.ResponderStateInterrupted)
	case !t.isWanted():
		evicted, failed = lifecyclev1alpha1.EvictionConditionReasonEvictionFailed, lifecyclev1alpha1.EvictionConditionReasonCanceledDueToNoRequesters
		finish(status, active, lifecyclev1alpha1.ResponderStateCanceled)
	case active >= 0 && hasEnded(reportOf(status, active)):
		finish(status, active, lifecyclev1alpha1.ResponderStateInterrupted)
		if active+1 < len(status.TargetResponders) {
			activate(status, active+1)
		} else {
			isFailed = true
			evicted, failed = lifecyclev1alpha1.EvictionConditionReasonEvictionFailed, lifecyclev1alpha1.EvictionConditionReasonNoFurtherResponder
		}
	case active >= 0 && status.TargetResponders[active].Name == lifecyclev1alpha1.EvictionResponderImperativeEviction:
		c.evict(ctx, t, changed, reportOf(status, active))
	}
	setCondition(&status.Conditions, lifecyclev1alpha1.EvictionConditionTargetEvicted, isEvicted, evicted)
	setCondition(&status.Conditions, lifecyclev1alpha1.EvictionConditionFailed, isFailed, failed)
	if equality.Semantic.DeepEqual(eviction.Status, changed.Status) {
		return nil
	}
	written, err := c.client.LifecycleV1alpha1().Evictions(c.namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{})
	if err == nil {
		*eviction = *written
	}
	return err
}

// reportOf returns the report of the responder at an index.
func reportOf(status *lifecyclev1alpha1.EvictionStatus, at int) *lifecyclev1alpha1.ResponderStatus {
	return &status.Responders[slices.IndexFunc(status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool {
		return r.Name == status.TargetResponders[at].Name
	})]
}

// activate starts a responder's turn.
func activate(status *lifecyclev1alpha1.EvictionStatus, at int) {
	status.TargetResponders[at].State = lifecyclev1alpha1.ResponderStateActive
	reportOf(status, at).StartTime = new(metav1.Now())
}

// finish ends a responder's turn.
func finish(status *lifecyclev1alpha1.EvictionStatus, at int, otherwise lifecyclev1alpha1.ResponderStateType) {
	if at < 0 {
		return
	}
	status.TargetResponders[at].State = otherwise
	if reportOf(status, at).CompletionTime != nil && otherwise == lifecyclev1alpha1.ResponderStateInterrupted {
		status.TargetResponders[at].State = lifecyclev1alpha1.ResponderStateCompleted
	}
}

// hasEnded reports whether a responder has completed, or has sent no heartbeat for too long.
func hasEnded(report *lifecyclev1alpha1.ResponderStatus) bool {
	if report.CompletionTime != nil {
		return true
	}
	last := report.StartTime
	if report.HeartbeatTime != nil {
		last = report.HeartbeatTime
	}
	return time.Since(last.Time) > heartbeatDeadline
}

// evict is the turn of the controller itself.
func (c *Controller) evict(ctx context.Context, t *target, eviction *lifecyclev1alpha1.Eviction, report *lifecyclev1alpha1.ResponderStatus) {
	a := c.attempts[eviction.UID]
	if a == nil {
		a = &attempt{backoff: firstBackoff}
		c.attempts[eviction.UID] = a
	}
	if t.pod.DeletionTimestamp != nil || time.Now().Before(a.next) {
		return
	}
	a.next, a.backoff = time.Now().Add(a.backoff), min(2*a.backoff, longestBackoff)
	err := c.client.PolicyV1().Evictions(c.namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: c.namespace, Name: t.name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(t.uid))},
	})
	if err != nil {
		report.Message = new(err.Error())
	}
	report.HeartbeatTime = new(metav1.Now())
}

// updateRequests writes the result to the requests.
func (c *Controller) updateRequests(ctx context.Context, t *target, last *lifecyclev1alpha1.Eviction, invalid string) error {
	for _, request := range t.requests {
		changed := request.DeepCopy()
		changed.Status.ObservedGeneration = new(request.Generation)
		switch {
		case isFinal(request.Status.Conditions) && last == nil:
		case invalid != "":
			setCondition(&changed.Status.Conditions, lifecyclev1alpha1.EvictionConditionTargetEvicted, false, lifecyclev1alpha1.EvictionConditionReasonEvictionFailed)
			setCondition(&changed.Status.Conditions, lifecyclev1alpha1.EvictionConditionFailed, true, lifecyclev1alpha1.EvictionConditionReasonEvictionInvalid)
			meta.FindStatusCondition(changed.Status.Conditions, string(lifecyclev1alpha1.EvictionConditionFailed)).Message = invalid
		case last != nil:
			changed.Status.Conditions = last.Status.Conditions
		}
		if equality.Semantic.DeepEqual(request.Status, changed.Status) {
			continue
		}
		if _, err := c.client.LifecycleV1alpha1().EvictionRequests(c.namespace).UpdateStatus(ctx, changed, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// isFinal reports whether an Eviction has ended, by its conditions.
func isFinal(conditions []metav1.Condition) bool {
	return meta.IsStatusConditionTrue(conditions, string(lifecyclev1alpha1.EvictionConditionTargetEvicted)) ||
		meta.IsStatusConditionTrue(conditions, string(lifecyclev1alpha1.EvictionConditionFailed))
}

func setCondition(conditions *[]metav1.Condition, kind lifecyclev1alpha1.EvictionConditionType, is bool, reason lifecyclev1alpha1.EvictionConditionReason) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(conditions, metav1.Condition{Type: string(kind), Status: status, Reason: string(reason)})
}
