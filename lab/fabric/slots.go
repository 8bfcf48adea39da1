package fabric

import (
	"fmt"
	"sync"

	"vicinity.dev/vicinity/lab/shape"
)

// Slots hands out the numbers of a node's pods. A pod's addresses are derived from its number. It
// reuses a freed number as late as possible, since the kernel still tracks connections of the
// last pod with the number.
type Slots struct {
	mu   sync.Mutex
	used [256]bool
	last int
}

// The first address of a node's range is for the node's own end of its links to pods.
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

// Hold reserves the number that a pod already has.
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
