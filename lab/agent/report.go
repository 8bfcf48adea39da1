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

// firstReportDelay is how long the first status of a starting pod is held back. Most pods
// are ready by then, and need only one write.
const firstReportDelay = 250 * time.Millisecond

type reporting struct {
	reported *corev1.PodStatus
	changed  bool // something else is to be said
	busy     bool
	wait     time.Duration
	retry    time.Time
}

func (r *reporting) isSettled() bool { return !r.busy && !r.changed }

// reportStatus writes the pod's status if it has changed. It returns when to try again.
func (w *worker) reportStatus(now time.Time) time.Time {
	r := &w.report
	over := podFinished(w.pod)
	ending := w.pod.DeletionTimestamp != nil && !w.record.anyRunning() && !w.record.Released
	if w.gone || ending || over && len(w.record.Containers) == 0 {
		// The object is gone, or a final status follows at once, or an agent that left no
		// record has already written it.
		r.changed = false
		return time.Time{}
	}
	status := podStatus(w.pod, w.record, w.agent.backoff, now)
	r.changed = !equality.Semantic.DeepEqual(*r.reported, status)
	switch {
	case !r.changed || r.busy:
		return time.Time{}
	case now.Before(r.retry):
		return r.retry
	case now.Before(w.begun.Add(firstReportDelay)) && !isWorthReporting(&status):
		return w.begun.Add(firstReportDelay)
	}
	r.busy = true
	pod := w.pod
	go func() {
		said, err := w.agent.patchPod(w.ctx, pod, &status)
		w.post(func() { w.statusReported(said, err) })
	}()
	return time.Time{}
}

func (w *worker) statusReported(pod *corev1.Pod, err error) {
	r := &w.report
	r.busy = false
	switch {
	case err == nil:
		r.wait, r.changed = 0, false
		if !isOlder(pod, w.pod) {
			pod.ManagedFields = nil
			w.pod = pod
		}
		r.reported = &w.pod.Status
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		// The watch will show that the pod is gone or has been replaced.
		r.retry = w.agent.now().Add(time.Second)
	default:
		r.wait = min(max(2*r.wait, 100*time.Millisecond), 5*time.Second)
		r.retry = w.agent.now().Add(r.wait)
		if w.ctx.Err() == nil {
			w.agent.Log.Error("pod status cannot be written", "pod", w.pod.Name, "error", err)
		}
	}
}

// isWorthReporting reports whether a status is more than that of a starting pod.
func isWorthReporting(s *corev1.PodStatus) bool {
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

// patchPod writes the changes of a pod's status, if the pod is still the same.
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

func isOlder(pod, than *corev1.Pod) bool {
	a, errA := strconv.ParseUint(pod.ResourceVersion, 10, 64)
	b, errB := strconv.ParseUint(than.ResourceVersion, 10, 64)
	return errA == nil && errB == nil && a < b
}
