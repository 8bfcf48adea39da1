// Package events writes events about Services that do not work on a node: Warnings decide which and when, and a Writer
// writes them.
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

// Writer creates events about Services, one after another. It changes none, so a proxy needs no right to change events.
//
// client-go's recorder is not used: it links the clients of all APIs, and changes events to count repetitions.
type Writer struct {
	create     func(context.Context, *eventsv1.Event) error
	node       string
	notWritten func()
	log        logr.Logger

	queue   chan *eventsv1.Event
	failing atomic.Bool
}

const (
	eventController = "vicinity-proxy"
	eventAction     = "Programming"
	// mostQueued events can wait to be written. Further events are dropped.
	mostQueued = 256
	// While the API server is unreachable, an event is tried eventTries times. The pauses are eventRetry and up to a
	// quarter more, so that nodes do not send at the same time.
	eventTries = 12
	eventRetry = 10 * time.Second
	eventTime  = 5 * time.Second
	// mostNote and mostInstance are the API's limits in bytes.
	mostNote, mostInstance = 1024, 128
)

// NewWriter returns a Writer for the events of a node. It calls notWritten for each lost event.
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
		w.failed(event, errors.New("too many events are queued"))
	}
}

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

// write creates an event, and retries while the API server is unreachable.
func (w *Writer) write(ctx context.Context, event *eventsv1.Event) error {
	for try := 1; ; try++ {
		limited, cancel := context.WithTimeout(ctx, eventTime)
		err := w.create(limited, event)
		cancel()
		switch {
		case err == nil, apierrors.IsAlreadyExists(err): // an earlier try may have succeeded
			return nil
		case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause), apierrors.IsNotFound(err):
			return nil // the namespace is being deleted
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

// failed counts a lost event, and logs the first in a row.
func (w *Writer) failed(event *eventsv1.Event, cause error) {
	w.notWritten()
	if w.failing.Swap(true) {
		return
	}
	w.log.Error(cause, "Cannot write an event", "service", event.Namespace+"/"+event.Regarding.Name, "reason", event.Reason)
}
