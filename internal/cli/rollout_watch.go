package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
)

// Pauses of a watch.
const (
	rolloutAgain   = time.Second // before the cluster is asked again after a failure
	templateUnseen = time.Second // before the workload is read again whose change is not seen yet
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
}

// rolloutWatch follows one DomainRollout.
type rolloutWatch struct {
	reader, watching *clusterReader
	name             string
	view             rolloutView
	err              io.Writer

	last     *v1alpha1.DomainRollout
	forward  string // the revision, if it is no rollback
	bad      string // the revision that was left for restored while it was watched
	restored string // the revision that came back
	said     string // the last failure to reach the cluster
	finished bool
}

func (w *rolloutWatch) standing() string {
	if w.last == nil {
		return "it could not be read"
	}
	text := "it is " + orDash(string(w.last.Status.Phase))
	if w.last.Status.WaitingFor != "" {
		text += " and " + w.last.Status.WaitingFor
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

// once reads the DomainRollout and watches it as long as the cluster lets it.
func (w *rolloutWatch) once(ctx context.Context) error {
	object, err := w.reader.rollouts().Get(ctx, w.name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) && w.last != nil:
		return w.deleted()
	case apierrors.IsNotFound(err):
		return w.reader.rolloutNotFound(ctx, w.name)
	case err != nil:
		return w.reader.explained("reading DomainRollout "+w.reader.namespace+"/"+w.name, err)
	}
	if err := w.see(ctx, object); err != nil || w.finished {
		return err
	}
	changes, err := w.watching.rollouts().Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, w.name).String(), ResourceVersion: object.GetResourceVersion(),
	})
	if err != nil {
		err = w.reader.explained("watching DomainRollout "+w.reader.namespace+"/"+w.name, err)
		w.finished = apierrors.IsForbidden(err)
		return err
	}
	defer changes.Stop()
	w.said = ""
	return w.receive(ctx, changes)
}

// receive shows changes until there are no more.
func (w *rolloutWatch) receive(ctx context.Context, changes watch.Interface) error {
	again := time.NewTicker(templateUnseen)
	defer again.Stop()
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
	w.last = d
	s := &d.Status
	switch {
	case s.RollingBack:
		if w.forward != "" {
			w.bad = w.forward
		}
		w.forward, w.restored = "", s.Revision
	case s.Revision != w.restored:
		w.forward, w.bad = s.Revision, ""
	}
	return w.judge(ctx)
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
	d, unseen := w.last, ""
	n := &rolloutNow{DomainRollout: d, now: w.reader.now}
	if isFinal(d.Status.Phase) && d.Status.Phase != v1alpha1.PhaseInvalid {
		var err error
		if unseen, err = w.reader.unseenTemplate(ctx, d); err != nil {
			return err
		}
	}
	report := w.reader.report(d, unseen)
	if err := w.view.show(&report); err != nil {
		w.finished = true
		return err
	}
	if !isFinal(d.Status.Phase) || n.isBehind() || unseen != "" {
		return nil
	}
	w.finished = true
	title := fmt.Sprintf("DomainRollout %s/%s ", d.Namespace, d.Name)
	switch d.Status.Phase {
	case v1alpha1.PhaseFailed:
		return &rolloutEnd{title + d.Status.WaitingFor}
	case v1alpha1.PhaseAborted:
		return &rolloutEnd{title + d.Status.WaitingFor}
	case v1alpha1.PhaseInvalid:
		return &rolloutEnd{title + "is invalid: " + d.Status.WaitingFor}
	}
	if w.bad != "" {
		return &rolloutEnd{fmt.Sprintf("%swas rolled back: revision %s did not stay, and all pods are of %s", title, w.bad, d.Status.Revision)}
	}
	return nil
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
		text += ": it " + s.WaitingFor
	}
	if !r.Current && len(r.Notes) > 0 {
		text += "; " + r.Notes[0]
	}
	return text
}

// rolloutScreen draws the status over the one before.
type rolloutScreen struct {
	out   io.Writer
	size  func() (width, height int)
	lines int // that are drawn
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
	width, height := s.size()
	lines := wrapped(strings.Split(strings.TrimRight(text.String(), "\n"), "\n"), max(width, 20))
	// What is scrolled out cannot be drawn over.
	lines = lines[:min(len(lines), max(height-1, 1))]
	var b strings.Builder
	if s.lines > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r\x1b[J", s.lines)
	}
	for _, line := range lines {
		b.WriteString(line + "\n")
	}
	s.lines = len(lines)
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
