package agent

import (
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// record is all that the agent knows of a pod beside its object. It is what an agent
// that starts anew finds on disk.
type record struct {
	Node string `json:"node"`
	// Started is when the agent took the pod in.
	Started time.Time `json:"started"`
	// Network is the pod's identity in the fabric, empty as long as it has no network.
	// Pods of the host network and of fake nodes have one, too: it stands for "may start".
	Network   string       `json:"network,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// Hosts are the addresses of the node.
	Hosts []netip.Addr `json:"hosts,omitempty"`
	// Containers are by name; names of init containers and containers never collide.
	Containers map[string]*container `json:"containers,omitempty"`
	// Failure ends the pod whatever its containers do, such as its active deadline.
	Failure *reason `json:"failure,omitempty"`
	// Stopped is when the agent began to stop the pod as a whole.
	Stopped time.Time `json:"stopped,omitzero"`
	// Released says that the pod's network was given back.
	Released bool `json:"released,omitempty"`
}

// reason is a word for machines and a sentence for people.
type reason struct {
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// container is what became of one container of a pod.
type container struct {
	// Current is the newest attempt, running or ended; nil before the first.
	Current *attempt `json:"current,omitempty"`
	// Previous is the attempt before it.
	Previous *attempt `json:"previous,omitempty"`
	// Waiting says why no attempt could be made, such as an image that is none.
	Waiting *reason `json:"waiting,omitempty"`
	// NextStart is the end of the back-off.
	NextStart time.Time `json:"nextStart,omitzero"`
	// Failures counts what the back-off grows with, Refusals how often since the last
	// attempt none could be made.
	Failures int `json:"failures,omitempty"`
	Refusals int `json:"refusals,omitempty"`
	// Started and Passing are what the startup and the readiness probe say.
	Started bool `json:"started,omitempty"`
	Passing bool `json:"passing,omitempty"`
	// Stopping is set from the moment the current attempt was told to end.
	Stopping *stopping `json:"stopping,omitempty"`
}

// attempt is one process of a container.
type attempt struct {
	Number int    `json:"number"`
	ID     string `json:"id"`
	// Image is what the attempt runs, whatever the specification has become.
	Image string `json:"image,omitempty"`
	// Replaced says that it was told to end since the specification has another image:
	// the next attempt is made whatever the restart policy says.
	Replaced bool    `json:"replaced,omitempty"`
	Process  process `json:"process"`
	Keeper   process `json:"keeper"`
	// Input is the keeper's descriptor of what the container reads; 0: nobody can write.
	Input    int       `json:"input,omitempty"`
	Begun    time.Time `json:"begun,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`
	ExitCode int32     `json:"exitCode,omitempty"`
	// Outcome names ends that the exit code does not tell, such as StartError.
	Outcome string `json:"outcome,omitempty"`
	Message string `json:"message,omitempty"`
}

// process names a process beyond doubt: numbers come again, with another start time.
type process struct {
	ID    int    `json:"pid"`
	Start uint64 `json:"start"`
}

// stopping is an order to end a process.
type stopping struct {
	// Deadline is when its time is over.
	Deadline time.Time `json:"deadline"`
	// Least is until when it has in any case: what its pre-stop hook takes away from its
	// time is not all of it.
	Least time.Time `json:"least,omitzero"`
	// Killed says that it was.
	Killed bool `json:"killed,omitempty"`
}

// kill is when the process will be killed.
func (s *stopping) kill() time.Time {
	if s.Least.After(s.Deadline) {
		return s.Least
	}
	return s.Deadline
}

func (c *container) running() bool {
	return c != nil && c.Current != nil && c.Current.Ended.IsZero()
}

func (c *container) ended() bool {
	return c != nil && c.Current != nil && !c.Current.Ended.IsZero()
}

// container returns the entry of a container, made if it has none.
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

// anyRunning reports whether a container of the pod runs.
func (r *record) anyRunning() bool {
	for _, c := range r.Containers {
		if c.running() {
			return true
		}
	}
	return false
}

// isSidecar reports whether an init container is one that runs beside the others.
func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// restarts reports whether a container whose attempt ended will be started again, as
// far as the restart policy is concerned.
func restarts(pod *corev1.Pod, c *corev1.Container, init bool, a *attempt) bool {
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
