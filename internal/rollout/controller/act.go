package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	// requesterName is the requester of evictions.
	requesterName = v1alpha1.RequesterRollout
	// batch is the number of evictions that are requested before the pods are read again.
	batch = 50
	// parallel bounds concurrent requests.
	parallel = 8
	// requestTimeout is less than unknownTime.
	requestTimeout = 15 * time.Second
	// restoreAgain is the wait after a failed restoration of a template.
	restoreAgain = 15 * time.Second
	// planTime is the interval of reading routing plans that keep a wave from starting.
	planTime = 10 * time.Second
	// actTime bounds the requests of a step.
	actTime = 10 * time.Second
)

// todo has the parts of a step that were not requested just now.
type todo struct {
	evict, remove, withdraw []rollout.Target
	restore                 string
	begin                   time.Time // when act began
	// later is when time alone makes more to do, zero for never.
	later time.Duration
}

func (t *todo) any() bool {
	return len(t.evict)+len(t.remove)+len(t.withdraw) > 0 || t.restore != ""
}

func (r *reconciler) due(n *notes, v *view, step *rollout.Step, now time.Time) *todo {
	found := &todo{restore: step.Restore}
	filter := func(all []rollout.Target, left func(uid string) time.Duration) (due []rollout.Target) {
		for _, t := range all {
			switch left := left(t.UID); {
			case v.pods[t.UID] == nil:
			case left > 0:
				found.later = shell.Sooner(found.later, left)
			case len(due) == batch:
				found.later = shell.Sooner(found.later, gatherTime)
			default:
				due = append(due, t)
			}
		}
		return due
	}
	asked := func(uid string) time.Duration { return wait(n.asked, uid, now) }
	found.remove = filter(step.Delete, asked)
	// After a denial the rest of the domain waits. So pods take turns. Otherwise the last pods of the step would never be requested.
	turns := slices.Clone(step.Evict)
	if v.fleet != nil {
		turns, asked = v.fleet.due(turns, &step.Memory, asked)
	}
	slices.SortStableFunc(turns, func(a, b rollout.Target) int { return n.refused[a.UID].Until.Compare(n.refused[b.UID].Until) })
	found.evict = filter(turns, func(uid string) time.Duration {
		return max(asked(uid), v.state.Refusals[uid].Until.Sub(now))
	})
	standing := slices.DeleteFunc(slices.Clone(step.Withdraw), func(t rollout.Target) bool {
		return v.pods[t.UID] == nil || len(v.pods[t.UID].Spec.EvictionResponders) == 0 // it has no standing request
	})
	found.withdraw = filter(standing, func(uid string) time.Duration { return wait(n.withdrawn, uid, now) })
	return found
}

// act carries out a step, and returns after how long to look again. A failed part does not stop the others. After a denial the rest of the
// domain waits.
func (r *reconciler) act(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view, todo *todo) (time.Duration, error) {
	var failed []error
	todo.begin = r.clock.Now()
	for _, t := range todo.withdraw {
		failed = append(failed, r.withdraw(ctx, n, v.pods[t.UID]))
	}
	for _, t := range todo.remove {
		failed = append(failed, r.remove(ctx, n, d, t))
	}
	evicted, err := r.takeDown(ctx, n, d, v, todo)
	failed = append(failed, err)
	after := shell.Sooner(todo.later, evicted)
	if todo.any() {
		after = shell.Sooner(after, askTime)
	}
	if todo.restore != "" {
		after = restoreAgain
		failed = append(failed, r.restore(ctx, n, d, todo.restore))
	}
	return after, errors.Join(failed...)
}

// takeDown requests evictions, several at once. Each domain starts with one pod, and doubles the number when all are admitted. So an
// exhausted budget gets few requests.
func (r *reconciler) takeDown(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view, todo *todo) (after time.Duration, err error) {
	var failed []error
	left := todo.evict
	most := parallel
	if v.fleet != nil { // each release depends on the earlier ones
		most = 1
	}
	widths := map[string]int{}
	for len(left) > 0 {
		if r.clock.Since(todo.begin) > actTime { // the pods of the step may be outdated
			after = shell.Sooner(after, time.Millisecond)
			break
		}
		var group []rollout.Target
		group, left = splitGroup(left, widths, most)
		if v.fleet != nil {
			failed = append(failed, r.surge(ctx, n, d, v, group[0]))
		} else {
			failed = append(failed, r.evict(ctx, n, d, v, group))
		}
		denied := map[string]bool{}
		for _, t := range group {
			if refusal, refused := n.refused[t.UID]; refused {
				denied[t.Domain] = true
				// After a denial, the next step gives another pod its turn.
				after = shell.Sooner(after, max(time.Millisecond, min(firstDenial, refusal.Until.Sub(r.clock.Now()))))
			}
		}
		left = slices.DeleteFunc(left, func(t rollout.Target) bool { return denied[t.Domain] })
	}
	return after, errors.Join(failed...)
}

