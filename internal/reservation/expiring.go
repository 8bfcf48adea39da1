package reservation

import (
	"time"

	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
)

// expiring keeps values for a time each.
type expiring[K comparable, V any] struct {
	clock clock.PassiveClock
	lasts time.Duration
	kept  *cache.Expiring
}

func newExpiring[K comparable, V any](now clock.Clock, lasts time.Duration) *expiring[K, V] {
	return &expiring[K, V]{clock: now, lasts: lasts, kept: cache.NewExpiringWithClock(now)}
}

func (e *expiring[K, V]) set(key K, value V) { e.kept.Set(key, value, e.lasts) }

func (e *expiring[K, V]) get(key K) (value V, found bool) {
	kept, found := e.kept.Get(key)
	if found {
		value = kept.(V)
	}
	return value, found
}

// getOrRead is the kept value of a key, or a new one. The time of a new one begins before the read. Errors are not
// kept.
func (e *expiring[K, V]) getOrRead(key K, read func() (V, error)) (V, error) {
	if value, found := e.get(key); found {
		return value, nil
	}
	begin := e.clock.Now()
	value, err := read()
	if err == nil {
		e.kept.Set(key, value, e.lasts-e.clock.Since(begin))
	}
	return value, err
}
