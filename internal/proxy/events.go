package proxy

import (
	"context"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
)

// eventSink makes events and changes none, so that a proxy needs no right to change those
// of others, which cannot be told apart by role. What is said again while its event is
// there is not counted; once the event is gone, it is made again.
type eventSink struct{ events.EventSink }

// Create makes an event, unless it is there when it is said again.
func (s eventSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	if event.Series != nil && apierrors.IsAlreadyExists(err) {
		return event, nil // the client library would try again and again
	}
	return created, err
}

// Patch would count an event that is said again. The answer has the client library make it
// anew, by the same name.
func (eventSink) Patch(_ context.Context, event *eventsv1.Event, _ []byte) (*eventsv1.Event, error) {
	return nil, apierrors.NewNotFound(eventsv1.Resource("events"), event.Name)
}
