package fabric

import (
	"fmt"
	"sync"

	"vicinity.dev/vicinity/lab/shape"
)

// Slots hands out the numbers of a node's pods, from which their addresses follow. It
// reuses a freed number as late as possible: kernels still track connections of its last
// pod.
type Slots struct {
	mu   sync.Mutex
	used [256]bool
	last int
}

// The first address of a node's range is the node's own end of its links to pods.
const (
	firstSlot = 2
	lastSlot  = firstSlot + shape.MaxPods - 1
)

// Take hands out a number.
func (s *Slots) Take() (int, error) {
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

// Hold reserves the number of a pod that already has one.
func (s *Slots) Hold(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[slot], s.last = true, slot
}

// Free takes a number back.
func (s *Slots) Free(slot int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used[slot] = false
}
