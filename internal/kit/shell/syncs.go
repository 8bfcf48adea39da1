package shell

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// stuckAfter is how long a sync may take. One that writes thousands of objects, one
// after the other with an API server that is slow, takes minutes.
const stuckAfter = 10 * time.Minute

// Syncs are those under way. A process whose workers hang stays the leader and renews its
// Lease, while its work is not done: it has to be ended.
type Syncs struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	begun map[*syncing]time.Time
}

// syncing is one sync; it has a size, so that each has its own address.
type syncing struct{ what string }

// NewSyncs returns Syncs of which none is under way.
func NewSyncs(now clock.PassiveClock) *Syncs {
	return &Syncs{clock: now, begun: map[*syncing]time.Time{}}
}

// Begin notes a sync until end is called. Begin does nothing on nil Syncs.
func (s *Syncs) Begin(what string) (end func()) {
	if s == nil {
		return func() {}
	}
	one := &syncing{what}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun[one] = s.clock.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.begun, one)
	}
}

// Alive is a health check, which fails while a sync takes longer than any should.
func (s *Syncs) Alive(*http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for one, begun := range s.begun {
		if took := s.clock.Since(begun); took > stuckAfter {
			return fmt.Errorf("the sync of %s has been running for %s, more than %s", one.what, took.Truncate(time.Second), stuckAfter)
		}
	}
	return nil
}
