package agent

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podStatus is the status to report for a pod. It starts from the reported one: conditions
// of others, and a final phase, are kept.
func podStatus(pod *corev1.Pod, r *record, b backoff, now time.Time) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	s.ObservedGeneration = pod.Generation
	started := apiTime(r.Started)
	s.StartTime = &started
	s.HostIP, s.HostIPs, s.PodIP, s.PodIPs = "", nil, "", nil
	for _, addr := range r.Hosts {
		s.HostIPs = append(s.HostIPs, corev1.HostIP{IP: addr.String()})
	}
	if r.Network != "" {
		for _, addr := range podAddresses(pod, r) {
			s.PodIPs = append(s.PodIPs, corev1.PodIP{IP: addr.String()})
		}
	}
	if len(s.HostIPs) > 0 {
		s.HostIP = s.HostIPs[0].IP
	}
	if len(s.PodIPs) > 0 {
		s.PodIP = s.PodIPs[0].IP
	}
	v := podState{pod: pod, record: r, backoff: b, now: now}
	s.InitContainerStatuses = v.containers(pod.Spec.InitContainers, true)
	s.ContainerStatuses = v.containers(pod.Spec.Containers, false)
	s.EphemeralContainerStatuses = v.containers(ephemeralContainers(pod), false)
	for i := range s.EphemeralContainerStatuses {
		s.EphemeralContainerStatuses[i].Ready = false // nobody waits for one
	}
	if s.Phase != corev1.PodFailed && s.Phase != corev1.PodSucceeded {
		s.Phase = v.phase()
	}
	if r.Failure != nil {
		s.Reason, s.Message = r.Failure.Reason, r.Failure.Message
	}
	s.Conditions = conditions(pod, r, &s, now)
	return s
}

// podAddresses are a pod's own addresses, or those of its node in the host's network.
func podAddresses(pod *corev1.Pod, r *record) []netip.Addr {
	if pod.Spec.HostNetwork {
		return r.Hosts
	}
	return r.Addresses
}

// apiTime is a time with the precision of the API, so that a written value equals the one
// read.
func apiTime(t time.Time) metav1.Time {
	return metav1.NewTime(t.Truncate(time.Second))
}

type podState struct {
	pod     *corev1.Pod
	record  *record
	backoff backoff
	now     time.Time
}

// isFinal reports whether nothing of the pod will start again.
func (v podState) isFinal() bool {
	return v.pod.DeletionTimestamp != nil || hasReachedEnd(v.pod, v.record)
}

func (v podState) containers(specs []corev1.Container, init bool) []corev1.ContainerStatus {
	if len(specs) == 0 {
		return nil
	}
	statuses := make([]corev1.ContainerStatus, len(specs))
	for i := range specs {
		statuses[i] = v.container(&specs[i], init)
	}
	return statuses
}

func (v podState) container(spec *corev1.Container, init bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name:         spec.Name,
		Image:        spec.Image,
		VolumeMounts: mountStatuses(spec),
	}
	c := v.record.Containers[spec.Name]
	started := c.isRunning() && c.Started
	s.Started = &started
	if c == nil || c.Current == nil {
		s.State.Waiting = v.waiting(c)
		return s
	}
	s.ContainerID = containerID(c.Current)
	if c.Current.Image != "" {
		s.Image = c.Current.Image
	}
	s.ImageID = imageID(s.Image)
	s.RestartCount = int32(c.Current.Number)
	if c.Previous != nil {
		s.LastTerminationState.Terminated = terminated(c.Previous)
	}
	switch {
	case c.isRunning():
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: apiTime(c.Current.Begun)}
		s.Ready = c.Started && c.Passing && (!init || isSidecar(spec))
		s.AllocatedResources = spec.Resources.Requests.DeepCopy()
		s.Resources = spec.Resources.DeepCopy()
	case !v.isFinal() && c.Waiting != nil && shouldRestart(v.pod, spec, init, c.Current):
		s.State.Waiting = v.waiting(c)
		s.LastTerminationState.Terminated = terminated(c.Current)
	case !v.isFinal() && c.Current.Replaced:
		// Not Terminated, which most restart policies take as final.
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		s.LastTerminationState.Terminated = terminated(c.Current)
	case !v.isFinal() && v.now.Before(c.NextStart) && shouldRestart(v.pod, spec, init, c.Current):
		s.State.Waiting = &corev1.ContainerStateWaiting{
			Reason:  "CrashLoopBackOff",
			Message: backOffMessage(v.pod, spec.Name, v.backoff.after(c.Failures-1)),
		}
		s.LastTerminationState.Terminated = terminated(c.Current)
	default:
		s.State.Terminated = terminated(c.Current)
		s.Ready = init && !isSidecar(spec) && c.Current.ExitCode == 0
	}
	return s
}

