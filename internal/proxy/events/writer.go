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
	// failing says that the last event was not written.
	failing atomic.Bool
}

const (
	eventController = "vicinity-proxy"
	eventAction     = "Programming"
	// mostQueued events wait to be written. Those that do not fit are dropped.
	mostQueued = 256
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
		queue: make(chan *eventsv1.Event, mostQueued),
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
			if err := w.write(ctx, event); err == nil {
				w.failing.Store(false)
			} else if ctx.Err() == nil {
				w.failed(event, err)
			}
		}
	}
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
