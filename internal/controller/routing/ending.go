package routing

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

// isEnding reports that nothing can be made in a namespace any more, since it is being
// deleted. All that it has goes by itself, one after the other and in any order, so that
// this is no error and nothing to try again.
func isEnding(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// eventSink writes events. It takes those for written that a namespace has no place for
// any more, of which a recorder would make an error in the log.
type eventSink struct{ events.EventSink }

// Create writes an event for the first time.
func (s eventSink) Create(ctx context.Context, event *eventsv1.Event) (*eventsv1.Event, error) {
	created, err := s.EventSink.Create(ctx, event)
	if isEnding(err) {
		return event, nil
	}
	return created, err
}

// newRecorder tells events until the context ends. Syncs may end after that and still
// have something to tell, which nobody hears then.
func newRecorder(ctx context.Context, mgr manager.Manager) (events.EventRecorder, error) {
	client, err := eventsclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("making a client of events: %w", err)
	}
	broadcaster := events.NewBroadcaster(eventSink{&events.EventSinkImpl{Interface: client}})
	if err := broadcaster.StartRecordingToSinkWithContext(log.IntoContext(ctx, mgr.GetLogger().WithName("events"))); err != nil {
		return nil, fmt.Errorf("starting to tell events: %w", err)
	}
	return broadcaster.NewRecorder(mgr.GetScheme(), "vicinity-controller"), nil
}
