package agent

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// snapshot is a copy of the pod's state for other goroutines than the worker's.
type snapshot struct {
	mu   sync.Mutex
	view podView
}

// podView is a pod with the attempts of its containers, by name.
type podView struct {
	pod      *corev1.Pod
	attempts map[string]attemptView
}

type attemptView struct {
	current, previous *attempt
	waiting           string
}

func (s *snapshot) get() podView {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.view
}

// current returns the running attempt of a container, or nil.
func (v podView) current(name string) *attempt {
	if a := v.attempts[name].current; a != nil && a.Ended.IsZero() {
		return a
	}
	return nil
}

func (w *worker) publish() {
	view := podView{pod: w.pod, attempts: make(map[string]attemptView, len(w.record.Containers))}
	for name, c := range w.record.Containers {
		var a attemptView
		if c.Current != nil {
			current := *c.Current
			a.current = &current
		}
		if c.Previous != nil {
			previous := *c.Previous
			a.previous = &previous
		}
		if c.Waiting != nil {
			a.waiting = c.Waiting.Reason
		}
		view.attempts[name] = a
	}
	w.snap.mu.Lock()
	defer w.snap.mu.Unlock()
	w.snap.view = view
}
