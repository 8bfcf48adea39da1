package shell

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// stuckAfter bounds a sync. Thousands of writes to a slow API server take minutes.
const stuckAfter = 10 * time.Minute

// Syncs tracks running syncs. A process with hanging workers stays the leader and renews its Lease without doing its work, so its
// health check must fail.
type Syncs struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	begun map[*syncing]time.Time
}

// syncing is a running sync. It is not empty, so that each has its own address.
type syncing struct{ what string }

// NewSyncs makes Syncs without a running sync.
func NewSyncs(now clock.PassiveClock) *Syncs {
	return &Syncs{clock: now, begun: map[*syncing]time.Time{}}
}

// Begin tracks a sync until end is called. On nil Syncs it does nothing.
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

// Alive is a health check. It fails while a sync runs longer than stuckAfter.
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
