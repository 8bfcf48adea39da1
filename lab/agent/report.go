package agent

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
)

// patience is how long a pod that starts is given before the first word about it: most
// are ready by then, and one write says it all.
const patience = 250 * time.Millisecond

// reporting is what a worker told the API, and is about to.
type reporting struct {
	said   *corev1.PodStatus
	wanted bool // something else is to be said
	busy   bool
	wait   time.Duration
	retry  time.Time
}

// settled reports whether the API knows all there is.
func (r *reporting) settled() bool { return !r.busy && !r.wanted }

// tell writes the pod's status if it changed. It returns when to try again.
func (w *worker) tell(now time.Time) time.Time {
	r := &w.report
	over := podOver(w.pod)
	ending := w.pod.DeletionTimestamp != nil && !w.r.anyRunning() && !w.r.Released
	if w.gone || ending || over && len(w.r.Containers) == 0 {
		// Nobody asks any more, or there is more to say in a moment, or all was said by
		// an agent that left no record.
		r.wanted = false
		return time.Time{}
	}
	status := podStatus(w.pod, w.r, w.agent.backoff, now)
	r.wanted = !equality.Semantic.DeepEqual(*r.said, status)
	switch {
	case !r.wanted || r.busy:
		return time.Time{}
	case now.Before(r.retry):
		return r.retry
	case now.Before(w.begun.Add(patience)) && !worthTelling(&status):
		return w.begun.Add(patience)
	}
	r.busy = true
	pod := w.pod
	go func() {
		said, err := w.agent.patchPod(w.ctx, pod, &status)
		w.mail(func() { w.told(said, err) })
	}()
	return time.Time{}
}

// told takes in what came of a write.
func (w *worker) told(pod *corev1.Pod, err error) {
	r := &w.report
	r.busy = false
	switch {
	case err == nil:
		r.wait, r.wanted = 0, false
		if !older(pod, w.pod) {
			pod.ManagedFields = nil
			w.pod = pod
		}
		r.said = &w.pod.Status
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		// The watch will say that the pod is no more, or another of its name.
		r.retry = w.agent.now().Add(time.Second)
	default:
		r.wait = min(max(2*r.wait, 100*time.Millisecond), 5*time.Second)
		r.retry = w.agent.now().Add(r.wait)
		if w.ctx.Err() == nil {
			w.agent.log.Error("pod status cannot be written", "pod", w.pod.Name, "error", err)
		}
	}
}

// worthTelling reports whether a status is more than that of a pod that starts.
func worthTelling(s *corev1.PodStatus) bool {
	if s.Phase == corev1.PodSucceeded || s.Phase == corev1.PodFailed {
		return true
	}
	for _, c := range s.Conditions {
		if c.Type == corev1.ContainersReady && c.Status == corev1.ConditionTrue {
			return true
		}
	}
	for _, list := range [][]corev1.ContainerStatus{s.InitContainerStatuses, s.ContainerStatuses} {
		for _, c := range list {
			waiting := c.State.Waiting
			if c.RestartCount > 0 || waiting != nil && waiting.Reason != "ContainerCreating" && waiting.Reason != "PodInitializing" {
				return true
			}
		}
	}
	return false
}

// patchPod writes what differs in a pod's status, if the pod is still the same.
func (a *agent) patchPod(ctx context.Context, pod *corev1.Pod, status *corev1.PodStatus) (*corev1.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	before, err := json.Marshal(&corev1.Pod{Status: pod.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: pod.UID}, Status: *status})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, &corev1.Pod{})
	if err != nil {
		return nil, err
	}
	return a.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
}

// older reports whether a pod's state is from before another's.
func older(pod, than *corev1.Pod) bool {
	a, errA := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	b, errB := strconv.ParseUint(than.ResourceVersion, 10, 64)
	return errA == nil && errB == nil && a < b
}
