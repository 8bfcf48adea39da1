package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
)

type rolloutVerb struct {
	use, short, long, example string
	// retries adds the flag --retry, whose value decide gets.
	retries bool
	decide  func(n *rolloutNow, retry bool) (specChange, error)
}

var (
	rolloutPause = rolloutVerb{
		use: "pause", short: "Stop the evictions of a rollout",
		long: `Pause sets spec.paused: no more pods are evicted, also of later revisions, until "vicinity
rollout resume". Evictions that are not admitted yet are withdrawn. Pods that are already
terminating are replaced.`,
		decide: pauseRollout,
	}
	rolloutResume = rolloutVerb{
		use: "resume", short: "Resume a rollout that waits for a person",
		long: `Resume unsets spec.paused. If the rollout waits before a domain of spec.pauseBefore instead,
it approves that domain for the current revision. If both hold a rollout, run resume twice.

A failed rollout goes on only with --retry, which forgives earlier failures and starts the
deadlines of its pods again.`,
		example: `  vicinity rollout resume db -n shop
  vicinity rollout resume db -n shop --retry`,
		retries: true,
		decide:  resumeRollout,
	}
	rolloutAbort = rolloutVerb{
		use: "abort", short: "End the rollout of a revision and leave the pods as they are",
		long: `Abort sets spec.stop for the current revision: pods stay as they are, of the old and of the
new revision. The next revision is rolled out as usual.`,
		decide: abortRollout,
	}
	rolloutRollback = rolloutVerb{
		use: "rollback", short: "Restore the previous revision",
		long: `Rollback sets spec.stop for the current or last revision: the controller writes the previous
template to the workload and replaces the pods by domain, without bakeTime and pauseBefore.
Give the old template to a GitOps tool, too: each write of the new one is rolled back.`,
		example: `  vicinity rollout rollback db -n shop && vicinity rollout status db -n shop --watch`,
		decide:  rollbackRollout,
	}
)

func newRolloutChangeCommand(s command.Streams, reach connector, verb rolloutVerb) *cobra.Command {
	var cluster clusterFlags
	var output outputFlag
	var retry bool
	cmd := &cobra.Command{
		Use: verb.use + " NAME", Short: verb.short, Long: verb.long, Example: verb.example, Args: oneName("DomainRollout"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return reach.changeRollout(cmd.Context(), &cluster, specTarget{name: args[0], out: s.Out, output: &output}, func(n *rolloutNow) (specChange, error) {
				return verb.decide(n, retry)
			})
		},
	}
	flags := cmd.Flags()
	cluster.add(flags, "`NAMESPACE` of the DomainRollout (default the context's)")
	if verb.retries {
		flags.BoolVar(&retry, "retry", false, "try again after a failure")
	}
	output.add(flags, "text", "json", "yaml")
	command.Share(flags, "Rollout flags", "namespace", "output")
	return cmd
}

// changeRollout writes its decision only if the object has not changed since it was read.
func (c connector) changeRollout(ctx context.Context, cluster *clusterFlags, target specTarget, decide func(*rolloutNow) (specChange, error)) error {
	name, err := rolloutName(target.name)
	if err != nil {
		return err
	}
	r, err := c.reader(cluster)
	if err != nil {
		return err
	}
	target.resource, target.kind, target.name = rolloutResource, "DomainRollout", name
	return r.changeSpec(ctx, target, func() (string, specChange, error) {
		d, err := r.rollout(ctx, name)
		if err != nil {
			return "", specChange{}, err
		}
		now := &rolloutNow{DomainRollout: d, now: r.now}
		change, err := decide(now)
		change.message += now.notYet()
		return d.ResourceVersion, change, err
	})
}

type rolloutNow struct {
	*v1alpha1.DomainRollout
	now time.Time
}

func (n *rolloutNow) command(verb string) string {
	return fmt.Sprintf("%q", fmt.Sprintf("vicinity rollout %s %s -n %s", verb, n.Name, n.Namespace))
}

func (n *rolloutNow) unstop() string {
	return fmt.Sprintf(`kubectl patch dr %s -n %s --type=merge -p '{"spec":{"stop":null}}'`, n.Name, n.Namespace)
}

func (n *rolloutNow) isRead() bool { return n.Status.Phase != "" }

func (n *rolloutNow) isBehind() bool {
	return n.isRead() && n.Status.ObservedGeneration != n.Generation
}

// stop is the action of spec.stop for the current revision, or empty.
func (n *rolloutNow) stop() v1alpha1.StopAction {
	if s := n.Spec.Stop; s != nil && s.Revision == n.Status.Revision && s.Revision != "" {
		return s.Action
	}
	return ""
}

func (n *rolloutNow) notYet() string {
	switch {
	case !n.isRead():
		return ". " + noController
	case n.Status.Phase == v1alpha1.PhaseInvalid:
		return ". No pod is replaced for now: " + n.Status.WaitingFor
	}
	return ""
}

