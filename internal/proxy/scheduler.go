package proxy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
)

// scheduler decides when the programmer syncs, and which Services a sync compiles. Time is an
// argument, and it touches nothing else.
//
// The first change is programmed at once, and changes that follow soon are programmed together. A
// slow sync is followed by a rest, so that endless changes take half of one CPU. A Service that
// takes long to program rests by itself, so that changes of others do not wait for it. A sync has
// room for a bounded number of elements, since all of them are in memory until the kernel has them.
type scheduler struct {
	// period is the least time from the beginning of one sync to that of the next, and notBefore
	// when the next one may begin.
	period    time.Duration
	notBefore time.Time

	// resting is until when Services rest, and changed which of them have changed since.
	resting map[types.NamespacedName]time.Time
	changed map[types.NamespacedName]bool
	// postponed is since when Services wait for a sync that has room for them.
	postponed map[types.NamespacedName]time.Time

	// room is how many elements this sync may take out and put in, 0 for any number, and used how
	// many it does. The first Service that may wait has room whatever it takes: compiledAny says
	// that there was one.
	room, used  int
	compiledAny bool
	efforts     map[types.NamespacedName]effort
}

const (
	// longestRest bounds what one slow sync costs the changes after it.
	longestRest = time.Second
	// turnFactor is how many times as long a Service rests as it took. So it has at most a quarter
	// of the time of one CPU.
	turnFactor = 3
	// brief is how long a Service may take without a rest, and longestTurn how long it rests at most.
	brief       = 5 * time.Millisecond
	longestTurn = 10 * time.Second
)

func newScheduler(period time.Duration) *scheduler {
	return &scheduler{
		period: period, resting: map[types.NamespacedName]time.Time{}, changed: map[types.NamespacedName]bool{},
		postponed: map[types.NamespacedName]time.Time{},
	}
}

// ready is when a sync may begin that is wanted at a time.
func (s *scheduler) ready(at time.Time) time.Time {
	if s.notBefore.After(at) {
		return s.notBefore
	}
	return at
}

// synced notes a sync. Changes do not wait for the period after a sync that wrote nothing new.
func (s *scheduler) synced(began, ended time.Time, wroteNothing bool) {
	s.notBefore = ended.Add(min(ended.Sub(began), longestRest))
	if least := began.Add(s.period); !wroteNothing && least.After(s.notBefore) {
		s.notBefore = least
	}
}

// candidate is a Service that may be compiled.
type candidate struct {
	// bypassesQueue says that it is compiled whenever it has changed.
	bypassesQueue bool
	// elements are those that it has now.
	elements int
	created  time.Time
}

// due are the Services to compile now, in order: those that bypass the queue, then those for which
// earlier syncs had no room, then those with the fewest elements, of these the oldest.
func (s *scheduler) due(changed map[types.NamespacedName]bool, describe func(types.NamespacedName) candidate, now time.Time) []types.NamespacedName {
	maps.DeleteFunc(s.resting, func(_ types.NamespacedName, until time.Time) bool { return !until.After(now) })
	due := make(map[types.NamespacedName]candidate, len(changed))
	for name := range changed {
		one := describe(name)
		if !s.resting[name].IsZero() && !one.bypassesQueue {
			s.changed[name] = true
			continue
		}
		due[name] = one
		delete(s.changed, name)
	}
	for name := range s.changed {
		if s.resting[name].IsZero() {
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

// begin begins a sync with room for so many elements, 0 for any number.
func (s *scheduler) begin(room int) {
	s.room, s.used, s.compiledAny, s.efforts = room, 0, false, map[types.NamespacedName]effort{}
}

// hasRoom reports whether the sync has room for so many elements more.
func (s *scheduler) hasRoom(elements int) bool {
	return s.room == 0 || !s.compiledAny || s.used+elements <= s.room
}

// postpone leaves a Service to a later sync.
func (s *scheduler) postpone(name types.NamespacedName, now time.Time) {
	if s.postponed[name].IsZero() {
		s.postponed[name] = now
	}
}

// compiled notes that a Service was compiled in this sync, perhaps again.
func (s *scheduler) compiled(name types.NamespacedName, one effort, mayWait bool) {
	delete(s.postponed, name)
	s.compiledAny = s.compiledAny || mayWait
	s.used += one.elements() - s.efforts[name].elements()
	s.efforts[name] = one
}

// waits reports whether a Service has changed and is compiled later.
func (s *scheduler) waits(name types.NamespacedName) bool {
	return s.changed[name] || !s.postponed[name].IsZero()
}

// nextTurn is when the first waiting Service has its turn, zero if none waits.
func (s *scheduler) nextTurn() time.Time {
	var at time.Time
	for _, since := range s.postponed {
		at = earlier(at, since)
	}
	for name := range s.changed {
		at = earlier(at, s.resting[name])
	}
	return at
}

// effort is what it took to compile a Service.
type effort struct {
	// had and has are its elements before and after.
	had, has int
	time     time.Duration
}

// elements are how many the kernel may have to take out and put in for the Service.
func (e effort) elements() int { return e.had + e.has }

// writing is what the kernel did in a sync: how many elements it took out and put in, and how long
// that took.
type writing struct {
	elements int
	time     time.Duration
}

// charge has the Services of this sync rest that took long. Each has a share of the kernel's time
// by its elements. If the kernel did more, the rest was for Services that changed before: it
// deleted their leftovers, or took what it had not taken then.
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
		if share >= brief {
			s.resting[name] = now.Add(min(turnFactor*share, longestTurn))
		}
	}
}

// backoff doubles with every failure after the first.
func backoff(first, most time.Duration, failures int) time.Duration {
	wait := first
	for i := 1; i < failures && wait < most; i++ {
		wait *= 2
	}
	return min(wait, most)
}
