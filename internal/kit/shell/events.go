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

// IsEnding reports that nothing can be made in a namespace any more, since it is being
// deleted. Its objects go by themselves, in any order, so this is no error, and there is
// nothing to try again.
func IsEnding(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// eventSink writes events. One for a namespace that is being deleted counts as written,
// so that a recorder does not log an error.
type eventSink struct{ events.EventSink }

// Create writes an event for the first time.
func (s eventSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	if IsEnding(err) {
		return event, nil
	}
	return created, err
}

// NewRecorder returns a recorder that writes events in the name of a component until the
// context ends. Events of syncs that end later are dropped.
func NewRecorder(ctx context.Context, mgr manager.Manager, component string) (events.EventRecorder, error) {
	client, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of events: %w", err)
	}
	broadcaster := events.NewBroadcaster(eventSink{&events.EventSinkImpl{Interface: client}})
	if err := broadcaster.StartRecordingToSinkWithContext(log.IntoContext(ctx, mgr.GetLogger().WithName("events"))); err != nil {
		return nil, fmt.Errorf("starting to tell events: %w", err)
	}
	return broadcaster.NewRecorder(mgr.GetScheme(), component), nil
}
