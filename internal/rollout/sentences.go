package rollout

import (
	"fmt"
	"math"
	"slices"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/topology"
)

// Words has the sentences about one DomainRollout.
type Words struct {
	Namespace, Name string // of the DomainRollout
	Key             string // of the domains
}

// Waiting says what the rollout waits for and what to do about it. It is empty without a wait.
func (r Words) Waiting(w Wait) string {
	switch w.For {
	case WaitEvicting:
		return fmt.Sprintf("waits for %s to go%s", r.pods(w), orFails(w.Until))
	case WaitMissing:
		return fmt.Sprintf("waits for the replacement of %s%s", r.pods(w), orFails(w.Until))
	case WaitUnplaced:
		return fmt.Sprintf("waits for a node for %s%s; the events of the pod say what it needs", r.pods(w), orFails(w.Until))
	case WaitUnready:
		return fmt.Sprintf("waits for %s to be ready%s", r.pods(w), orFails(w.Until))
	case WaitReadyFor:
		return fmt.Sprintf("waits for %s to stay ready until %s", r.pods(w), plaintext.Clock(w.Until))
	case WaitRefused:
		return fmt.Sprintf("may not evict %s: %s%s", r.pods(w), w.Reason, again(w.Until))
	case WaitDown:
		return fmt.Sprintf("replaces no more pods of %s: %s down (%s), and at most %d may be down", r.Domain(w.Domain), plaintext.PluralVerb(w.Down, "pod", "is", "are"), more(w.Pod, w.More), w.Most)
	case WaitOrder:
		text := fmt.Sprintf("replaces no pod of %s: pod %s is not ready, and the StatefulSet creates later pods only once it is ready", r.Domain(w.Domain), w.Pod)
		if w.Approve != "" {
			text += fmt.Sprintf(". To replace it, add %s to spec.approved.domains", r.Domain(w.Approve))
		}
		return text
	case WaitEarlier:
		return fmt.Sprintf("starts no other wave while %s not healthy", isOrAre(r.pods(w), w.More))
	}
	return r.waitingForMore(w)
}

// waitingForMore handles waits that are not about a pod.
func (r Words) waitingForMore(w Wait) string {
	switch w.For {
	case WaitShift:
		return fmt.Sprintf("starts no other wave: ZoneShift %s takes %s out of service until %s", w.Shift.Name, Words{Key: w.Shift.Key}.Domain(w.Shift.Domain), plaintext.Clock(w.Until))
	case WaitBake:
		return "bakes until " + plaintext.Clock(w.Until) + "; the wave must stay healthy until then"
	case WaitQuery:
		return "waits for the Prometheus query of spec.healthGate to be true"
	case WaitQueryAnswer:
		return "waits for an answer to the Prometheus query of spec.healthGate; check that the server is reachable"
	case WaitOverload:
		if math.IsInf(w.Overload, 1) {
			return fmt.Sprintf("does not start %s: without it, a Service would have no endpoint, or none for the clients of some zone (spec.healthGate.maxOverload)", r.Domain(w.Domain))
		}
		return fmt.Sprintf("does not start %s: without it, an overload of %s is expected, and at most %s is allowed (spec.healthGate.maxOverload)",
			r.Domain(w.Domain), percent(w.Overload), percent(w.MaxOverload))
	case WaitPlan:
		return fmt.Sprintf("does not start %s: the routing plan that a Service would have without it cannot be computed (spec.healthGate.maxOverload)", r.Domain(w.Domain))
	case WaitApproval:
		return fmt.Sprintf("pauses before %s (spec.pauseBefore); continue with: %s", r.Domain(w.Domain), r.command("resume"))
	case WaitPaused:
		return fmt.Sprintf("is paused (spec.paused); continue with: %s", r.command("resume"))
	case WaitFailure:
		return fmt.Sprintf("has failed: %s. Retry with \"%s\", roll back with \"%s\", or write a new template",
			r.Failure(w.Failure), r.command("resume")+" --retry", r.command("rollback"))
	case WaitAborted:
		return "was aborted (spec.stop); pods stay as they are until the template changes"
	case WaitRestore:
		if w.Failure != nil {
			return fmt.Sprintf("restores the previous revision, because %s", r.Failure(w.Failure))
		}
		return "restores the previous revision (spec.stop)"
	case WaitNoPrevious:
		return "cannot roll back (spec.stop): no previous revision is known. Write the template that should run"
	}
	return ""
}

// Failure says why a rollout failed.
func (r Words) Failure(f *v1alpha1.RolloutFailure) string {
	if f == nil {
		return "the reason is unknown"
	}
	pod := fmt.Sprintf("pod %s of %s", f.Pod, r.Domain(f.Domain))
	switch f.Reason {
	case PodMissing:
		return pod + " was not replaced in time"
	case PodTerminating:
		return pod + " did not terminate in time"
	case GateFailed:
		return "the Prometheus query of spec.healthGate became false"
	}
	return pod + " did not become healthy in time"
}

// Event describes an event of a rollout that now has a revision.
func (r Words) Event(e Event, revision string) string {
	switch e.Type {
	case RolloutBegan:
		return fmt.Sprintf("revision %s starts after %s", revision, e.From)
	case RolloutRestarted:
		return fmt.Sprintf("revision %s starts where %s stopped incomplete", revision, e.From)
	case RollbackBegan:
		return fmt.Sprintf("rolls back to revision %s and abandons %s", revision, e.From)
	case WaveBegan:
		text := "replacing the pods of " + r.Domains(e.Domains)
		if e.Overload != nil {
			text += fmt.Sprintf("; expected overload %s", percent(*e.Overload))
		}
		return text
	case WaveDone:
		return "all pods of " + r.Domains(e.Domains) + " are healthy"
	case RolloutPaused:
		if len(e.Domains) == 0 {
			return "paused"
		}
		return fmt.Sprintf("paused before %s; continue with: %s", r.Domains(e.Domains), r.command("resume"))
	case RolloutResumed:
		return "resumed"
	case RolloutFailed:
		return r.Failure(e.Failure)
	case RolloutAborted:
		return "aborted; pods stay as they are"
	case RolloutComplete:
		return fmt.Sprintf("all pods have revision %s", revision)
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
	text := "pod " + more(w.Pod, w.More)
	if w.Domain != "" && w.More == 0 {
		text += " of " + r.Domain(w.Domain)
	}
	return text
}

func more(name string, n int) string {
	if n == 0 {
		return name
	}
	return fmt.Sprintf("%s and %d more", name, n)
}

// isOrAre adds the verb for one thing and more.
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
	return "; next attempt at " + plaintext.Clock(at)
}

// percent formats a share.
func percent(share float64) string { return fmt.Sprintf("%.4g%%", 100*share) }
