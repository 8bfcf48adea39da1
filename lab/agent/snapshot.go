package agent

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// snapshot is what others than the worker may look at.
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

// current returns the attempt of a container that runs now.
func (v podView) current(name string) *attempt {
	if a := v.attempts[name].current; a != nil && a.Ended.IsZero() {
		return a
	}
	return nil
}

// publish lets others see how the pod is now.
func (w *worker) publish() {
	view := podView{pod: w.pod, attempts: make(map[string]attemptView, len(w.r.Containers))}
	for name, c := range w.r.Containers {
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
