package shell

import (
	"context"
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
)

// errEnding is what the API server answers where something is to be made in a namespace
// that is being deleted.
var errEnding = &apierrors.StatusError{ErrStatus: metav1.Status{
	Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
	Message: "unable to create new content in namespace shop because it is being terminated",
	Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
}}

// refusingSink answers all events with the same error.
type refusingSink struct {
	events.EventSink
	err error
}

func (s refusingSink) Create(context.Context, *eventsv1.Event) (*eventsv1.Event, error) {
	return nil, s.err
}

func TestEventsOfANamespaceThatEnds(t *testing.T) {
	event := &eventsv1.Event{Reason: "TopologyWaiting"}
	if got, err := (eventSink{refusingSink{err: errEnding}}).Create(t.Context(), event); err != nil || got != event {
		t.Errorf("got %v, %v", got, err)
	}
	other := errors.New("no")
	if _, err := (eventSink{refusingSink{err: other}}).Create(t.Context(), event); !errors.Is(err, other) {
		t.Errorf("another error becomes %v", err)
	}
}
