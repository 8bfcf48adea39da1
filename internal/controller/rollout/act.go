package rollout

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/requester"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	// requesterName is how rollouts ask for evictions.
	requesterName = "vicinity.dev/rollout"
	// batch is how many pods are asked for before the pods are looked at again.
	batch = 50
	// requestTimeout is less than unknownTime.
	requestTimeout = 15 * time.Second
	// restoreAgain is after how long a template is restored again that could not be.
	restoreAgain = 15 * time.Second
)

// todo is what a step says and was not asked for just now.
type todo struct {
	evict, remove, withdraw []rollout.Target
	restore                 string
}

func (t *todo) any() bool {
	return len(t.evict)+len(t.remove)+len(t.withdraw) > 0 || t.restore != ""
}

func (r *reconciler) due(n *notes, v *view, step *rollout.Step, now time.Time) *todo {
	filter := func(all []rollout.Target) (due []rollout.Target) {
		for _, t := range all {
			if v.pods[t.UID] != nil && n.isDue(t.UID, now) && len(due) < batch {
				due = append(due, t)
			}
		}
		return due
	}
	found := &todo{evict: filter(step.Evict), remove: filter(step.Delete), restore: step.Restore}
	for _, t := range filter(step.Withdraw) {
		if len(v.pods[t.UID].Spec.EvictionResponders) > 0 { // of the others no request stands
			found.withdraw = append(found.withdraw, t)
		}
	}
	return found
}

// act does what a step says. What fails leaves the rest to be done.
func (r *reconciler) act(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, v *view, todo *todo) (wait time.Duration, err error) {
	var failed []error
	for _, t := range todo.withdraw {
		n.asked[t.UID] = r.clock.Now()
		failed = append(failed, r.evictor.Withdraw(ctx, v.pods[t.UID], requesterName))
	}
	for _, t := range todo.remove {
		failed = append(failed, r.remove(ctx, n, d, t))
	}
	for _, t := range todo.evict {
		failed = append(failed, r.evict(ctx, n, d, v.pods[t.UID], t))
	}
	if todo.any() {
		wait = askTime
	}
	for _, t := range todo.evict {
		if refusal, refused := n.refused[t.UID]; refused {
			// The step after a denial gives the turn to another pod.
			wait = shell.Sooner(wait, max(time.Millisecond, min(firstDenial, refusal.Until.Sub(r.clock.Now()))))
		}
	}
	if todo.restore != "" {
		wait = restoreAgain
		failed = append(failed, r.restore(ctx, n, d, todo.restore))
	}
	return wait, errors.Join(failed...)
}

// evict requests the eviction of a pod.
func (r *reconciler) evict(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, pod *corev1.Pod, t rollout.Target) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	if t.IfUnready {
		live, err := r.livePod(ctx, d.Namespace, t)
		if err != nil || live == nil {
			return err
		}
		if podOf(live).Ready {
			if err := r.evictor.Withdraw(ctx, pod, requesterName); err != nil {
				return err
			}
			n.deny(t, "it is ready again", r.counts(n, t.UID, r.clock.Now()), r.clock.Now())
			return nil
		}
	}
	delete(n.refused, t.UID)
	n.asked[t.UID] = r.clock.Now()
	outcome, err := r.evictor.Request(ctx, pod, requesterName, fmt.Sprintf("DomainRollout %s updates %s", d.Name, t.Domain))
	if err != nil {
		n.unknown[t.UID] = r.clock.Now()
		r.metrics.requested(requestUnknown)
		return err
	}
	r.metrics.requested(string(outcome.State))
	logOf(ctx, t)("Eviction requested", "rollout", d.Name, "outcome", outcome.State)
	switch outcome.State {
	case requester.Evicted, requester.Gone:
		delete(n.domains, t.Domain)
	case requester.Denied, requester.Refused:
		return r.denied(ctx, n, d, t, strings.Join(outcome.Causes, "; "))
	}
	return nil
}

// denied notes a denial if the pod is there still: an earlier request may have been admitted.
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

// livePod reads a pod; nil if it has gone.
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

// remove deletes a pod of an abandoned revision that is not ready. The pod is marked first, and only what was
// read is deleted: a pod that became ready meanwhile stays.
func (r *reconciler) remove(ctx context.Context, n *notes, d *v1alpha1.DomainRollout, t rollout.Target) error {
	pod, err := r.livePod(ctx, d.Namespace, t)
	if err != nil || pod == nil {
		return err
	}
	if read := podOf(pod); read.Terminating || read.Ready || read.Revision != t.Revision {
		return nil // as the cache will show
	}
	n.asked[t.UID] = r.clock.Now()
	if pod.Annotations[v1alpha1.AnnotationAbandonedRevision] != t.Revision {
		err := shell.Patch(ctx, r.client, pod, shell.SetAnnotation(pod, v1alpha1.AnnotationAbandonedRevision, t.Revision))
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
	t, err := readTarget(ctx, r.live, d)
	if err != nil || t == nil || t.revision != d.Status.Revision {
		return err // a step with what there is now comes first
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
		n.problem = fmt.Sprintf("revision %s is not in the history of the workload any more (spec.revisionHistoryLimit); write its template", revision)
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

// templatePatch is the patch that a revision is stored as, with only the template and a version as the guard.
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