const (
	runController = "if rollouts are off, switch them on by \"" + switchOn + "rollouts.enabled=true\"; otherwise check that vicinity-controller runs"
	noController  = "The controller has not read it yet: " + runController
	rolloutBehind = "the controller has not read the last change of the spec yet; check %s and run the command again"
)

func (n *rolloutNow) errorf(format string, args ...any) error {
	return fmt.Errorf("DomainRollout %s/%s %s", n.Namespace, n.Name, fmt.Sprintf(format, args...))
}

// expectRevision fails if there is no revision to stop.
func (n *rolloutNow) expectRevision() error {
	switch {
	case !n.isRead():
		return n.errorf("has no status, so no revision can be stopped. %s. %s keeps it from starting", noController, n.command("pause"))
	case n.Status.Revision == "":
		return n.errorf("has no revision yet: %s", orDash(n.Status.WaitingFor))
	}
	return nil
}

func pauseRollout(n *rolloutNow, _ bool) (specChange, error) {
	if n.Spec.Paused {
		return specChange{message: "is paused already; " + n.command("resume") + " resumes it"}, nil
	}
	message := "is paused: no more pods are evicted, and terminating pods are still replaced"
	switch n.Status.Phase {
	case v1alpha1.PhaseComplete:
		message = "is paused: nothing is being replaced, and the next revision waits"
	case v1alpha1.PhaseAborted:
		message = "is paused: the rollout of " + n.Status.Revision + " was aborted before, and the next revision waits"
	}
	return specChange{map[string]any{"paused": true}, message + "; " + n.command("resume") + " resumes it"}, nil
}

func abortRollout(n *rolloutNow, _ bool) (specChange, error) {
	if err := n.expectRevision(); err != nil {
		return specChange{}, err
	}
	revision := n.Status.Revision
	switch {
	case n.Status.Phase == v1alpha1.PhaseComplete:
		return specChange{}, n.errorf("is complete, so there is nothing to abort: all pods are of revision %s. %s restores the previous revision", revision, n.command("rollback"))
	case n.stop() == v1alpha1.StopAbort:
		return specChange{message: "is aborted already: pods stay as they are, and the next revision is rolled out as usual"}, nil
	}
	s := inspect.RolloutStatusOf(n.DomainRollout)
	message := fmt.Sprintf("is aborted: the rollout of revision %s ends and pods stay as they are (%s). The next revision is rolled out as usual", revision, updatedText(s.Pods, s.Updated, s.Healthy))
	if n.Status.PreviousRevision != "" {
		message += "; " + n.command("rollback") + " restores " + n.Status.PreviousRevision
	}
	return specChange{n.stopFields(v1alpha1.StopAbort), message}, nil
}

func (n *rolloutNow) stopFields(action v1alpha1.StopAction) map[string]any {
	return map[string]any{"stop": v1alpha1.RolloutStop{Revision: n.Status.Revision, Action: action}}
}

func rollbackRollout(n *rolloutNow, _ bool) (specChange, error) {
	if err := n.expectRevision(); err != nil {
		return specChange{}, err
	}
	previous, s := n.Status.PreviousRevision, n.Spec.Stop
	switch {
	case n.Status.RollingBack:
		return specChange{message: "rolls back already, to revision " + n.Status.Revision}, nil
	case n.stop() == v1alpha1.StopRollback && previous != "":
		return specChange{message: "rolls back already, to revision " + previous}, nil
	case previous == "" && s != nil && s.Action == v1alpha1.StopRollback && slices.Contains(n.Status.AbandonedRevisions, s.Revision):
		return specChange{message: fmt.Sprintf("was rolled back already: revision %s replaced %s", n.Status.Revision, s.Revision)}, nil
	case previous == "":
		return specChange{}, n.errorf("cannot be rolled back: no revision before %s is known. Write the right template to %s %s; kubectl rollout history shows old ones",
			n.Status.Revision, n.Spec.TargetRef.Kind, n.Spec.TargetRef.Name)
	}
	message := fmt.Sprintf("rolls back: the template of revision %s is written to %s %s, and the pods of %s are replaced by domain. A GitOps tool that writes the template needs the old one too",
		previous, n.Spec.TargetRef.Kind, n.Spec.TargetRef.Name, n.Status.Revision)
	if n.Spec.Paused {
		message += fmt.Sprintf(". It is paused: no pod is replaced before %s", n.command("resume"))
	}
	return specChange{n.stopFields(v1alpha1.StopRollback), message}, nil
}

// nextPause returns the next domain, and whether the rollout pauses before it.
func (n *rolloutNow) nextPause() (string, bool) {
	if n.Status.RollingBack || len(n.Status.CurrentDomains) > 0 {
		return "", false
	}
	for i := range n.Status.Domains {
		if d := &n.Status.Domains[i]; d.State == v1alpha1.DomainWaiting {
			return d.Name, slices.Contains(n.Spec.PauseBefore, d.Name) && !n.isApproved(d.Name)
		}
	}
	return "", false
}

