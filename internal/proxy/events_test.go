package proxy

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
)

// TestEventsAreMadeAndNotChanged says the same again while its event is there and after it
// has gone.
func TestEventsAreMadeAndNotChanged(t *testing.T) {
	client := fake.NewClientset()
	broadcaster := events.NewBroadcaster(eventSink{&events.EventSinkImpl{Interface: client.EventsV1()}})
	if err := broadcaster.StartRecordingToSinkWithContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer broadcaster.Shutdown()
	recorder := broadcaster.NewRecorder(scheme.Scheme, "vicinity-proxy")
	about := &corev1.ObjectReference{Kind: "Service", Namespace: "shop", Name: "web", APIVersion: "v1"}
	// writes are what was asked of the API server so far.
	writes := func() (verbs []string) {
		for _, action := range client.Actions() {
			verbs = append(verbs, action.GetVerb())
		}
		return verbs
	}
	say := func(wanted int) {
		t.Helper()
		recorder.Eventf(about, nil, corev1.EventTypeWarning, "PortNotProgrammed", "Programming", "the port is taken")
		for deadline := time.Now().Add(30 * time.Second); len(writes()) < wanted; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the API server was asked for %q, want %d writes", writes(), wanted)
			}
		}
	}
	say(1)
	say(2) // which the API server refuses
	list, err := client.EventsV1().Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("there are the events %v, %v", list, err)
	}
	for _, verb := range writes() {
		if verb != "create" && verb != "list" {
			t.Errorf("the proxy needs to %s events", verb)
		}
	}
}
