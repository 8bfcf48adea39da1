package agent

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// podStatus is what the API shall say of a pod. It begins with what the API says now,
// since conditions of others, and a phase that ended, are to stay.
func podStatus(pod *corev1.Pod, r *record, b backoff, now time.Time) corev1.PodStatus {
	s := *pod.Status.DeepCopy()
	s.ObservedGeneration = pod.Generation
	started := stamp(r.Started)
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
	v := view{pod: pod, record: r, backoff: b, now: now}
	s.InitContainerStatuses = v.containers(pod.Spec.InitContainers, true)
	s.ContainerStatuses = v.containers(pod.Spec.Containers, false)
	s.EphemeralContainerStatuses = v.containers(ephemeral(pod), false)
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

// podAddresses are a pod's addresses: its own, or of its node in the host's network.
func podAddresses(pod *corev1.Pod, r *record) []netip.Addr {
	if pod.Spec.HostNetwork {
		return r.Hosts
	}
	return r.Addresses
}

// stamp is a time as the API keeps it, so that what was written equals what is read.
func stamp(t time.Time) metav1.Time {
	return metav1.NewTime(t.Truncate(time.Second))
}

// view is a pod at a moment.
type view struct {
	pod     *corev1.Pod
	record  *record
	backoff backoff
	now     time.Time
}

// final reports whether nothing of the pod starts again.
func (v view) final() bool {
	return v.pod.DeletionTimestamp != nil || isOver(v.pod, v.record)
}

func (v view) containers(specs []corev1.Container, init bool) []corev1.ContainerStatus {
	if len(specs) == 0 {
		return nil
	}
	statuses := make([]corev1.ContainerStatus, len(specs))
	for i := range specs {
		statuses[i] = v.container(&specs[i], init)
	}
	return statuses
}

func (v view) container(spec *corev1.Container, init bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name:         spec.Name,
		Image:        spec.Image,
		VolumeMounts: mountStatuses(spec),
	}
	c := v.record.Containers[spec.Name]
	started := c.running() && c.Started
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
	case c.running():
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: stamp(c.Current.Begun)}
		s.Ready = c.Started && c.Passing && (!init || isSidecar(spec))
		s.AllocatedResources = spec.Resources.Requests.DeepCopy()
		s.Resources = spec.Resources.DeepCopy()
	case !v.final() && c.Waiting != nil && restarts(v.pod, spec, init, c.Current):
		s.State.Waiting = v.waiting(c)
		s.LastTerminationState.Terminated = terminated(c.Current)
	case !v.final() && c.Current.Replaced:
		// Not terminated: most restart policies say that such a state is the last.
		s.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		s.LastTerminationState.Terminated = terminated(c.Current)
	case !v.final() && v.now.Before(c.NextStart) && restarts(v.pod, spec, init, c.Current):
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

// waiting says why a container does not run yet.
func (v view) waiting(c *container) *corev1.ContainerStateWaiting {
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
		FinishedAt:  stamp(a.Ended),
		ContainerID: containerID(a),
	}
	if !a.Begun.IsZero() {
		t.StartedAt = stamp(a.Begun)
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

// imageID stands where a digest would: a program has none.
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

// phase sums the containers up as the API's documentation of the phases says.
func (v view) phase() corev1.PodPhase {
	if v.record.Failure != nil {
		return corev1.PodFailed
	}
	for i := range v.pod.Spec.InitContainers {
		spec := &v.pod.Spec.InitContainers[i]
		c := v.record.Containers[spec.Name]
		if initDone(spec, c) || mainsBegan(v.pod, v.record) {
			continue
		}
		if c.ended() && !isSidecar(spec) && (v.final() || !restarts(v.pod, spec, true, c.Current)) {
			return corev1.PodFailed
		}
		return corev1.PodPending
	}
	running, ended, failed := 0, 0, 0
	for i := range v.pod.Spec.Containers {
		spec := &v.pod.Spec.Containers[i]
		switch c := v.record.Containers[spec.Name]; {
		case c.running():
			running++
		case c.ended() && !v.final() && restarts(v.pod, spec, false, c.Current):
			running++ // between two attempts
		case c.ended():
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

// sidecarRuns keeps a pod running until its sidecars ended, too.
func (v view) sidecarRuns() bool {
	for i := range v.pod.Spec.InitContainers {
		c := &v.pod.Spec.InitContainers[i]
		if isSidecar(c) && v.record.Containers[c.Name].running() {
			return true
		}
	}
	return false
}
