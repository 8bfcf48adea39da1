package responder

import (
	"math/rand/v2"
	"sync"
	"time"
)

// memory is how long to wait for what, and who holds which reservations. It can be lost: reservations
// that are not known any more expire.
type memory struct {
	mu   sync.Mutex
	pods map[target]memo
}

// memo is what is known of a pod.
type memo struct {
	denials int       // since it was admitted or its requests ended
	holder  string    // of reservations that were admitted
	renewed time.Time // the reservations
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

// denied notes that a pod has to wait, and says when to try again.
func (m *memory) denied(t target) time.Duration {
	before := m.get(t).denials
	m.set(t, func(known *memo) { known.denials++ })
	wait := retryLongest
	if before < 16 {
		wait = min(wait, retryFirst<<before)
	}
	return wait - jitter(wait/2)
}

// decided notes that a pod does not wait.
func (m *memory) decided(t target) { m.set(t, func(known *memo) { known.denials = 0 }) }

// setHolder notes who holds the reservations of a pod, "" if that is not known.
func (m *memory) setHolder(t target, holder string) {
	m.set(t, func(known *memo) { known.holder = holder })
}

// setRenewed notes when the reservations of a pod were renewed, zero if they are not renewed any more.
func (m *memory) setRenewed(t target, at time.Time) {
	m.set(t, func(known *memo) { known.renewed = at })
}

// waiting are the pods that wait.
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

// jitter is a part of a time.
func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d) + 1)) }