// splitGroup takes the next pods, and doubles the width of their domains.
func splitGroup(all []rollout.Target, widths map[string]int, most int) (group, left []rollout.Target) {
	taken := map[string]int{}
	for _, t := range all {
		if len(group) < most && taken[t.Domain] < max(1, widths[t.Domain]) {
			group = append(group, t)
			taken[t.Domain]++
		} else {
			left = append(left, t)
		}
	}
	for domain := range taken {
		widths[domain] = 2 * max(1, widths[domain])
	}
	return group, left
}

// evict requests the eviction of several pods concurrently, and notes the answers in order.
func (r *reconciler) evict(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view, group []rollout.Target) error {
	answers := make([]answer, len(group))
	var requests sync.WaitGroup
	for i, t := range group {
		requests.Go(func() { answers[i] = r.request(ctx, d, v.pods[t.UID], t) })
	}
	requests.Wait()
	failed := make([]error, len(group))
	now := r.clock.Now()
	for i, t := range group {
		failed[i] = answers[i].err
		answers[i].rollout, answers[i].pod, answers[i].at = d.Name, v.pods[t.UID], now
		r.noteAnswer(ctx, n, t, &answers[i])
	}
	return errors.Join(failed...)
}

// answer is the outcome of a request.
type answer struct {
	rollout string
	pod     *corev1.Pod
	at      time.Time
	// isRequested says that a request was made, and isUnknown that its outcome is unknown.
	isRequested, isUnknown bool
	outcome                requester.Outcome
	stays                  string // why the pod stays
	err                    error
}

// request requests the eviction of a pod. It does not touch notes, because it runs concurrently.
func (r *reconciler) request(ctx context.Context, d *v1alpha1.DomainRollout, pod *corev1.Pod, t rollout.Target) (a answer) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if t.IfUnready {
		live, err := r.livePod(ctx, d.Namespace, t)
		if err != nil || live == nil {
			return answer{err: err}
		}
		if podOf(live).Ready {
			if err := r.evictor.Withdraw(ctx, pod, requesterName); err != nil {
				return answer{err: err}
			}
			return answer{stays: "it is ready again"}
		}
	}
	a.isRequested = true
	a.outcome, a.err = r.evictor.Request(ctx, pod, requesterName, fmt.Sprintf("DomainRollout %s updates %s", d.Name, t.Domain))
	if a.err != nil {
		a.isUnknown, a.stays = true, "the outcome of the request is unknown: "+a.err.Error()
		return a
	}
	if a.outcome.State == requester.Denied || a.outcome.State == requester.Refused {
		var live *corev1.Pod
		live, a.err = r.livePod(ctx, d.Namespace, t)
		if a.err == nil && live != nil && live.DeletionTimestamp == nil { // an earlier request may have been admitted
			a.stays = strings.Join(a.outcome.Causes, "; ")
		}
	}
	return a
}

// noteAnswer notes the answer to a request.
func (r *reconciler) noteAnswer(ctx context.Context, n *notes, t rollout.Target, a *answer) {
	now := a.at
	if a.isRequested {
		delete(n.refused, t.UID)
		delete(n.withdrawn, t.UID)
		if len(a.pod.Spec.EvictionResponders) > 0 {
			n.standing[t.UID] = a.pod.Name
		}
		outcome := a.outcome.State
		if a.isUnknown {
			n.unknown[t.UID] = now
			outcome = requestUnknown
		}
		r.metrics.requested(outcome)
		logOf(ctx, t)("Eviction requested", "rollout", a.rollout, "outcome", outcome)
	}
	switch {
	case a.isUnknown:
		n.deny(t, a.stays, false, now)
	case a.stays != "":
		delete(n.asked, t.UID)
		n.deny(t, a.stays, r.counts(n, t.UID, now), now)
	case a.outcome.State == requester.Evicted, a.outcome.State == requester.Gone:
		n.admit(t.Domain, now)
		ask(n.asked, t.UID, now, askTime)
	case a.outcome.State == requester.Waiting:
		ask(n.asked, t.UID, now, longestWaiting).says = strings.Join(a.outcome.Causes, "; ")
	}
}

// withdraw takes back the EvictionRequest for a pod.
func (r *reconciler) withdraw(ctx context.Context, n *notes, pod *corev1.Pod) error {
	uid := string(pod.UID)
	ask(n.withdrawn, uid, r.clock.Now(), longestWithdrawn)
	if err := r.evictor.Withdraw(ctx, pod, requesterName); err != nil {
		return err
	}
	delete(n.asked, uid)
	delete(n.standing, uid)
	return nil
}

// callOff withdraws the requests of a deleted or invalid DomainRollout. It returns after how long to look again, zero if nothing is left.
func (r *reconciler) callOff(ctx context.Context, n *notes, namespace string, names map[string]string) (after time.Duration, err error) {
	var failed []error
	for uid, name := range names {
		pod := &corev1.Pod{}
		switch err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, pod); {
		case apierrors.IsNotFound(err) || err == nil && (string(pod.UID) != uid || len(pod.Spec.EvictionResponders) == 0):
			delete(n.standing, uid)
			continue
		case err != nil:
			failed = append(failed, fmt.Errorf("reading pod %s/%s: %w", namespace, name, err))
			continue
		}
		if wait(n.withdrawn, uid, r.clock.Now()) == 0 {
			failed = append(failed, r.withdraw(ctx, n, pod))
		}
		after = shell.Sooner(after, max(time.Millisecond, wait(n.withdrawn, uid, r.clock.Now())))
	}
	return after, errors.Join(failed...)
}

