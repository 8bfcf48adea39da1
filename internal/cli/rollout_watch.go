package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/rollout"
)

// Pauses of a watch.
const (
	rolloutAgain   = time.Second            // before the cluster is asked again after a failure
	templateUnseen = time.Second            // before the workload is read again whose change is not seen yet
	resizeUnseen   = 200 * time.Millisecond // before the size of the terminal is looked at again
)

var errRolloutTimeout = errors.New("timeout")

// follow shows each change of a rollout until it ends.
func (f *rolloutStatusFlags) follow(ctx context.Context, s command.Streams, reach connector, name string) error {
	r, err := reach.reader(&f.cluster)
	if err != nil {
		return err
	}
	// A watch is one answer that takes as long as it has to.
	endless := f.cluster
	endless.timeout = 0
	watching, err := reach.reader(&endless)
	if err != nil {
		return err
	}
	if f.timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, f.timeout, errRolloutTimeout)
		defer cancel()
	}
	v := rolloutView(&rolloutLog{out: s.Out})
	if command.IsTerminal(s.Out) {
		v = &rolloutScreen{out: s.Out, size: terminalSize(s.Out)}
	}
	w := &rolloutWatch{reader: r, watching: watching, name: name, view: v, err: s.Err}
	err = w.run(ctx)
	if errors.Is(context.Cause(ctx), errRolloutTimeout) && !errors.As(err, new(*rolloutEnd)) {
		return fmt.Errorf("DomainRollout %s/%s has not ended within %s: %s", r.namespace, name, f.timeout, w.standing())
	}
	return err
}

// rolloutEnd is how a rollout ended that is not complete.
type rolloutEnd struct{ said string }

func (e *rolloutEnd) Error() string { return e.said }

// rolloutView shows a rollout again and again.
type rolloutView interface {
	show(*rolloutReport) error
	// fit shows the same again if the terminal has another size.
	fit() error
}

// rolloutWatch follows one DomainRollout.
type rolloutWatch struct {
	reader, watching *clusterReader
	name             string
	view             rolloutView
	err              io.Writer

	last *v1alpha1.DomainRollout
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
		err := w.once(ctx)
		switch {
		case ctx.Err() != nil && !w.finished:
			return ctx.Err()
		case w.finished:
			return err
		case err != nil && w.last == nil:
			return err
		case err != nil && err.Error() != w.said:
			w.said = err.Error()
			fmt.Fprintf(w.err, "%s; trying again\n", command.OneLine(err))
		}
		if err := command.Pause(ctx, rolloutAgain); err != nil {
			return err
		}
	}
}

// failed explains why the cluster did not answer. It ends the watch if it would not answer otherwise when asked again.
func (w *rolloutWatch) failed(doing string, err error) error {
	w.finished = apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	return w.reader.explained(doing+" DomainRollout "+w.reader.namespace+"/"+w.name, err)
}

// once reads the DomainRollout and watches it as long as the cluster lets it.
func (w *rolloutWatch) once(ctx context.Context) error {
	object, err := w.reader.rollouts().Get(ctx, w.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && w.last != nil:
		return w.deleted()
	case apierrors.IsNotFound(err):
		return w.reader.rolloutNotFound(ctx, w.name)
	case err != nil:
		return w.failed("reading", err)
	}
	if err := w.see(ctx, object); err != nil || w.finished {
		return err
	}
	changes, err := w.watching.rollouts().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String(), ResourceVersion: object.GetResourceVersion(),
	})
	if err != nil {
		return w.failed("watching", err)
	}
	defer changes.Stop()
	w.said = ""
	return w.receive(ctx, changes)
}

