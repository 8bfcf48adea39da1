package ruleset

import (
	"time"
)

// lingering is what the kernel holds although nothing leads to it any more, for packets
// that were led there before.
type lingering struct {
	slots map[slotsOf]*surplus
	// queue has all that is to be deleted, in order. An item whose time is not that of what
	// it is about has been overtaken.
	queue []deferral
	// looks are those to be taken, in order, at times that are whole numbers of lookEvery
	// after origin.
	looks  []*look
	origin time.Time
}

// lookEvery is how often what went is looked at again at most, with all that went meanwhile:
// while changes come one by one, each of them would have the table looked through twice.
const lookEvery = time.Second

// slotsOf are the slots of a front in one of the maps from setSlots.
type slotsOf struct {
	front Front
	pool  int
}

// surplus are slots that no number is drawn for any more.
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

// deferSlots adds slots below those that linger already, and lets all of them linger
// until a time.
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

// extend has what was to linger until a time linger until a later one.
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
