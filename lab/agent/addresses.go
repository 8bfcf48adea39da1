package agent

import (
	"fmt"
	"sync"

	"vicinity.dev/vicinity/lab/shape"
)

// slots hands out the numbers of a node's pods, which their addresses follow from. It
// goes round, so that an address rests as long as possible before it comes again:
// kernels remember connections of the pod that had it.
type slots struct {
	mu   sync.Mutex
	used [256]bool
	last int
}

// The first address of a node's range is its own side of the pods' links.
const (
	firstSlot = 2
	lastSlot  = firstSlot + shape.MaxPods - 1
)

func (s *slots) take() (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range lastSlot - firstSlot + 1 {
		if s.last++; s.last < firstSlot || s.last > lastSlot {
			s.last = firstSlot
		}
		if !s.used[s.last] {
			s.used[s.last] = true
			return s.last, nil
		}
	}
	return 0, fmt.Errorf("all %d pod addresses of the node are taken", lastSlot-firstSlot+1)
}

// hold marks a number that a pod has already.
func (s *slots) hold(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[slot], s.last = true, slot
}

func (s *slots) free(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[slot] = false
}
