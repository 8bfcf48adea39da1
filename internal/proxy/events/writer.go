// Package events tells users by events what does not work of their Services on a node: Warnings
// decide what is told and when, and a Writer writes it.
package events

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Writer writes events about Services. It creates events and changes none, so that a
// proxy does not need the right to change events, which a role cannot limit to its own.
//
// The recorder of the client library is not used: it links the clients of all APIs, and
// counts repeated events by changing them. Events are written one after the other, so one
// that takes long delays those behind it.
type Writer struct {
	create func(context.Context, *eventsv1.Event) error
	node   string
	// notWritten is called for each event that is not written.
	notWritten func()
	log        logr.Logger

	queue chan *eventsv1.Event
	// written is when events were recorded that were written in the last repeatAfter.
	written map[writtenEvent]time.Time
	// failing says that the last event was not written.
	failing atomic.Bool
}

type writtenEvent struct {
	about        corev1.ObjectReference
	reason, note string
}

const (
	eventController = "vicinity-proxy"
	eventAction     = "Programming"
	// mostQueued events wait to be written. Those that do not fit are dropped.
	mostQueued = 256
	// repeatAfter is how long an event is not repeated, unless one of another reason about
	// the same Service came between.
	repeatAfter = 6 * time.Minute
	// While the API server cannot be reached an event is sent so often at most, with pauses
	// of eventRetry and up to a quarter more, so that nodes do not send in step.
	eventTries = 12
	eventRetry = 10 * time.Second
	// eventTime bounds one request.
	eventTime = 5 * time.Second
	// mostNote and mostInstance are how many bytes the API takes of a note and of who
	// reports it.
	mostNote, mostInstance = 1024, 128
)

// NewWriter makes a writer of events of a node, by a function that creates one in the API.
func NewWriter(create func(context.Context, *eventsv1.Event) error, node string, notWritten func(), log logr.Logger) *Writer {
	return &Writer{
		create: create, node: node, notWritten: notWritten, log: log,
		queue: make(chan *eventsv1.Event, mostQueued), written: map[writtenEvent]time.Time{},
	}
}

// Record queues an event. Any goroutine may call it.
func (w *Writer) Record(about *corev1.ObjectReference, kind, reason, note string) {
	now := time.Now()
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

// Run writes events until the context ends.
func (w *Writer) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-w.queue:
			if w.isRepeated(event) {
				continue
			}
			if err := w.write(ctx, event); err == nil {
				w.remember(event)
			} else if ctx.Err() == nil {
				w.failed(event, err)
			}
		}
	}
}

func contentOf(event *eventsv1.Event) writtenEvent {
	return writtenEvent{event.Regarding, event.Reason, event.Note}
}

// isRepeated reports whether an event says what was written less than repeatAfter ago, and
// no event of another reason about the Service came between.
func (w *Writer) isRepeated(event *eventsv1.Event) bool {
	content := contentOf(event)
	at, isWritten := w.written[content]
	if !isWritten || event.EventTime.Sub(at) >= repeatAfter {
		return false
	}
	for other, otherAt := range w.written {
		if other.about == content.about && other.reason != content.reason && otherAt.After(at) {
			return false
		}
	}
	return true
}

func (w *Writer) remember(event *eventsv1.Event) {
	w.failing.Store(false)
	for content, at := range w.written {
		if event.EventTime.Sub(at) >= repeatAfter {
			delete(w.written, content)
		}
	}
	w.written[contentOf(event)] = event.EventTime.Time
}

// write creates an event, and tries again while the API server cannot be reached.
func (w *Writer) write(ctx context.Context, event *eventsv1.Event) error {
	for try := 1; ; try++ {
		limited, cancel := context.WithTimeout(ctx, eventTime)
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
		case <-time.After(eventRetry + rand.N(eventRetry/4)):
		}
	}
}

// failed counts an event that is not written, and reports the first in a row.
func (w *Writer) failed(event *eventsv1.Event, cause error) {
	w.notWritten()
	if w.failing.Swap(true) {
		return
	}
	w.log.Error(cause, "An event is not written", "service", event.Namespace+"/"+event.Regarding.Name, "reason", event.Reason)
}