// approval returns spec.approved for the current revision, or an empty one.
func (n *rolloutNow) approval() v1alpha1.RolloutApproval {
	if a := n.Spec.Approved; a != nil && a.Revision == n.Status.Revision {
		return *a
	}
	return v1alpha1.RolloutApproval{Revision: n.Status.Revision}
}

func (n *rolloutNow) isApproved(domain string) bool {
	return slices.Contains(n.approval().Domains, domain)
}

// approvedFields sets each field: a merge patch would keep fields of another revision's approval.
func (n *rolloutNow) approvedFields(a v1alpha1.RolloutApproval) map[string]any {
	return map[string]any{"approved": map[string]any{"revision": a.Revision, "domains": a.Domains, "failuresBefore": a.FailuresBefore}}
}

// isForgiven reports whether the failure is forgiven already, and the controller has not read that yet.
func (n *rolloutNow) isForgiven() bool {
	until := n.approval().FailuresBefore
	return until != nil && !until.Time.Before(n.Status.Failure.Time.Time)
}

func resumeRollout(n *rolloutNow, retry bool) (specChange, error) {
	switch {
	case n.Spec.Paused && n.Status.Failure == nil, n.Spec.Paused && n.restores() && !retry, n.Spec.Paused && n.stop() != "":
		return n.unpause(), nil
	case n.stop() == v1alpha1.StopAbort:
		return specChange{}, n.errorf("was aborted, and resume does not undo that. %s restores the previous revision; %s continues this one",
			n.command("rollback"), n.unstop())
	case n.stop() == v1alpha1.StopRollback && n.Status.PreviousRevision == "":
		return specChange{}, n.errorf("waits for a rollback that is not possible: no revision before %s is known. Write the right template to %s %s", n.Status.Revision, n.Spec.TargetRef.Kind, n.Spec.TargetRef.Name)
	case n.stop() == v1alpha1.StopRollback:
		return specChange{message: "is not paused: it rolls back"}, nil
	case n.Status.Failure != nil:
		return n.tryAgain(retry)
	}
	domain, pauses := n.nextPause()
	switch {
	case pauses && n.isBehind():
		return specChange{}, n.errorf("may pause before %s next, but "+rolloutBehind, n.words().Domain(domain), n.command("status"))
	case pauses && n.Status.Phase == v1alpha1.PhasePaused:
		a := n.approval()
		a.Domains = append(slices.Clone(a.Domains), domain)
		return specChange{n.approvedFields(a), fmt.Sprintf("goes on with %s: it is approved for revision %s", n.words().Domain(domain), n.Status.Revision)}, nil
	case n.isBehind():
		return specChange{message: "is not paused; the controller has not read the last change of the spec yet"}, nil
	}
	message := "is not paused"
	if n.Status.WaitingFor != "" {
		message += ": it " + n.Status.WaitingFor
	} else if n.isRead() {
		message += ": it is " + strings.ToLower(string(n.Status.Phase))
	}
	return specChange{message: message}, nil
}

// restores reports whether the controller restores the previous revision after a failure.
func (n *rolloutNow) restores() bool {
	return n.Spec.OnFailure == v1alpha1.FailureRollback && n.Status.PreviousRevision != ""
}

func (n *rolloutNow) unpause() specChange {
	message := "goes on"
	domain, pauses := n.nextPause()
	switch {
	case n.stop() == v1alpha1.StopAbort:
		message = "is no longer paused; the rollout of " + n.Status.Revision + " was aborted, and the next revision is rolled out as usual"
	case n.Status.Failure != nil:
		message = "goes on: it restores revision " + n.Status.PreviousRevision + ", since " + n.failure()
	case pauses:
		message = fmt.Sprintf("is no longer paused; it pauses before %s (spec.pauseBefore) until %s is run again", n.words().Domain(domain), n.command("resume"))
	}
	return specChange{map[string]any{"paused": nil}, message}
}

func (n *rolloutNow) tryAgain(retry bool) (specChange, error) {
	switch {
	case n.isForgiven() && !n.Spec.Paused:
		return specChange{message: "tries again already; the controller has not read that yet"}, nil
	case !retry && n.restores():
		return specChange{message: "restores revision " + n.Status.PreviousRevision + ", since " + n.failure()}, nil
	case !retry:
		return specChange{}, n.errorf("has failed: %s. %s tries again, %s restores the previous revision, and a new revision starts over", n.failure(), n.command("resume --retry"), n.command("rollback"))
	}
	// The clock of this machine may be behind the controller's.
	until := metav1.NewTime(n.now)
	if failed := n.Status.Failure.Time; until.Before(&failed) {
		until = failed
	}
	a := n.approval()
	a.FailuresBefore = &until
	fields := n.approvedFields(a)
	if n.Spec.Paused {
		fields["paused"] = nil
	}
	return specChange{fields, fmt.Sprintf("tries revision %s again: failures until %s are forgiven, and deadlines start again", n.Status.Revision, timeText(&until))}, nil
}
