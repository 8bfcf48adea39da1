package proxy

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// turns let a Service that takes long to program rest after it was, while all others are
// programmed at once. However often it changes, others wait for one of its syncs at most, and
// for the rest after it, see pace.
type turns struct {
	// resting is until when Services rest, and changed which of them have changed since.
	resting map[types.NamespacedName]time.Time
	changed map[types.NamespacedName]bool
	// postponed is since when Services wait for which earlier syncs had no room, see batch.
	postponed map[types.NamespacedName]time.Time
}

const (
	// turnFactor is how many times as long a Service rests as it took: it has a quarter of
	// the time of one CPU at most.
	turnFactor = 3
	// brief is how long a Service may take that need not rest, and longestTurn how long one
	// rests at most.
	brief       = 5 * time.Millisecond
	longestTurn = 10 * time.Second
)

func newTurns() *turns {
	return &turns{
		resting: map[types.NamespacedName]time.Time{}, changed: map[types.NamespacedName]bool{}, postponed: map[types.NamespacedName]time.Time{},
	}
}

// due are those of some Services that have changed whose turn it is, with others that had
// to wait until now. Some do not wait for their turn.
func (t *turns) due(changed map[types.NamespacedName]bool, atOnce func(types.NamespacedName) bool, now time.Time) map[types.NamespacedName]bool {
	maps.DeleteFunc(t.resting, func(_ types.NamespacedName, until time.Time) bool { return !until.After(now) })
	due := make(map[types.NamespacedName]bool, len(changed))
	for name := range changed {
		if !t.resting[name].IsZero() && !atOnce(name) {
			t.changed[name] = true
			continue
		}
		due[name] = true
		delete(t.changed, name)
	}
	for name := range t.changed {
		if t.resting[name].IsZero() {
			due[name] = true
			delete(t.changed, name)
		}
	}
	for name := range t.postponed {
		due[name] = true
	}
	return due
}

// postpone notes that a sync has no room for a Service, and admit that it has.
func (t *turns) postpone(name types.NamespacedName, now time.Time) {
	if t.postponed[name].IsZero() {
		t.postponed[name] = now
	}
}

func (t *turns) admit(name types.NamespacedName) { delete(t.postponed, name) }

// waits reports whether a Service has changed and has its turn later.
func (t *turns) waits(name types.NamespacedName) bool {
	return t.changed[name] || !t.postponed[name].IsZero()
}

// next is when the first Service that waits has its turn, zero if none waits.
func (t *turns) next() time.Time {
	var at time.Time
	for _, since := range t.postponed {
		at = earlier(at, since)
	}
	for name := range t.changed {
		at = earlier(at, t.resting[name])
	}
	return at
}

// effort is what it took to compile a Service: how many elements it had and has then, and how
// long.
type effort struct {
	had, has int
	time     time.Duration
}

// elements are how many the kernel may have to take out and put in for the Service.
func (e effort) elements() int { return e.had + e.has }

// writing is what the kernel did in a sync: how many elements it took out and put in, and how
// long that took.
type writing struct {
	elements int
	time     time.Duration
}

// ran notes what it took to compile Services, and what the kernel did then, of which each of
// them has a part by its elements. If the kernel did more than that, the rest was for Services
// that changed before: it deleted what had lingered of them, or took what it had not taken then.
func (t *turns) ran(compiled map[types.NamespacedName]effort, wrote writing, now time.Time) {
	sum := 0
	for _, one := range compiled {
		sum += one.elements()
	}
	sum = max(sum, wrote.elements)
	for name, one := range compiled {
		share := one.time
		if sum > 0 {
			share += time.Duration(float64(wrote.time) * float64(one.elements()) / float64(sum))
		}
		if share >= brief {
			t.resting[name] = now.Add(min(turnFactor*share, longestTurn))
		}
	}
}
