package shell

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	eventsclient "k8s.io/client-go/kubernetes/typed/events/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// IsEnding reports whether a creation failed because the namespace is being deleted. That needs no retry: the namespace's objects are
// deleted anyway.
func IsEnding(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// eventSink writes events. It reports success for a namespace that is being deleted, so that the recorder logs no error.
type eventSink struct{ events.EventSink }

// Create implements events.EventSink.
func (s eventSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	if IsEnding(err) {
		return event, nil
	}
	return created, err
}

// NewRecorder returns a recorder for the events of a component. It drops events after the context ends.
func NewRecorder(ctx context.Context, mgr manager.Manager, component string) (events.EventRecorder, error) {
	client, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of events: %w", err)
	}
	broadcaster := events.NewBroadcaster(eventSink{&events.EventSinkImpl{Interface: client}})
	if err := broadcaster.StartRecordingToSinkWithContext(log.IntoContext(ctx, mgr.GetLogger().WithName("events"))); err != nil {
		return nil, fmt.Errorf("starting the event broadcaster: %w", err)
	}
	return broadcaster.NewRecorder(mgr.GetScheme(), component), nil
}
