package reservation

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// recent are answers of the API server that are taken for what is stored for a while.
type recent[K comparable, V any] struct {
	clock clock.PassiveClock
	trust time.Duration

	mu    sync.Mutex
	known map[K]answered[V]
}

type answered[V any] struct {
	value V
	until time.Time
}

func newRecent[K comparable, V any](now clock.PassiveClock, trust time.Duration) *recent[K, V] {
	return &recent[K, V]{clock: now, trust: trust, known: map[K]answered[V]{}}
}

// get is what is known for a key, or what read says. Errors are not kept.
func (r *recent[K, V]) get(key K, read func() (V, error)) (V, error) {
	now := r.clock.Now()
	r.mu.Lock()
	known, found := r.known[key]
	r.mu.Unlock()
	if found && now.Before(known.until) {
		return known.value, nil
	}
	value, err := read()
	if err != nil {
		return value, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for other, known := range r.known {
		if !now.Before(known.until) {
			delete(r.known, other)
		}
	}
	r.known[key] = answered[V]{value, now.Add(r.trust)}
	return value, nil
}