// denied notes a denial if the pod still exists: an earlier request may have been admitted.
func (r *reconciler) denied(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, t rollout.Target, reason string) error {
	live, err := r.livePod(ctx, d.Namespace, t)
	if err != nil || live == nil || live.DeletionTimestamp != nil {
		return err
	}
	now := r.clock.Now()
	delete(n.asked, t.UID)
	n.deny(t, reason, r.counts(n, t.UID, now), now)
	return nil
}

// livePod reads a pod live. It returns nil if the pod is gone.
func (r *reconciler) livePod(ctx context.Context, namespace string, t rollout.Target) (*corev1.Pod, error) {
	pod := &corev1.Pod{}
	err := r.live.Get(ctx, client.ObjectKey{Namespace: namespace, Name: t.Pod}, pod)
	switch {
	case apierrors.IsNotFound(err) || err == nil && string(pod.UID) != t.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s/%s: %w", namespace, t.Pod, err)
	}
	return pod, nil
}

// remove deletes an unready pod of an abandoned revision. It marks the pod first, and deletes only the version that it read, so that a pod
// that becomes ready meanwhile stays.
func (r *reconciler) remove(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, t rollout.Target) error {
	pod, err := r.livePod(ctx, d.Namespace, t)
	if err != nil || pod == nil {
		return err
	}
	if read := podOf(pod); read.Terminating || read.Ready || read.Revision != t.Revision {
		return nil // the cache will show it
	}
	ask(n.asked, t.UID, r.clock.Now(), askTime)
	if pod.Annotations[v1alpha1.AnnotationAbandonedRevision] != t.Revision {
		err := shell.Patch(ctx, r.client, pod, []shell.Operation{shell.Guard(pod), shell.SetAnnotation(pod, v1alpha1.AnnotationAbandonedRevision, t.Revision)})
		if err != nil {
			delete(n.asked, t.UID)
			return marked(pod, err)
		}
	}
	if err := shell.Delete(ctx, r.client, pod); err != nil {
		delete(n.asked, t.UID)
		return marked(pod, err)
	}
	r.metrics.requested(requestDeleted)
	logOf(ctx, t)("Pod of an abandoned revision deleted", "rollout", d.Name)
	return nil
}

func marked(pod *corev1.Pod, err error) error {
	if shell.IsChanged(err) {
		return err
	}
	return fmt.Errorf("deleting pod %s/%s of an abandoned revision: %w", pod.Namespace, pod.Name, err)
}

// restore gives the workload the template of a revision.
func (r *reconciler) restore(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, revision string) error {
	t, err := r.readTarget(ctx, r.live, d)
	if err != nil || t == nil || t.problem != nil || t.revision != d.Status.Revision {
		return err // the next step reads it again
	}
	if t.isCustom { // the API refuses to ask for it
		n.problem = "Vicinity writes no template of a " + d.Spec.TargetRef.Kind + "; write that of revision " + revision
		return nil
	}
	if t.deployment != nil {
		return r.restoreDeployment(ctx, n, t, revision)
	}
	var name string
	err = eachRevision(ctx, r.client, t.object, func(c *appsv1.ControllerRevision) {
		if revisionName(c) == revision {
			name = c.Name
		}
	})
	if err != nil {
		return err
	}
	stored := &appsv1.ControllerRevision{}
	if name != "" {
		err = r.live.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: name}, stored)
	}
	if name == "" || apierrors.IsNotFound(err) {
		n.problem = fmt.Sprintf("revision %s is no longer in the history of the workload (spec.revisionHistoryLimit); write its template", revision)
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading revision %s: %w", name, err)
	}
	patch, err := templatePatch(stored.Data.Raw, t.object.GetResourceVersion())
	if err != nil {
		n.problem = fmt.Sprintf("the template of revision %s cannot be read; write the one that should run", revision)
		return nil
	}
	if err := r.client.Patch(ctx, t.object, client.RawPatch(types.StrategicMergePatchType, patch)); err != nil {
		if err = shell.Changed(err); shell.IsChanged(err) {
			return err
		}
		n.problem = fmt.Sprintf("the template cannot be written: %v", err)
		return fmt.Errorf("restoring revision %s: %w", name, err)
	}
	n.problem = ""
	return nil
}

// templatePatch returns the template of a stored revision as a patch that fails if the workload has another version.
func templatePatch(revision []byte, version string) ([]byte, error) {
	var stored struct {
		Spec struct {
			Template json.RawMessage `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(revision, &stored); err != nil {
		return nil, err
	}
	if len(stored.Spec.Template) == 0 {
		return nil, errors.New("it has no template")
	}
	return json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": version},
		"spec":     map[string]any{"template": stored.Spec.Template},
	})
}
