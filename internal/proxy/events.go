package proxy

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// eventWriter writes events about Services. It creates events and changes none, so that a
// proxy does not need the right to change events, which a role cannot limit to its own.
//
// The recorder of the client library is not used: it links the clients of all APIs, and
// counts repeated events by changing them.
type eventWriter struct {
	create  func(context.Context, *eventsv1.Event) error
	node    string
	clock   clock.WithTicker
	metrics *metrics
	log     logr.Logger

	queue chan *eventsv1.Event
	// written are the events about each Service of the last reason that was written.
	written map[corev1.ObjectReference]*writtenEvents
}

// writtenEvents are when notes of one reason were written.
type writtenEvents struct {
	reason string
	notes  map[string]time.Time
}

const (
	eventController = "vicinity-proxy"
	eventAction     = "Programming"
	// mostQueued events wait to be written. Those that do not fit are dropped.
	mostQueued = 256
	// repeatAfter is how long an event is not repeated, unless one of another reason about
	// the same Service came between.
	repeatAfter = 6 * time.Minute
	// An event is sent again while the API server cannot be reached, so often at most.
	eventTries = 12
	eventRetry = 10 * time.Second
	// mostNote and mostInstance are how many bytes the API takes of a note and of who
	// reports it.
	mostNote, mostInstance = 1024, 128
)

func newEventWriter(create func(context.Context, *eventsv1.Event) error, node string, m *metrics, log logr.Logger) *eventWriter {
	return &eventWriter{
		create: create, node: node, clock: clock.RealClock{}, metrics: m, log: log,
		queue: make(chan *eventsv1.Event, mostQueued), written: map[corev1.ObjectReference]*writtenEvents{},
	}
}

// record queues an event. Any goroutine may call it.
func (w *eventWriter) record(about *corev1.ObjectReference, kind, reason, note string) {
	now := w.clock.Now()
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: about.Namespace, Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano())},
		EventTime:  metav1.NewMicroTime(now), Regarding: *about, Type: kind, Reason: reason, Action: eventAction, Note: shortened(note, mostNote),
		ReportingController: eventController, ReportingInstance: shortened(eventController+"-"+w.node, mostInstance),
	}
	select {
	case w.queue <- event:
	default:
		w.failed(event, errors.New("too many events wait to be written"))
	}
}

// shortened is a text of so many bytes at most.
func shortened(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := most
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// run writes events until the context ends.
func (w *eventWriter) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-w.queue:
			if w.repeats(event) {
				continue
			}
			if err := w.write(ctx, event); err != nil && ctx.Err() == nil {
				w.failed(event, err)
			}
		}
	}
}

// repeats reports whether an event says what was written a moment ago, and notes that it is
// written now if it does not.
func (w *eventWriter) repeats(event *eventsv1.Event) bool {
	now := event.EventTime.Time
	for about, of := range w.written {
		for note, at := range of.notes {
			if now.Sub(at) >= repeatAfter {
				delete(of.notes, note)
			}
		}
		if len(of.notes) == 0 {
			delete(w.written, about)
		}
	}
	of := w.written[event.Regarding]
	if of == nil || of.reason != event.Reason {
		of = &writtenEvents{reason: event.Reason, notes: map[string]time.Time{}}
		w.written[event.Regarding] = of
	}
	if _, repeated := of.notes[event.Note]; repeated {
		return true
	}
	of.notes[event.Note] = now
	return false
}

// write creates an event, and tries again while the API server cannot be reached.
func (w *eventWriter) write(ctx context.Context, event *eventsv1.Event) error {
	for try := 1; ; try++ {
		limited, cancel := context.WithTimeout(ctx, writeTime)
		err := w.create(limited, event)
		cancel()
		switch {
		case err == nil, apierrors.IsAlreadyExists(err): // an earlier try may have got through
			return nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
			return nil // the namespace is deleted: there is no one to report to
		}
		var answer apierrors.APIStatus
		if errors.As(err, &answer) || try == eventTries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.clock.After(eventRetry):
		}
	}
}

// failed reports an event that is not written.
func (w *eventWriter) failed(event *eventsv1.Event, cause error) {
	w.metrics.failed(stepEvent)
	w.log.Error(cause, "An event is not written", "service", event.Namespace+"/"+event.Regarding.Name, "reason", event.Reason)
}
