package responder

import (
	"math/rand/v2"
	"sync"
	"time"
)

// memory is how long to wait for what, and who holds which reservations. It can be lost: those
// that are not known any more expire.
type memory struct {
	mu sync.Mutex
	// denials are how often pods were denied, by namespace.
	denials map[string]map[target]int
	// holders are those of reservations that were admitted.
	holders map[target]string
	// renewed is when the reservations of pods were renewed.
	renewed map[target]time.Time
}

func newMemory() *memory {
	return &memory{denials: map[string]map[target]int{}, holders: map[target]string{}, renewed: map[target]time.Time{}}
}

// denied notes that a pod has to wait, and says when to try again.
func (m *memory) denied(t target) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.denials[t.Namespace] == nil {
		m.denials[t.Namespace] = map[target]int{}
	}
	before := m.denials[t.Namespace][t]
	m.denials[t.Namespace][t]++
	wait := retryLongest
	if before < 16 {
		wait = min(wait, retryFirst<<before)
	}
	return wait - jitter(wait/2)
}

// decided notes that a pod does not wait.
func (m *memory) decided(t target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.denials[t.Namespace], t)
	if len(m.denials[t.Namespace]) == 0 {
		delete(m.denials, t.Namespace)
	}
}

// waiting are the pods of a namespace that wait.
func (m *memory) waiting(namespace string) []target {
	m.mu.Lock()
	defer m.mu.Unlock()
	targets := make([]target, 0, len(m.denials[namespace]))
	for t := range m.denials[namespace] {
		targets = append(targets, t)
	}
	return targets
}

// count is how many pods wait.
func (m *memory) count() (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, targets := range m.denials {
		n += len(targets)
	}
	return n
}

// holder is that of the reservations of a pod, if any were admitted.
func (m *memory) holder(t target) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	holder, ok := m.holders[t]
	return holder, ok
}

func (m *memory) hasHolder(t target, holder string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.holders[t] = holder
}

func (m *memory) forgetHolder(t target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.holders, t)
}

// held notes that the reservations of a pod were renewed.
func (m *memory) held(t target, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.renewed[t] = now
}

// heldSince is when the reservations of a pod were renewed, zero if that is not known.
func (m *memory) heldSince(t target) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.renewed[t]
}

// letGo notes that reservations of a pod are not renewed any more.
func (m *memory) letGo(t target) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.renewed, t)
}

// jitter is a part of a time.
func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d) + 1)) }
