package reservation

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// lasting keeps values for one to two periods.
type lasting[K comparable, V any] struct {
	clock  clock.PassiveClock
	period time.Duration

	mu            sync.Mutex
	recent, older map[K]V
	since         time.Time
}

func newLasting[K comparable, V any](now clock.PassiveClock, period time.Duration) *lasting[K, V] {
	return &lasting[K, V]{clock: now, period: period, recent: map[K]V{}, since: now.Now()}
}

func (l *lasting[K, V]) note(key K, value V) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.clock.Now(); now.Sub(l.since) > l.period {
		l.recent, l.older, l.since = map[K]V{}, l.recent, now
	}
	l.recent[key] = value
}

func (l *lasting[K, V]) get(key K) (value V, found bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if value, found = l.recent[key]; !found {
		value, found = l.older[key]
	}
	return value, found
}
