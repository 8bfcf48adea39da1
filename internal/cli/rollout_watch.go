package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/rollout"
)

// rolloutInterval is the time between two readings of a rollout that is watched.
const rolloutInterval = time.Second

var errRolloutTimeout = errors.New("timeout")

// watchRollout writes a line for each change of a rollout until it ends.
func (f *rolloutStatusFlags) watchRollout(ctx context.Context, s command.Streams, reach connector, name string) error {
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, errRolloutTimeout)
		defer cancel()
	}
	w := &rolloutWatch{reader: r, name: name, out: s.Out, err: s.Err}
	err = w.run(ctx)
	if errors.Is(context.Cause(ctx), errRolloutTimeout) && !errors.As(err, new(*rolloutEnd)) {
		return fmt.Errorf("DomainRollout %s/%s has not ended within %s: %s", r.namespace, name, f.timeout, w.standing())
	}
	return err
}

// rolloutEnd is how a rollout ended that is not complete.
type rolloutEnd struct{ said string }

func (e *rolloutEnd) Error() string { return e.said }

type rolloutWatch struct {
	reader   *clusterReader
	name     string
	out, err io.Writer

	last *v1alpha1.DomainRollout
	line string // the last that was written
	// asked is the revision that has to be complete, the newest that is no rollback. It is empty while the watch
	// follows a rollback that was asked for before it began.
	asked    string
	left     string // the revision that such a rollback leaves
	said     string // the last failure to reach the cluster
	finished bool
}

func (w *rolloutWatch) standing() string {
	if w.last == nil {
		return "it could not be read"
	}
	text := "it is " + orDash(string(w.last.Status.Phase))
	if w.last.Status.WaitingFor != "" {
		text += ": " + sentence(&w.last.Status)
	}
	return text
}

func (w *rolloutWatch) run(ctx context.Context) error {
	for {
		err := w.read(ctx)
		switch {
		case ctx.Err() != nil && !w.finished:
			return ctx.Err()
		case w.finished, err != nil && w.last == nil:
			return err
		case err == nil:
			w.said = ""
		case err.Error() != w.said:
			w.said = err.Error()
			fmt.Fprintf(w.err, "%s; trying again\n", command.OneLine(err))
		}
		if err := command.Pause(ctx, rolloutInterval); err != nil {
			return err
		}
	}
}

// read reads the DomainRollout once, and judges it.
func (w *rolloutWatch) read(ctx context.Context) error {
	object, err := w.reader.rollouts().Get(ctx, w.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && w.last != nil:
		return w.deleted()
	case apierrors.IsNotFound(err):
		return w.reader.rolloutNotFound(ctx, w.name)
	case err != nil:
		// Without the right to read it the next answer is no other.
		w.finished = apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
		return w.reader.explained("reading DomainRollout "+w.reader.namespace+"/"+w.name, err)
	}
	d, err := convertTo[v1alpha1.DomainRollout](object)
	if err != nil {
		w.finished = true
		return err
	}
	if w.last != nil && w.last.UID != d.UID {
		return w.deleted()
	}
	w.follow(d)
	w.last = d
	return w.judge(ctx)
}

func (w *rolloutWatch) deleted() error {
	w.finished = true
	return &rolloutEnd{fmt.Sprintf("DomainRollout %s/%s was deleted; pods stay as they are", w.reader.namespace, w.name)}
}

// follow takes note of the revision that has to be complete.
func (w *rolloutWatch) follow(d *v1alpha1.DomainRollout) {
	n, s := &rolloutNow{DomainRollout: d}, &d.Status
	if w.last == nil && n.stop() == v1alpha1.StopRollback {
		w.left = s.Revision
	}
	switch {
	case s.RollingBack:
		if abandoned := s.AbandonedRevisions; w.last == nil && !n.isRollbackAsked() && len(abandoned) > 0 {
			w.asked = abandoned[len(abandoned)-1]
		}
	case s.Revision != w.left && !w.cameBack(s):
		w.asked, w.left = s.Revision, ""
	}
}

