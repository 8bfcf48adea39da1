package agent

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// record is all that the agent knows of a pod beside its object. A new agent reads it from
// disk.
type record struct {
	Node string `json:"node"`
	// Started is when the agent first saw the pod.
	Started time.Time `json:"started"`
	// Network identifies the pod's network, empty as long as it has none. Pods in the
	// host's network and on fake nodes have one too: it means that containers may start.
	Network   string       `json:"network,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	Hosts     []netip.Addr `json:"hosts,omitempty"`
	// Containers are by name: init containers and others never share one.
	Containers map[string]*container `json:"containers,omitempty"`
	// Failure ends the pod whatever its containers do, as its active deadline does.
	Failure *reason `json:"failure,omitempty"`
	// Stopped is when the agent began to stop the whole pod.
	Stopped time.Time `json:"stopped,omitzero"`
	// Released means that the pod's network was removed.
	Released bool `json:"released,omitempty"`
}

type reason struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

type container struct {
	// Current is the newest attempt, running or ended; nil before the first one.
	Current  *attempt `json:"current,omitempty"`
	Previous *attempt `json:"previous,omitempty"`
	// Waiting is why no attempt could be made, such as an unknown image.
	Waiting   *reason   `json:"waiting,omitempty"`
	NextStart time.Time `json:"nextStart,omitzero"`
	// Failures is what the back-off grows with. Refusals counts how often no attempt could
	// be made since the last one.
	Failures int `json:"failures,omitempty"`
	Refusals int `json:"refusals,omitempty"`
	// Started and Passing are the results of the startup and the readiness probe.
	Started bool `json:"started,omitempty"`
	Passing bool `json:"passing,omitempty"`
	// Stopping is set while the current attempt is being stopped.
	Stopping *stopping `json:"stopping,omitempty"`
}

type attempt struct {
	Number int    `json:"number"`
	ID     string `json:"id"`
	// Image is the image that the attempt runs, even if the spec has changed.
	Image string `json:"image,omitempty"`
	// Replaced means that the attempt was stopped because the spec has another image: the
	// next one starts whatever the restart policy says.
	Replaced bool      `json:"replaced,omitempty"`
	Process  processID `json:"process"`
	Keeper   processID `json:"keeper"`
	// Input is the keeper's descriptor of the container's input; 0 if it has none.
	Input    int       `json:"input,omitempty"`
	Begun    time.Time `json:"begun,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int32     `json:"exitCode,omitempty"`
	// Outcome is a reason that does not follow from the exit code, such as StartError.
	Outcome string `json:"outcome,omitempty"`
	Message string `json:"message,omitempty"`
}

// processID identifies a process: a number is reused, but with another start time.
type processID struct {
	ID    int    `json:"pid"`
	Start uint64 `json:"start"`
}

type stopping struct {
	Deadline time.Time `json:"deadline"`
	// Least is the earliest time to kill the container: it gets some time to end after its
	// pre-stop hook even if that used up the grace period.
	Least  time.Time `json:"least,omitzero"`
	Killed bool      `json:"killed,omitempty"`
}

func (s *stopping) killAt() time.Time {
	if s.Least.After(s.Deadline) {
		return s.Least
	}
	return s.Deadline
}

func (c *container) isRunning() bool {
	return c != nil && c.Current != nil && c.Current.Ended.IsZero()
}

func (c *container) hasEnded() bool {
	return c != nil && c.Current != nil && !c.Current.Ended.IsZero()
}

func (r *record) container(name string) *container {
	c := r.Containers[name]
	if c == nil {
		c = &container{}
		if r.Containers == nil {
			r.Containers = map[string]*container{}
		}
		r.Containers[name] = c
	}
	return c
}

func (r *record) anyRunning() bool {
	for _, c := range r.Containers {
		if c.isRunning() {
			return true
		}
	}
	return false
}

// isSidecar reports whether an init container keeps running beside the others.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// shouldRestart reports whether the restart policy starts a container again after an
// attempt.
func shouldRestart(pod *corev1.Pod, c *corev1.Container, init bool, a *attempt) bool {
	policy := corev1.ContainerRestartPolicy(pod.Spec.RestartPolicy)
	if c.RestartPolicy != nil {
		policy = *c.RestartPolicy
	}
	switch {
	case a.Replaced || init && isSidecar(c):
		return true
	case init:
		return a.ExitCode != 0 && policy != corev1.ContainerRestartPolicyNever
	case policy == corev1.ContainerRestartPolicyNever:
		return false
	case policy == corev1.ContainerRestartPolicyOnFailure:
		return a.ExitCode != 0
	default:
		return true
	}
}