func (v podState) waiting(c *container) *corev1.ContainerStateWaiting {
	switch {
	case c != nil && c.Waiting != nil:
		return &corev1.ContainerStateWaiting{Reason: c.Waiting.Reason, Message: c.Waiting.Message}
	case len(v.pod.Spec.InitContainers) > 0:
		return &corev1.ContainerStateWaiting{Reason: "PodInitializing"}
	default:
		return &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	}
}

func terminated(a *attempt) *corev1.ContainerStateTerminated {
	t := &corev1.ContainerStateTerminated{
		ExitCode:    a.ExitCode,
		Reason:      a.Outcome,
		Message:     a.Message,
		FinishedAt:  apiTime(a.Ended),
		ContainerID: containerID(a),
	}
	if !a.Begun.IsZero() {
		t.StartedAt = apiTime(a.Begun)
	}
	if t.Reason == "" {
		t.Reason = "Error"
		if a.ExitCode == 0 {
			t.Reason = "Completed"
		}
	}
	return t
}

func containerID(a *attempt) string { return "vicinity://" + a.ID }

// imageID stands in for a digest, which a program does not have.
func imageID(image string) string { return "vicinity://" + image }

func mountStatuses(spec *corev1.Container) []corev1.VolumeMountStatus {
	var statuses []corev1.VolumeMountStatus
	for _, m := range spec.VolumeMounts {
		s := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			disabled := corev1.RecursiveReadOnlyDisabled
			s.RecursiveReadOnly = &disabled
		}
		statuses = append(statuses, s)
	}
	return statuses
}

func (v podState) phase() corev1.PodPhase {
	if v.record.Failure != nil {
		return corev1.PodFailed
	}
	for i := range v.pod.Spec.InitContainers {
		spec := &v.pod.Spec.InitContainers[i]
		c := v.record.Containers[spec.Name]
		if isInitDone(spec, c) || anyMainStarted(v.pod, v.record) {
			continue
		}
		if c.hasEnded() && !isSidecar(spec) && (v.isFinal() || !shouldRestart(v.pod, spec, true, c.Current)) {
			return corev1.PodFailed
		}
		return corev1.PodPending
	}
	running, ended, failed := 0, 0, 0
	for i := range v.pod.Spec.Containers {
		spec := &v.pod.Spec.Containers[i]
		switch c := v.record.Containers[spec.Name]; {
		case c.isRunning():
			running++
		case c.hasEnded() && !v.isFinal() && shouldRestart(v.pod, spec, false, c.Current):
			running++ // between two attempts
		case c.hasEnded():
			ended++
			if c.Current.ExitCode != 0 {
				failed++
			}
		default:
			return corev1.PodPending
		}
	}
	switch {
	case running > 0 || v.sidecarRuns():
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	case ended > 0:
		return corev1.PodSucceeded
	default:
		return corev1.PodPending
	}
}

// sidecarRuns reports whether a sidecar runs, which keeps the pod in the phase Running.
func (v podState) sidecarRuns() bool {
	for i := range v.pod.Spec.InitContainers {
		c := &v.pod.Spec.InitContainers[i]
		if isSidecar(c) && v.record.Containers[c.Name].isRunning() {
			return true
		}
	}
	return false
}