// isRollbackAsked reports whether a person asked for the rollback that goes on.
func (n *rolloutNow) isRollbackAsked() bool {
	s := n.Spec.Stop
	return s != nil && s.Action == v1alpha1.StopRollback && slices.Contains(n.Status.AbandonedRevisions, s.Revision)
}

// cameBack reports whether the revision began as a rollback. The watch may not have seen that: it misses what happens between
// two readings.
func (w *rolloutWatch) cameBack(s *v1alpha1.DomainRolloutStatus) bool {
	for i := len(s.History) - 1; i >= 0; i-- {
		if s.History[i].Revision != s.Revision {
			continue
		}
		switch rollout.EventType(s.History[i].Event) {
		case rollout.RollbackBegan:
			return true
		case rollout.RolloutBegan, rollout.RolloutRestarted:
			return false
		}
	}
	return s.Revision != w.asked && slices.Contains(s.AbandonedRevisions, w.asked)
}

// isFinal reports whether a rollout stays in a phase if nothing is changed.
func isFinal(phase v1alpha1.RolloutPhase) bool {
	switch phase {
	case v1alpha1.PhaseComplete, v1alpha1.PhaseFailed, v1alpha1.PhaseAborted, v1alpha1.PhaseInvalid:
		return true
	}
	return false
}

// judge writes the last state if it is new, and says how the rollout ended if it has.
func (w *rolloutWatch) judge(ctx context.Context) error {
	d := w.last
	n := &rolloutNow{DomainRollout: d, now: w.reader.now}
	var ahead workloadAhead
	if isFinal(d.Status.Phase) || d.Spec.TargetRef.Kind == v1alpha1.KindDeployment {
		var err error
		if ahead, err = w.reader.workloadAhead(ctx, d); err != nil {
			return err
		}
	}
	if d.Status.Phase == v1alpha1.PhaseComplete && ahead.revision != "" && ahead.revision != w.left {
		w.asked = ahead.revision
	}
	report := w.reader.report(d, ahead)
	if line := report.line(); line != w.line {
		w.line = line
		if _, err := fmt.Fprintln(w.out, line); err != nil {
			w.finished = true
			return err
		}
	}
	if !isFinal(d.Status.Phase) || n.isBehind() || ahead.said != "" || ahead.lacking != "" {
		return nil
	}
	w.finished = true
	title := fmt.Sprintf("DomainRollout %s/%s ", d.Namespace, d.Name)
	switch d.Status.Phase {
	case v1alpha1.PhaseFailed, v1alpha1.PhaseAborted:
		return &rolloutEnd{title + d.Status.WaitingFor}
	case v1alpha1.PhaseInvalid:
		return &rolloutEnd{title + "is invalid: " + d.Status.WaitingFor}
	}
	if w.asked == "" || w.asked == d.Status.Revision {
		return nil
	}
	text := fmt.Sprintf("%swas rolled back: revision %s was replaced, and all pods are of %s", title, w.asked, d.Status.Revision)
	if s := d.Spec.Stop; s != nil && s.Revision == w.asked && s.Action == v1alpha1.StopRollback {
		text += fmt.Sprintf(". It is rolled back each time until you remove spec.stop: %s", n.unstop())
	}
	return &rolloutEnd{text}
}

func (r *rolloutReport) line() string {
	s := &r.Status
	if s.Phase == "" {
		return r.Namespace + "/" + r.Name + ": " + noController
	}
	text := fmt.Sprintf("%s/%s: %s, revision %s, %s", r.Namespace, r.Name, s.Phase, orDash(s.Revision), updatedText(r.Pods, r.Updated, r.Healthy))
	if len(s.CurrentDomains) > 0 {
		text += fmt.Sprintf(", wave %d (%s)", s.Wave, rollout.Words{Key: r.TopologyKey}.Domains(s.CurrentDomains))
	}
	if s.WaitingFor != "" {
		text += ": " + sentence(s)
	}
	switch {
	case !r.Current && len(r.Notes) > 0:
		text += "; " + r.Notes[0]
	case r.lacking != "":
		text += "; " + r.lacking
	}
	return text
}
