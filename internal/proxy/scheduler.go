package proxy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
)

// scheduler decides when the programmer syncs, and which Services a sync compiles. Time is an argument.
//
// The first change is programmed at once, and changes that follow soon are programmed together. A slow sync delays the
// next one, so that endless changes take at most half of one CPU. A slow Service is delayed alone, so that others do not
// wait for it. A sync has room for a bounded number of elements: they are in memory until the kernel has them.
type scheduler struct {
	// period is the minimum time between the beginnings of two syncs. The next one begins at notBefore or later.
	period    time.Duration
	notBefore time.Time

	// delayedUntil has the end of each Service's delay, and changed the delayed Services that have changed since.
	delayedUntil map[types.NamespacedName]time.Time
	changed      map[types.NamespacedName]bool
	// postponed has the time since when each Service waits for a sync with room for it.
	postponed map[types.NamespacedName]time.Time

	// room is how many elements this sync may add and delete, 0 for any number, and used how many it does. The first
	// Service that may wait always has room. compiledAny means that it was compiled.
	room, used  int
	compiledAny bool
	efforts     map[types.NamespacedName]effort
}

const (
	// maxSyncDelay bounds the delay of changes after a slow sync.
	maxSyncDelay = time.Second
	// delayFactor is the delay of a Service as a multiple of its effort. So it gets at most a quarter of one CPU.
	delayFactor = 3
	// Efforts shorter than minDelayedEffort cause no delay. maxServiceDelay bounds the delay of a Service.
	minDelayedEffort = 5 * time.Millisecond
	maxServiceDelay  = 10 * time.Second
)

func newScheduler(period time.Duration) *scheduler {
	return &scheduler{
		period: period, delayedUntil: map[types.NamespacedName]time.Time{}, changed: map[types.NamespacedName]bool{},
		postponed: map[types.NamespacedName]time.Time{},
	}
}

// ready returns when a sync that is wanted at a time may begin.
func (s *scheduler) ready(at time.Time) time.Time {
	if s.notBefore.After(at) {
		return s.notBefore
	}
	return at
}

// synced records a sync. After one that wrote nothing new, changes do not wait for the period.
func (s *scheduler) synced(began, ended time.Time, wroteNothing bool) {
	s.notBefore = ended.Add(min(ended.Sub(began), maxSyncDelay))
	if least := began.Add(s.period); !wroteNothing && least.After(s.notBefore) {
		s.notBefore = least
	}
}

// candidate is a Service that may be compiled.
type candidate struct {
	// bypassesQueue means that the Service is compiled at once when it has changed.
	bypassesQueue bool
	elements      int // current
	created       time.Time
}

// due returns the Services to compile now, in order: first Services that bypass the queue, then postponed Services, then
// the others by elements and age.
func (s *scheduler) due(changed map[types.NamespacedName]bool, describe func(types.NamespacedName) candidate, now time.Time) []types.NamespacedName {
	maps.DeleteFunc(s.delayedUntil, func(_ types.NamespacedName, until time.Time) bool { return !until.After(now) })
	due := make(map[types.NamespacedName]candidate, len(changed))
	for name := range changed {
		one := describe(name)
		if !s.delayedUntil[name].IsZero() && !one.bypassesQueue {
			s.changed[name] = true
			continue
		}
		due[name] = one
		delete(s.changed, name)
	}
	for name := range s.changed {
		if s.delayedUntil[name].IsZero() {
			due[name] = describe(name)
			delete(s.changed, name)
		}
	}
	for name := range s.postponed {
		due[name] = describe(name)
	}
	waitsSince := func(name types.NamespacedName) time.Time {
		switch since := s.postponed[name]; {
		case due[name].bypassesQueue:
			return time.Time{}
		case !since.IsZero():
			return since
		}
		return now
	}
	return slices.SortedFunc(maps.Keys(due), func(x, y types.NamespacedName) int {
		a, b := due[x], due[y]
		return cmp.Or(waitsSince(x).Compare(waitsSince(y)), cmp.Compare(a.elements, b.elements), a.created.Compare(b.created), cluster.CompareNames(x, y))
	})
}

// begin begins a sync with room for a number of elements, 0 for any number.
func (s *scheduler) begin(room int) {
	s.room, s.used, s.compiledAny, s.efforts = room, 0, false, map[types.NamespacedName]effort{}
}

// hasRoom reports whether the sync has room for more elements.
func (s *scheduler) hasRoom(elements int) bool {
	return s.room == 0 || !s.compiledAny || s.used+elements <= s.room
}

// postpone leaves a Service to a later sync.
func (s *scheduler) postpone(name types.NamespacedName, now time.Time) {
	if s.postponed[name].IsZero() {
		s.postponed[name] = now
	}
}

// compiled records that a Service was compiled in this sync, perhaps again.
func (s *scheduler) compiled(name types.NamespacedName, one effort, mayWait bool) {
	delete(s.postponed, name)
	s.compiledAny = s.compiledAny || mayWait
	s.used += one.elements() - s.efforts[name].elements()
	s.efforts[name] = one
}

// waits reports whether a changed Service waits for a later sync.
func (s *scheduler) waits(name types.NamespacedName) bool {
	return s.changed[name] || !s.postponed[name].IsZero()
}

// nextDue returns when the first waiting Service is due, zero if none waits.
func (s *scheduler) nextDue() time.Time {
	var at time.Time
	for _, since := range s.postponed {
		at = earlier(at, since)
	}
	for name := range s.changed {
		at = earlier(at, s.delayedUntil[name])
	}
	return at
}

// effort is the cost of compiling a Service.
type effort struct {
	had, has int // elements before and after
	time     time.Duration
}

// elements returns how many elements the kernel may have to delete and add for the Service.
func (e effort) elements() int { return e.had + e.has }

// writing is the kernel's work in a sync: the added and deleted elements, and the time.
type writing struct {
	elements int
	time     time.Duration
}

// charge delays the slow Services of this sync. Each is charged a share of the kernel's time by its elements. If the
// kernel wrote more elements, the remainder belongs to Services of earlier syncs: their leftovers, and changes that
// the kernel had not taken then.
func (s *scheduler) charge(wrote writing, now time.Time) {
	sum := 0
	for _, one := range s.efforts {
		sum += one.elements()
	}
	sum = max(sum, wrote.elements)
	for name, one := range s.efforts {
		share := one.time
		if sum > 0 {
			share += time.Duration(float64(wrote.time) * float64(one.elements()) / float64(sum))
		}
		if share >= minDelayedEffort {
			s.delayedUntil[name] = now.Add(min(delayFactor*share, maxServiceDelay))
		}
	}
}

// backoff doubles the delay with every failure after the first.
func backoff(first, most time.Duration, failures int) time.Duration {
	wait := first
	for i := 1; i < failures && wait < most; i++ {
		wait *= 2
	}
	return min(wait, most)
}
