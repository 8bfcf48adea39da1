package rollout

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// Words has the sentences about one DomainRollout.
type Words struct {
	Namespace, Name string // of the DomainRollout
	Key             string // of the domains
}

// Waiting says what the rollout waits for and what to do about it. It is empty if there is nothing.
func (r Words) Waiting(w Wait) string {
	switch w.For {
	case WaitEvicting:
		return fmt.Sprintf("waits for %s to go%s", r.pods(w), orFails(w.Until))
	case WaitMissing:
		return fmt.Sprintf("waits for a pod in the place of %s%s", r.pods(w), orFails(w.Until))
	case WaitUnplaced:
		return fmt.Sprintf("waits for a node for %s%s; the events of the pod say what it needs", r.pods(w), orFails(w.Until))
	case WaitUnready:
		return fmt.Sprintf("waits for %s to be ready%s", r.pods(w), orFails(w.Until))
	case WaitReadyFor:
		return fmt.Sprintf("waits for %s to stay ready until %s", r.pods(w), plaintext.Clock(w.Until))
	case WaitRefused:
		return fmt.Sprintf("may not evict %s: %s%s", r.pods(w), w.Reason, again(w.Until))
	case WaitDown:
		return fmt.Sprintf("takes no more pods of %s: %s down (%s), and at most %d may be", r.Domain(w.Domain), plaintext.PluralVerb(w.Down, "pod", "is", "are"), more(w.Pod, w.More), w.Most)
	case WaitOrder:
		said := fmt.Sprintf("takes no pod of %s: pod %s is not ready, and the StatefulSet makes no later pod before it is", r.Domain(w.Domain), w.Pod)
		if w.Approve != "" {
			said += fmt.Sprintf(". It is replaced once %s is among spec.approved.domains", r.Domain(w.Approve))
		}
		return said
	case WaitEarlier:
		return fmt.Sprintf("begins no other wave while %s not healthy", isOrAre(r.pods(w), w.More))
	}
	return r.waitingForMore(w)
}

// waitingForMore is about what is not a pod.
func (r Words) waitingForMore(w Wait) string {
	switch w.For {
	case WaitBake:
		return "stays as it is until " + plaintext.Clock(w.Until) + " to see that the wave stays healthy"
	case WaitQuery:
		return "waits for the Prometheus query of spec.healthGate to be true"
	case WaitQueryAnswer:
		return "waits for an answer to the Prometheus query of spec.healthGate; see whether the server can be reached"
	case WaitOverload:
		if math.IsInf(w.Overload, 1) {
			return fmt.Sprintf("does not begin %s: while it is empty, a Service would have no endpoint left, or none for the clients of some zone (spec.healthGate.maxOverload)", r.Domain(w.Domain))
		}
		return fmt.Sprintf("does not begin %s: %s of overload is expected while it is empty, and at most %s may be (spec.healthGate.maxOverload)",
			r.Domain(w.Domain), percent(w.Overload), percent(w.MaxOverload))
	case WaitPlan:
		return fmt.Sprintf("does not begin %s: the routing plan of a Service cannot be made as it would be while it is empty (spec.healthGate.maxOverload)", r.Domain(w.Domain))
	case WaitApproval:
		return fmt.Sprintf("pauses before %s (spec.pauseBefore); %s goes on", r.Domain(w.Domain), r.command("resume"))
	case WaitPaused:
		return fmt.Sprintf("is paused (spec.paused); %s goes on", r.command("resume"))
	case WaitFailure:
		return fmt.Sprintf("has failed: %s. %s tries again, %s restores the revision before, and a new revision starts anew",
			r.Failure(w.Failure), r.command("resume")+" --retry", r.command("rollback"))
	case WaitAborted:
		return "was aborted (spec.stop); pods stay as they are until there is another revision"
	case WaitRestore:
		if w.Failure != nil {
			return fmt.Sprintf("restores the revision before, since %s", r.Failure(w.Failure))
		}
		return "restores the revision before (spec.stop)"
	case WaitNoPrevious:
		return "cannot roll back (spec.stop): no revision before is known. Write the template that should run"
	}
	return ""
}

// Failure says why a rollout failed.
func (r Words) Failure(f *v1alpha1.RolloutFailure) string {
	if f == nil {
		return "the reason is not known"
	}
	pod := fmt.Sprintf("pod %s of %s", f.Pod, r.Domain(f.Domain))
	switch f.Reason {
	case PodMissing:
		return "no pod came in the place of " + pod + " in time"
	case PodTerminating:
		return pod + " did not end in time"
	case GateFailed:
		return "the Prometheus query of spec.healthGate became false"
	}
	return pod + " did not become healthy in time"
}

// Event says what happened to a rollout, which is of a revision now.
func (r Words) Event(e Event, revision string) string {
	switch e.Type {
	case RolloutBegan:
		return fmt.Sprintf("revision %s begins, after %s", revision, e.From)
	case RolloutRestarted:
		return fmt.Sprintf("revision %s begins where %s stands, which was not complete", revision, e.From)
	case RollbackBegan:
		return fmt.Sprintf("revision %s comes back, and %s is abandoned", revision, e.From)
	case WaveBegan:
		text := "pods of " + r.Domains(e.Domains) + " are replaced"
		if e.Overload != nil {
			text += fmt.Sprintf("; %s of overload is expected meanwhile", percent(*e.Overload))
		}
		return text
	case WaveDone:
		return "all pods of " + r.Domains(e.Domains) + " are healthy"
	case RolloutPaused:
		if len(e.Domains) == 0 {
			return "paused"
		}
		return fmt.Sprintf("paused at %s; %s goes on", r.Domains(e.Domains), r.command("resume"))
	case RolloutResumed:
		return "goes on"
	case RolloutFailed:
		return r.Failure(e.Failure)
	case RolloutAborted:
		return "aborted; pods stay as they are"
	case RolloutComplete:
		return fmt.Sprintf("all pods are of revision %s", revision)
	}
	return ""
}

func (r Words) command(verb string) string {
	return fmt.Sprintf("vicinity rollout %s %s -n %s", verb, r.Name, r.Namespace)
}

// Domain names a domain.
func (r Words) Domain(name string) string {
	if name == "" {
		return "the nodes without " + r.Key
	}
	return fmt.Sprintf("%s %q", topology.Noun(r.Key), name)
}

// Domains names several domains.
func (r Words) Domains(names []string) string {
	list := slices.Clone(names)
	for i := range list {
		list[i] = r.Domain(list[i])
	}
	if len(list) == 0 {
		return "no " + topology.Noun(r.Key)
	}
	return plaintext.List(list)
}

// pods names the pods that something waits for.
func (r Words) pods(w Wait) string {
	said := "pod " + more(w.Pod, w.More)
	if w.Domain != "" && w.More == 0 {
		said += " of " + r.Domain(w.Domain)
	}
	return said
}

func more(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s and %d more", name, n)
}

// isOrAre has the verb for one thing and some more.
func isOrAre(what string, more int) string {
	if more > 0 {
		return what + " are"
	}
	return what + " is"
}

func orFails(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return ", or it fails at " + plaintext.Clock(at)
}

func again(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return "; it is tried again at " + plaintext.Clock(at)
}

// percent has a share as people write it.
func percent(share float64) string { return fmt.Sprintf("%.4g%%", 100*share) }