// receive shows changes until there are no more.
func (w *rolloutWatch) receive(ctx context.Context, changes watch.Interface) error {
	again := time.NewTicker(templateUnseen)
	defer again.Stop()
	resized := time.NewTicker(resizeUnseen)
	defer resized.Stop()
	for !w.finished {
		var err error
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again.C:
			if !isFinal(w.last.Status.Phase) {
				continue // else it is a workload that keeps the rollout from its end
			}
			err = w.judge(ctx)
		case <-resized.C:
			if err = w.view.fit(); err != nil {
				w.finished = true
			}
		case change, open := <-changes.ResultChan():
			switch {
			case !open || change.Type == watch.Error:
				return nil
			case change.Type == watch.Deleted:
				return w.deleted()
			}
			object, known := change.Object.(*unstructured.Unstructured)
			if !known || object.GetName() != w.name {
				continue
			}
			err = w.see(ctx, object)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *rolloutWatch) deleted() error {
	w.finished = true
	return &rolloutEnd{fmt.Sprintf("DomainRollout %s/%s was deleted; pods stay as they are", w.reader.namespace, w.name)}
}

// see takes note of a DomainRollout.
func (w *rolloutWatch) see(ctx context.Context, object *unstructured.Unstructured) error {
	d, err := rolloutOf(object)
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

// cameBack reports whether the revision began as a rollback. The watch may not have seen that: it misses what happens while
// the cluster cannot be reached, and what is over at once.
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

// judge shows the last state, and says how the rollout ended if it has.
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
	if err := w.view.show(&report); err != nil {
		w.finished = true
		return err
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
	text := fmt.Sprintf("%swas rolled back: revision %s did not stay, and all pods are of %s", title, w.asked, d.Status.Revision)
	if s := d.Spec.Stop; s != nil && s.Revision == w.asked && s.Action == v1alpha1.StopRollback {
		text += fmt.Sprintf(". It is rolled back each time until spec.stop is taken away: %s", n.unstop())
	}
	return &rolloutEnd{text}
}

// rolloutLog writes a line for each change.
type rolloutLog struct {
	out  io.Writer
	last string
}

func (l *rolloutLog) show(r *rolloutReport) error {
	line := r.line()
	if line == l.last {
		return nil
	}
	l.last = line
	_, err := fmt.Fprintln(l.out, line)
	return err
}

// fit implements rolloutView: what is written stays.
func (l *rolloutLog) fit() error { return nil }

// line is a rollout in one line.
func (r *rolloutReport) line() string {
	s := &r.Status
	if s.Phase == "" {
		return r.Namespace + "/" + r.Name + ": " + noController
	}
	text := fmt.Sprintf("%s/%s: %s, revision %s, %d of %s updated, %d healthy",
		r.Namespace, r.Name, s.Phase, orDash(s.Revision), r.Updated, count(int64(r.Pods), "pod", "pods"), r.Healthy)
	if len(s.CurrentDomains) > 0 {
		text += fmt.Sprintf(", wave %d (%s)", s.Wave, explain.Rollout{Key: r.TopologyKey}.Domains(s.CurrentDomains))
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

// rolloutScreen draws the status over the one before.
type rolloutScreen struct {
	out           io.Writer
	size          func() (width, height int)
	text          string // that is drawn
	lines         int    // that it takes
	width, height int    // of the terminal that it was drawn for
}

func terminalSize(w io.Writer) func() (width, height int) {
	return func() (width, height int) {
		if file, ok := w.(*os.File); ok {
			if width, height, err := term.GetSize(int(file.Fd())); err == nil {
				return width, height
			}
		}
		return 80, 24
	}
}

func (s *rolloutScreen) show(r *rolloutReport) error {
	var text bytes.Buffer
	if err := writeRollout(&text, r); err != nil {
		return err
	}
	s.text = strings.TrimRight(text.String(), "\n")
	return s.draw()
}

// fit implements rolloutView.
func (s *rolloutScreen) fit() error {
	if width, height := s.size(); s.text == "" || width == s.width && height == s.height {
		return nil
	}
	return s.draw()
}

func (s *rolloutScreen) draw() error {
	width, height := s.size()
	lines := wrapped(strings.Split(s.text, "\n"), max(width, 20))
	// What is scrolled out cannot be drawn over.
	lines = lines[:min(len(lines), max(height-1, 1))]
	var b strings.Builder
	switch {
	case s.lines == 0:
	case width != s.width || height != s.height:
		// Terminals differ in what becomes of lines that do not fit any more, and in where the cursor is then.
		b.WriteString("\x1b[2J\x1b[H")
	default:
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", s.lines)
	}
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	s.lines, s.width, s.height = len(lines), width, height
	_, err := io.WriteString(s.out, b.String())
	return err
}

// wrapped has no line that is wider than the terminal, which would wrap it and take more lines.
func wrapped(lines []string, width int) []string {
	var parts []string
	for _, line := range lines {
		letters := []rune(line)
		for len(letters) > width {
			parts = append(parts, string(letters[:width]))
			letters = letters[width:]
		}
		parts = append(parts, string(letters))
	}
	return parts
}
