package shell

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestFinish(t *testing.T) {
	failure := errors.New("no")
	for _, test := range []struct {
		name    string
		err     error
		after   time.Duration
		outcome Outcome
		want    error
	}{
		{"done", nil, time.Minute, Done, nil},
		{"changed", fmt.Errorf("writing: %w", ErrChanged), ConflictWait, Conflict, nil},
		{"ending", fmt.Errorf("creating: %w", errEnding), 0, Done, nil},
		{"failed", failure, 0, Failed, failure},
	} {
		result, outcome, err := Finish(time.Minute, test.err)
		if result.RequeueAfter != test.after || outcome != test.outcome || !errors.Is(err, test.want) {
			t.Errorf("%s: %+v, %s, %v", test.name, result, outcome, err)
		}
	}
}

func TestBackoff(t *testing.T) {
	now := time.Unix(1000, 0)
	var b Backoff
	if b.Wait(now) != 0 {
		t.Error("it waits before it has failed")
	}
	for i, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		if b.Fail(now, time.Second, 10*time.Second); b.Wait(now) != want*time.Second || b.Failures != i+1 {
			t.Errorf("after %d failures it waits for %s, want %d s", b.Failures, b.Wait(now), want)
		}
	}
	for range 100 {
		b.Fail(now, time.Second, 10*time.Second)
	}
	if b.Wait(now) != 10*time.Second || b.Wait(now.Add(time.Hour)) != 0 {
		t.Errorf("after many failures it waits for %s", b.Wait(now))
	}
}

func TestLasting(t *testing.T) {
	now := time.Unix(1000, 0)
	var l Lasting[string]
	left := func(value string, want time.Duration) {
		t.Helper()
		if got := l.Left(value, now, 10*time.Second); got != want {
			t.Errorf("%s has to stay for %s, want %s", value, got, want)
		}
	}
	left("a", 10*time.Second)
	now = now.Add(4 * time.Second)
	left("a", 6*time.Second)
	left("b", 10*time.Second)
	left("a", 10*time.Second)
	now = now.Add(11 * time.Second)
	left("a", 0)
	l.Reset()
	left("a", 10*time.Second)
}

func TestSyncsThatHang(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	syncs := NewSyncs(now)
	alive := func(want bool) {
		t.Helper()
		if err := syncs.Alive(nil); (err == nil) != want {
			t.Errorf("alive: %v, want %t", err, want)
		}
	}
	alive(true)
	first := syncs.Begin("Service shop/web")
	now.SetTime(now.Now().Add(stuckAfter))
	second := syncs.Begin("Service shop/web")
	alive(true)
	now.SetTime(now.Now().Add(time.Second))
	alive(false)
	first()
	alive(true)
	now.SetTime(now.Now().Add(stuckAfter))
	alive(false)
	second()
	alive(true)
}

// errEnding is the answer of the API server to a create in a namespace that is being deleted.
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
