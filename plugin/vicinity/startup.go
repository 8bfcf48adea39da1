package vicinity

import (
	"slices"
	"sync"

	"github.com/coredns/caddy"
)

// startups are those of the servers of this program. Caddy drops a server that does not start,
// as after a reload, without a call to its plugins, so a later server stops what that has begun.
var startups registry

// registry has startups until their servers are gone.
type registry struct {
	mu  sync.Mutex
	all []*startup
}

// startup is what all blocks of one server have begun. The storage of the server's instance has it.
type startup struct {
	mu    sync.Mutex
	stops []func()
}

type startupKey struct{}

// of is the startup of the server that a block is set up for.
func (r *registry) of(c *caddy.Controller) *startup {
	if s, ok := c.Get(startupKey{}).(*startup); ok {
		return s
	}
	s := &startup{}
	c.Set(startupKey{}, s)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, s)
	return s
}

// stopDropped stops what servers have begun that caddy does not have any more.
func (r *registry) stopDropped() {
	live := map[*startup]bool{}
	for _, instance := range caddy.Instances() {
		instance.StorageMu.RLock()
		if s, ok := instance.Storage[startupKey{}].(*startup); ok {
			live[s] = true
		}
		instance.StorageMu.RUnlock()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = slices.DeleteFunc(r.all, func(s *startup) bool {
		if !live[s] {
			s.stop()
		}
		return !live[s]
	})
}

// begun notes how to stop a part.
func (s *startup) begun(stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stops = append(s.stops, stop)
}

// stop stops what was begun.
func (s *startup) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, stop := range s.stops {
		stop()
	}
	s.stops = nil
}
