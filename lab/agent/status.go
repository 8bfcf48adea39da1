package agent

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// fakeStatus is the status of a running pod. It keeps the conditions of other writers.
func fakeStatus(w fakeWork, now time.Time) corev1.PodStatus {
	s := *w.pod.Status.DeepCopy()
	at := apiTime(now)
	s.ObservedGeneration, s.Phase, s.StartTime = w.pod.Generation, corev1.PodRunning, &at
	s.HostIPs, s.PodIPs = nil, nil
	for _, addr := range w.node.shape.NodeAddrs(w.node.Node) {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: addr.String()})
		if w.pod.Spec.HostNetwork {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: addr.String()})
		}
	}
	if w.slot != 0 && !w.pod.Spec.HostNetwork {
		for _, addr := range w.node.shape.PodAddrs(w.node.Node, int(w.slot)) {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: addr.String()})
		}
	}
	s.HostIP, s.PodIP = s.HostIPs[0].IP, ""
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	s.InitContainerStatuses = containerStatuses(w.pod, w.pod.Spec.InitContainers, true, at)
	s.ContainerStatuses = containerStatuses(w.pod, w.pod.Spec.Containers, false, at)
	s.Conditions = conditions(w.pod, at)
	return s
}

// apiTime truncates a time to the precision of the API.
func apiTime(t time.Time) metav1.Time { return metav1.NewTime(t.Truncate(time.Second)) }

func containerStatuses(pod *corev1.Pod, specs []corev1.Container, init bool, at metav1.Time) []corev1.ContainerStatus {
	var statuses []corev1.ContainerStatus
	for i := range specs {
		spec := &specs[i]
		id := fmt.Sprintf("vicinity://%x", sha256.Sum256(fmt.Appendf(nil, "%s/%s", pod.UID, spec.Name)))
		s := corev1.ContainerStatus{Name: spec.Name, Image: spec.Image, ImageID: "vicinity://" + spec.Image, ContainerID: id, Ready: true}
		if init && (spec.RestartPolicy == nil || *spec.RestartPolicy != corev1.ContainerRestartPolicyAlways) {
			s.Started = new(false)
			s.State.Terminated = &corev1.ContainerStateTerminated{Reason: "Completed", StartedAt: at, FinishedAt: at, ContainerID: id}
		} else {
			s.Started = new(true)
			s.State.Running = &corev1.ContainerStateRunning{StartedAt: at}
		}
		statuses = append(statuses, s)
	}
	return statuses
}

// conditions returns a kubelet's conditions, all true unless a readiness gate is closed, and those of
// others.
func conditions(pod *corev1.Pod, at metav1.Time) []corev1.PodCondition {
	var own []corev1.PodCondition
	for _, t := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		was := slices.IndexFunc(pod.Status.Conditions, ofType(t))
		if t == corev1.PodScheduled && was >= 0 {
			continue
		}
		c := corev1.PodCondition{Type: t, Status: corev1.ConditionTrue, ObservedGeneration: pod.Generation, LastTransitionTime: at}
		if t == corev1.PodReady && !gatesOpen(pod) {
			c.Status, c.Reason = corev1.ConditionFalse, "ReadinessGatesNotReady"
		}
		if was >= 0 && pod.Status.Conditions[was].Status == c.Status {
			c.LastTransitionTime = pod.Status.Conditions[was].LastTransitionTime
		}
		own = append(own, c)
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

func gatesOpen(pod *corev1.Pod) bool {
	return !slices.ContainsFunc(pod.Spec.ReadinessGates, func(gate corev1.PodReadinessGate) bool {
		at := slices.IndexFunc(pod.Status.Conditions, ofType(gate.ConditionType))
		return at < 0 || pod.Status.Conditions[at].Status != corev1.ConditionTrue
	})
}
