package events

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fakeRecorder keeps events as they are written.
type fakeRecorder struct{ events []string }

func (r *fakeRecorder) record(about *corev1.ObjectReference, kind, reason, note string) {
	r.events = append(r.events, fmt.Sprintf("%s/%s %s %s: %s", about.Namespace, about.Name, kind, reason, note))
}
