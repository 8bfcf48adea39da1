package ruleset

import (
	"time"
)

// lingering is what the kernel holds although nothing leads to it any more, for packets
// that were led there before.
type lingering struct {
	slots map[slotsOf]*surplus
	// queue has all that is due, in order. An item whose time is not that of what it is
	// about has been overtaken.
	queue []deferral
}

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

// deferral is what is to be done later: the deletion of a part, or a look at what is left
// of what went, or else the deletion of slots.
type deferral struct {
	due   time.Time
	part  *part
	look  *look
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

// deferLook has what went looked at again at a time.
func (l *lingering) deferLook(again *look, due time.Time) {
	l.queue = append(l.queue, deferral{due: due, look: again})
}

// looks are those that are still to be taken.
func (l *lingering) looks() []*look {
	var all []*look
	for _, d := range l.queue {
		if d.look != nil {
			all = append(all, d.look)
		}
	}
	return all
}

// extend has what was to linger until a time linger until a later one.
func (l *lingering) extend(due, until time.Time) {
	for i := range l.queue {
		d := &l.queue[i]
		if !d.due.Equal(due) || l.overtaken(*d) {
			continue
		}
		d.due = until
		switch {
		case d.look != nil:
		case d.part == nil:
			l.slots[d.slots].due = until
		default:
			if d.part.left.Equal(due) {
				d.part.left = until
			}
			d.part.due = until
		}
	}
}

// overtaken reports whether there is nothing to be done for an item of the queue.
func (l *lingering) overtaken(d deferral) bool {
	if d.look != nil {
		return false
	}
	if d.part != nil {
		return !d.part.due.Equal(d.due)
	}
	rest := l.slots[d.slots]
	return rest == nil || !rest.due.Equal(d.due)
}

// next is when the first deletion is due.
func (l *lingering) next() (time.Time, bool) {
	for len(l.queue) > 0 && l.overtaken(l.queue[0]) {
		l.queue = l.queue[1:]
	}
	if len(l.queue) == 0 {
		l.queue = nil
		return time.Time{}, false
	}
	return l.queue[0].due, true
}
