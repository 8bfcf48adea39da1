package ruleset

import (
	"time"
)

// lingering is what is out of use, and stays in the kernel for packets on their way.
type lingering struct {
	slots map[slotsOf]*surplus
	// queue has the deletions, in order. An item is overtaken if its time is not that of its part
	// or slots.
	queue  []deferral
	looks  []*look // in order, at whole multiples of lookEvery after origin
	origin time.Time
}

// lookEvery gathers looks, so that a stream of changes does not search the table for each.
const lookEvery = time.Second

// slotsOf are the slots of a front in the map of a pool.
type slotsOf struct {
	front Front
	pool  int
}

// surplus are slots that are not drawn any more.
type surplus struct {
	slots []uint32 // sorted
	due   time.Time
}

// deferral is what is to be deleted later: a part, or else slots.
type deferral struct {
	due   time.Time
	part  *part
	slots slotsOf
}

func newLingering() lingering {
	return lingering{slots: make(map[slotsOf]*surplus)}
}

// deferSlots adds slots, which are below those that linger already.
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

// takeSlot reports whether a slot lingers, and ends that. Slots are taken from the lowest.
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

// deferPart lets a part linger until a time.
func (l *lingering) deferPart(p *part, due time.Time) {
	p.due = due
	l.queue = append(l.queue, deferral{due: due, part: p})
}

// deferLook has what went looked at again when it has lingered until a time.
func (l *lingering) deferLook(again *look, until time.Time) {
	if l.origin.IsZero() {
		l.origin = until
	}
	again.wait(l.origin, until)
	l.looks = append(l.looks, again)
}

// wait puts a look off until the first time for looks that is not before another.
func (l *look) wait(origin, until time.Time) {
	times := (until.Sub(origin) + lookEvery - 1) / lookEvery
	l.until, l.due = until, origin.Add(times*lookEvery)
}

// extend moves a time to which something lingers.
func (l *lingering) extend(due, until time.Time) {
	for i := range l.queue {
		d := &l.queue[i]
		if !d.due.Equal(due) || l.overtaken(*d) {
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
	for _, look := range l.looks {
		if look.until.Equal(due) {
			look.wait(l.origin, until)
		}
	}
}

// overtaken reports whether there is nothing to be done for an item of the queue.
func (l *lingering) overtaken(d deferral) bool {
	if d.part != nil {
		return !d.part.due.Equal(d.due)
	}
	rest := l.slots[d.slots]
	return rest == nil || !rest.due.Equal(d.due)
}

// next is when the first deletion or look is due.
func (l *lingering) next() (time.Time, bool) {
	at, some := l.nextDeletion()
	if len(l.looks) > 0 && (!some || l.looks[0].due.Before(at)) {
		at, some = l.looks[0].due, true
	}
	return at, some
}

func (l *lingering) nextDeletion() (time.Time, bool) {
	for len(l.queue) > 0 && l.overtaken(l.queue[0]) {
		l.queue = l.queue[1:]
	}
	if len(l.queue) == 0 {
		l.queue = nil
		return time.Time{}, false
	}
	return l.queue[0].due, true
}

// takeLooks takes the looks that are due.
func (l *lingering) takeLooks(now time.Time) []*look {
	n := 0
	for n < len(l.looks) && !l.looks[n].due.After(now) {
		n++
	}
	taken := l.looks[:n]
	if l.looks = l.looks[n:]; len(l.looks) == 0 {
		l.looks = nil
	}
	return taken
}
