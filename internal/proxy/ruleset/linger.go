package ruleset

import (
	"time"
)

// lingering has the unused parts and slots that stay in the kernel for packets that are being processed.
type lingering struct {
	slots map[slotsOf]*surplus
	// queue has the deletions, in order. An item is obsolete if its time differs from that of its part or slots.
	queue    []deferral
	rechecks []*recheck // in order, at whole multiples of recheckEvery after origin
	origin   time.Time
}

// recheckEvery batches rechecks, so that a stream of changes does not search the connections for each change.
const recheckEvery = time.Second

// slotsOf are the slots of a front in the map of a pool.
type slotsOf struct {
	front Front
	pool  int
}

// surplus has slots that are no longer drawn.
type surplus struct {
	slots []uint32 // sorted
	due   time.Time
}

// deferral is a later deletion of a part or, if that is nil, of slots.
type deferral struct {
	due   time.Time
	part  *part
	slots slotsOf
}

func newLingering() lingering {
	return lingering{slots: make(map[slotsOf]*surplus)}
}

// deferSlots adds unused slots. They must be below the unused slots of the front.
func (l *lingering) deferSlots(of slotsOf, added []uint32, due time.Time) {
	rest := l.slots[of]
	if rest == nil {
		rest = &surplus{}
		l.slots[of] = rest
	}
	rest.slots = append(added, rest.slots...)
	rest.due = due
	l.queue = append(l.queue, deferral{due: due, slots: of})
}

// takeSlot takes back an unused slot, and reports whether there was one. The lowest slot must come first.
func (l *lingering) takeSlot(of slotsOf, slot uint32) bool {
	rest := l.slots[of]
	if rest == nil || rest.slots[0] != slot {
		return false
	}
	rest.slots = rest.slots[1:]
	if len(rest.slots) == 0 {
		delete(l.slots, of)
	}
	return true
}

// deferPart defers the deletion of a part.
func (l *lingering) deferPart(p *part, due time.Time) {
	p.due = due
	l.queue = append(l.queue, deferral{due: due, part: p})
}

// deferRecheck adds a recheck for after the linger time.
func (l *lingering) deferRecheck(again *recheck, until time.Time) {
	if l.origin.IsZero() {
		l.origin = until
	}
	again.wait(l.origin, until)
	l.rechecks = append(l.rechecks, again)
}

// wait sets a recheck's time to the first multiple of recheckEvery that is not before until.
func (l *recheck) wait(origin, until time.Time) {
	times := (until.Sub(origin) + recheckEvery - 1) / recheckEvery
	l.until, l.due = until, origin.Add(times*recheckEvery)
}

// extend moves the deletions and rechecks of a time to a later one.
func (l *lingering) extend(due, until time.Time) {
	for i := range l.queue {
		d := &l.queue[i]
		if !d.due.Equal(due) || l.isObsolete(*d) {
			continue
		}
		d.due = until
		if d.part == nil {
			l.slots[d.slots].due = until
			continue
		}
		if d.part.left.Equal(due) {
			d.part.left = until
		}
		d.part.due = until
	}
	for _, recheck := range l.rechecks {
		if recheck.until.Equal(due) {
			recheck.wait(l.origin, until)
		}
	}
}

// isObsolete reports whether an item of the queue no longer applies.
func (l *lingering) isObsolete(d deferral) bool {
	if d.part != nil {
		return !d.part.due.Equal(d.due)
	}
	rest := l.slots[d.slots]
	return rest == nil || !rest.due.Equal(d.due)
}

// nextDue returns when the first deletion or recheck is due.
func (l *lingering) nextDue() (time.Time, bool) {
	at, some := l.nextDeletion()
	if len(l.rechecks) > 0 && (!some || l.rechecks[0].due.Before(at)) {
		at, some = l.rechecks[0].due, true
	}
	return at, some
}

func (l *lingering) nextDeletion() (time.Time, bool) {
	for len(l.queue) > 0 && l.isObsolete(l.queue[0]) {
		l.queue = l.queue[1:]
	}
	if len(l.queue) == 0 {
		l.queue = nil
		return time.Time{}, false
	}
	return l.queue[0].due, true
}

// takeRechecks removes and returns the due rechecks.
func (l *lingering) takeRechecks(now time.Time) []*recheck {
	n := 0
	for n < len(l.rechecks) && !l.rechecks[n].due.After(now) {
		n++
	}
	taken := l.rechecks[:n]
	if l.rechecks = l.rechecks[n:]; len(l.rechecks) == 0 {
		l.rechecks = nil
	}
	return taken
}
