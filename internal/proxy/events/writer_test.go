package events

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// eventsAPI stands for an API server.
type eventsAPI struct {
	created []*eventsv1.Event
	tries   int
	fails   error
	// failures are the events that were not written.
	failures int
}

func (a *eventsAPI) fail() { a.failures++ }

func (a *eventsAPI) create(_ context.Context, event *eventsv1.Event) error {
	a.tries++
	if a.fails == nil {
		a.created = append(a.created, event)
	}
	return a.fails
}

// withEvents runs a writer of events while a test runs, in time of its own.
func withEvents(t *testing.T, test func(*testing.T, *Writer, *eventsAPI)) {
	synctest.Test(t, func(t *testing.T) {
		api := &eventsAPI{}
		w := NewWriter(api.create, "node-a", api.fail, logr.Discard())
		ctx, cancel := context.WithCancel(t.Context())
		go w.Run(ctx)
		test(t, w, api)
		cancel()
		synctest.Wait()
	})
}

func aboutService() *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "web", APIVersion: "v1", UID: "7"}
}

func TestEventsAreComplete(t *testing.T) {
	withEvents(t, func(t *testing.T, w *Writer, api *eventsAPI) {
		w.Record(aboutService(), corev1.EventTypeWarning, "PortNotProgrammed", strings.Repeat("é", mostNote))
		synctest.Wait()
		if len(api.created) != 1 {
			t.Fatalf("%d events were created", len(api.created))
		}
		e := api.created[0]
		if e.Namespace != "shop" || !strings.HasPrefix(e.Name, "web.") || e.EventTime.IsZero() || e.Regarding != *aboutService() ||
			e.Type != corev1.EventTypeWarning || e.Reason != "PortNotProgrammed" || e.Action == "" || e.ReportingController != "vicinity-proxy" ||
			e.ReportingInstance != "vicinity-proxy-node-a" || e.Note != strings.Repeat("é", mostNote/2) {
			t.Errorf("the event is %+v", e)
		}
	})
}

// Events that the API server refuses are not repeated. Events that do not reach it are.
func TestFailedEvents(t *testing.T) {
	for _, test := range []struct {
		name     string
		err      error
		tries    int
		failures int
	}{
		{"refused", fmt.Errorf("creating: %w", apierrors.NewForbidden(eventsv1.Resource("events"), "web.1", nil)), 1, 1},
		{"there already", apierrors.NewAlreadyExists(eventsv1.Resource("events"), "web.1"), 1, 0},
		{"the namespace is gone", apierrors.NewNotFound(corev1.Resource("namespaces"), "shop"), 1, 0},
		{"not reached", errors.New("connection refused"), eventTries, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			withEvents(t, func(t *testing.T, w *Writer, api *eventsAPI) {
				api.fails = test.err
				w.Record(aboutService(), corev1.EventTypeWarning, "PortNotProgrammed", "the port is taken")
				time.Sleep(time.Hour)
				synctest.Wait()
				if api.tries != test.tries || api.failures != test.failures {
					t.Errorf("%d tries and %d failures, want %d and %d", api.tries, api.failures, test.tries, test.failures)
				}
				api.fails = nil
				w.Record(aboutService(), corev1.EventTypeNormal, "ElementsProgrammed", "all of it is programmed")
				synctest.Wait()
				if len(api.created) != 1 {
					t.Errorf("%d events were created afterwards", len(api.created))
				}
			})
		})
	}
}
