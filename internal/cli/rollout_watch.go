package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/rollout"
)

var errRolloutTimeout = errors.New("timeout")

// watchRollout writes a line for each change until the rollout ends.
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
		return fmt.Errorf("DomainRollout %s/%s has not ended within %s: %s", r.namespace, name, f.timeout, w.lastState())
	}
	return err
}

// rolloutEnd is the error of a rollout that ended without being complete.
type rolloutEnd struct{ reason string }

func (e *rolloutEnd) Error() string { return e.reason }

type rolloutWatch struct {
	reader   *clusterReader
	name     string
	out, err io.Writer

	last *v1alpha1.DomainRollout
	line string // the last one that was written
	// wantedRevision is the newest revision that is not a rollback. It must be complete at the end. It is
	// empty while the watch follows a rollback that was requested before the watch began.
	wantedRevision   string
	replacedRevision string // by such a rollback
	finished         bool
}

func (w *rolloutWatch) lastState() string {
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
	return await(ctx, w.err, func() (done bool, err error) {
		err = w.read(ctx)
		return w.finished || err != nil && w.last == nil && ctx.Err() == nil, err
	})
}

func (w *rolloutWatch) read(ctx context.Context) error {
	object, err := w.reader.rollouts().Get(ctx, w.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && w.last != nil:
		return w.deleted()
	case apierrors.IsNotFound(err):
		return w.reader.rolloutNotFound(ctx, w.name)
	case err != nil:
		w.finished = isLasting(err)
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

// follow updates the wanted revision.
func (w *rolloutWatch) follow(d *v1alpha1.DomainRollout) {
	n, s := &rolloutNow{DomainRollout: d}, &d.Status
	if w.last == nil && n.stop() == v1alpha1.StopRollback {
		w.replacedRevision = s.Revision
	}
	switch {
	case s.RollingBack:
		if abandoned := s.AbandonedRevisions; w.last == nil && !n.isRollbackRequested() && len(abandoned) > 0 {
			w.wantedRevision = abandoned[len(abandoned)-1]
		}
	case s.Revision != w.replacedRevision && !w.isRollback(s):
		w.wantedRevision, w.replacedRevision = s.Revision, ""
	}
}

// isRollbackRequested reports whether spec.stop requested the current rollback.
func (n *rolloutNow) isRollbackRequested() bool {
	s := n.Spec.Stop
	return s != nil && s.Action == v1alpha1.StopRollback && slices.Contains(n.Status.AbandonedRevisions, s.Revision)
}

// isRollback reports whether the revision began as a rollback, which the watch can miss between two
// reads.
func (w *rolloutWatch) isRollback(s *v1alpha1.DomainRolloutStatus) bool {
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
	return s.Revision != w.wantedRevision && slices.Contains(s.AbandonedRevisions, w.wantedRevision)
}

// isFinal reports whether a rollout stays in a phase without a change.
func isFinal(phase v1alpha1.RolloutPhase) bool {
	switch phase {
	case v1alpha1.PhaseComplete, v1alpha1.PhaseFailed, v1alpha1.PhaseAborted, v1alpha1.PhaseInvalid:
		return true
	}
	return false
}

// judge writes the state if it is new, and returns an error if the rollout has ended without being
// complete.
func (w *rolloutWatch) judge(ctx context.Context) error {
	d := w.last
	n := &rolloutNow{DomainRollout: d, now: w.reader.now}
	var ahead workloadAhead
	if isFinal(d.Status.Phase) || d.Spec.TargetRef.Kind == v1alpha1.KindDeployment && !rollout.IsCustom(d.Spec.TargetRef) {
		var err error
		if ahead, err = w.reader.workloadAhead(ctx, d); err != nil {
			return err
		}
	}
	if d.Status.Phase == v1alpha1.PhaseComplete && ahead.revision != "" && ahead.revision != w.replacedRevision {
		w.wantedRevision = ahead.revision
	}
	report := w.reader.report(d, ahead)
	if line := report.line(); line != w.line {
		w.line = line
		if _, err := fmt.Fprintln(w.out, line); err != nil {
			w.finished = true
			return err
		}
	}
	if !isFinal(d.Status.Phase) || n.isBehind() || ahead.notice != "" || ahead.missingPods != "" {
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
	if w.wantedRevision == "" || w.wantedRevision == d.Status.Revision {
		return nil
	}
	text := fmt.Sprintf("%swas rolled back: revision %s was replaced, and all pods are of %s", title, w.wantedRevision, d.Status.Revision)
	if s := d.Spec.Stop; s != nil && s.Revision == w.wantedRevision && s.Action == v1alpha1.StopRollback {
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
	case r.missingPods != "":
		text += "; " + r.missingPods
	}
	return text
}
