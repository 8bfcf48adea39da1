package pacing

import (
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/spread"
)

var phases = map[corev1.PodPhase]spread.Phase{corev1.PodUnknown: spread.Unknown, corev1.PodRunning: spread.Running}

// RankedPod is a pod of a ReplicaSet as package spread sees it, but for its domain.
func RankedPod(pod *corev1.Pod) spread.Pod {
	p := spread.Pod{
		Name: pod.Name, Set: metav1.GetControllerOfNoCopy(pod).Name, Node: pod.Spec.NodeName,
		Phase: phases[pod.Status.Phase], UID: string(pod.UID), Created: pod.CreationTimestamp.Time,
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			p.Ready, p.ReadySince = true, c.LastTransitionTime.Time
		}
	}
	if cost, set := pod.Annotations[corev1.PodDeletionCost]; set {
		p.Cost, p.Foreign = deletionCost(cost), pod.Annotations[v1alpha1.AnnotationDeletionCost] != cost
	}
	return p
}

// deletionCost reads a cost as ReplicaSets do: what they do not accept is 0.
func deletionCost(text string) int32 {
	if strings.HasPrefix(text, "+") || strings.HasPrefix(text, "0") {
		return 0
	}
	cost, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0
	}
	return int32(cost)
}

// isActive reports whether a ReplicaSet counts a pod.
func isActive(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// GoesUntil is until when the cost of a pod that is to go by a paced scale-down stays as it is, zero if the pod is none or the time
// is over. A time that no Pacer writes counts for nothing.
func GoesUntil(pod *corev1.Pod, now time.Time) time.Time {
	until, err := time.Parse(time.RFC3339, pod.Annotations[v1alpha1.AnnotationGoesUntil])
	if err != nil || !until.After(now) || until.After(now.Add(disruption.ReservationTime+disruption.ClockSkew)) {
		return time.Time{}
	}
	return until
}
