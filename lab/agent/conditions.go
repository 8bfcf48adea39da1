package agent

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// conditions returns the pod's conditions: those that a kubelet sets, then those of others,
// unchanged. s already holds the phase and the containers' statuses.
func conditions(pod *corev1.Pod, r *record, s *corev1.PodStatus, now time.Time) []corev1.PodCondition {
	network := condition(corev1.PodReadyToStartContainers, r.Network != "" && !r.Released)
	initialized := initializedCondition(pod, r, s)
	containersReady := containersReadyCondition(pod, s)
	own := []corev1.PodCondition{network, initialized, readyCondition(pod, containersReady), containersReady}
	if !slices.ContainsFunc(pod.Status.Conditions, ofType(corev1.PodScheduled)) {
		own = append(own, condition(corev1.PodScheduled, true))
	}
	for i := range own {
		c := &own[i]
		c.ObservedGeneration = pod.Generation
		c.LastTransitionTime = apiTime(now)
		was := slices.IndexFunc(pod.Status.Conditions, ofType(c.Type))
		if was >= 0 && pod.Status.Conditions[was].Status == c.Status {
			c.LastTransitionTime = pod.Status.Conditions[was].LastTransitionTime
		}
	}
	for _, c := range pod.Status.Conditions {
		if !slices.ContainsFunc(own, ofType(c.Type)) {
			own = append(own, c)
		}
	}
	return own
}

func ofType(t corev1.PodConditionType) func(corev1.PodCondition) bool {
	return func(c corev1.PodCondition) bool { return c.Type == t }
}

func condition(t corev1.PodConditionType, is bool) corev1.PodCondition {
	c := corev1.PodCondition{Type: t, Status: corev1.ConditionFalse}
	if is {
		c.Status = corev1.ConditionTrue
	}
	return c
}

func initializedCondition(pod *corev1.Pod, r *record, s *corev1.PodStatus) corev1.PodCondition {
	c := condition(corev1.PodInitialized, true)
	var missing []string
	for i := range pod.Spec.InitContainers {
		spec := &pod.Spec.InitContainers[i]
		if !isInitDone(spec, r.Containers[spec.Name]) {
			missing = append(missing, spec.Name)
		}
	}
	switch {
	case s.Phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case len(missing) > 0 && !anyMainStarted(pod, r):
		c.Status, c.Reason = corev1.ConditionFalse, "ContainersNotInitialized"
		c.Message = fmt.Sprintf("containers with incomplete status: %v", missing)
	}
	return c
}

func containersReadyCondition(pod *corev1.Pod, s *corev1.PodStatus) corev1.PodCondition {
	c := condition(corev1.ContainersReady, false)
	var unready []string
	for i, spec := range pod.Spec.InitContainers {
		if isSidecar(&spec) && !s.InitContainerStatuses[i].Ready {
			unready = append(unready, spec.Name)
		}
	}
	for _, status := range s.ContainerStatuses {
		if !status.Ready {
			unready = append(unready, status.Name)
		}
	}
	switch {
	case s.Phase == corev1.PodSucceeded:
		c.Reason = "PodCompleted"
	case s.Phase == corev1.PodFailed:
		c.Reason = "PodFailed"
	case len(unready) > 0:
		c.Reason = "ContainersNotReady"
		c.Message = fmt.Sprintf("containers with unready status: %v", unready)
	default:
		c.Status = corev1.ConditionTrue
	}
	return c
}

// readyCondition combines the readiness of the containers with the readiness gates.
func readyCondition(pod *corev1.Pod, containersReady corev1.PodCondition) corev1.PodCondition {
	c := containersReady
	c.Type = corev1.PodReady
	if c.Status != corev1.ConditionTrue {
		return c
	}
	var closed []string
	for _, gate := range pod.Spec.ReadinessGates {
		i := slices.IndexFunc(pod.Status.Conditions, ofType(gate.ConditionType))
		if i < 0 {
			closed = append(closed, fmt.Sprintf("corresponding condition of pod readiness gate %q does not exist.", gate.ConditionType))
		} else if is := pod.Status.Conditions[i].Status; is != corev1.ConditionTrue {
			closed = append(closed, fmt.Sprintf("the status of pod readiness gate %q is not \"True\", but %v", gate.ConditionType, is))
		}
	}
	if len(closed) > 0 {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "ReadinessGatesNotReady", strings.Join(closed, ", ")
	}
	return c
}
