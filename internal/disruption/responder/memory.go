package responder

import (
	"math/rand/v2"
	"sync"
	"time"
)

// memory has the denials and the reservations of pods. It can be lost: forgotten reservations expire.
type memory struct {
	mu   sync.Mutex
	pods map[target]memo
}

type memo struct {
	denials int       // in a row
	holder  string    // of the reservations
	renewed time.Time // when the reservations were last renewed
}

func newMemory() *memory { return &memory{pods: map[target]memo{}} }

func (m *memory) get(t target) memo {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[t]
}

func (m *memory) set(t target, change func(*memo)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.pods[t]
	change(&known)
	if m.pods[t] = known; known == (memo{}) {
		delete(m.pods, t)
	}
}

// denied counts a denial, and returns the wait until the next attempt.
func (m *memory) denied(t target) time.Duration {
	before := m.get(t).denials
	m.set(t, func(known *memo) { known.denials++ })
	wait := retryLongest
	if before < 16 {
		wait = min(wait, retryFirst<<before)
	}
	return wait - jitter(wait/2)
}

// decided resets the denials of a pod.
func (m *memory) decided(t target) { m.set(t, func(known *memo) { known.denials = 0 }) }

// setHolder stores the holder of the reservations of a pod, "" if unknown.
func (m *memory) setHolder(t target, holder string) {
	m.set(t, func(known *memo) { known.holder = holder })
}

// setRenewed stores when the reservations of a pod were renewed, zero if the renewals have ended.
func (m *memory) setRenewed(t target, at time.Time) {
	m.set(t, func(known *memo) { known.renewed = at })
}

// waiting lists the pods with denials.
func (m *memory) waiting() []target {
	m.mu.Lock()
	defer m.mu.Unlock()
	var targets []target
	for t, known := range m.pods {
		if known.denials > 0 {
			targets = append(targets, t)
		}
	}
	return targets
}

// jitter returns a random part of a duration.
func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d) + 1)) }
