package proxy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// bounds keep Services within view.Bounds. A Service for which there is not enough room goes on with
// as much as it had, and waits. A Service that has nothing gets the least that all its ports work
// with, when no other Service fits whole. It does not get all that is left, since smaller Services
// that come later would find nothing.
type bounds struct {
	view.Bounds
	used int
	// granted are the elements that Services may have, and shortages the Services that need more.
	granted   map[types.NamespacedName]int
	shortages map[types.NamespacedName]shortage
	// noted says that shortages have changed since notes was called.
	noted bool
	// freed says that a Service needs less than before.
	freed bool
	// grown is what Services had before that got more in this sync. held are Services that get no more in it.
	grown map[types.NamespacedName]int
	held  map[types.NamespacedName]bool
	// minimumGrantedTo is the Service that gets the least that it needs in this sync, if any.
	minimumGrantedTo types.NamespacedName
}

// shortage is what a Service does without.
type shortage struct {
	// wanted is what all of the Service takes, least what all its ports need, granted what it may have.
	wanted, least, granted int
	// nothing says that this is too little for any of its ports.
	nothing bool
	created time.Time
}

func newBounds(b view.Bounds) *bounds {
	all := &bounds{Bounds: b, granted: map[types.NamespacedName]int{}, shortages: map[types.NamespacedName]shortage{}}
	all.begin()
	return all
}

func (b *bounds) begin() {
	b.grown, b.held, b.minimumGrantedTo = map[types.NamespacedName]int{}, map[types.NamespacedName]bool{}, types.NamespacedName{}
}

// limit is how many elements a Service may have, 0 for any number. ofNode says that other nodes may have room
// for more.
type limit struct {
	most   int
	ofNode bool
}

// fit compiles a Service within what it may have.
func (b *bounds) fit(name types.NamespacedName, created time.Time, compiled func(limit) compile.Result) compile.Result {
	result := compiled(limit{most: b.Service})
	before := b.granted[name]
	granted := b.ForOne(result.Elements)
	if granted > before && (b.held[name] || granted-before > b.room()) {
		granted = before
		if name == b.minimumGrantedTo && result.Least <= b.room() {
			granted = result.Least
		}
		if granted > 0 {
			result = compiled(limit{granted, true})
		} else {
			result = compile.Result{Elements: result.Elements, Least: result.Least, Notes: result.Notes, Refused: result.Refused}
		}
	}
	b.grant(name, granted)
	if granted > before && b.Total > 0 {
		b.grown[name] = before
	}
	if result.Elements > granted {
		b.shortages[name] = shortage{result.Elements, result.Least, granted, len(result.Families) == 0, created}
		b.noted = true
	} else if b.waits(name) {
		delete(b.shortages, name)
		b.noted = true
	}
	return result
}

// perSync is how many elements one sync may add and delete, 0 for any number. They take memory until the kernel
// has them. It is what one Service of the largest size changes, or all elements that there may be, and a quarter
// more, so that small Services need not wait for a large one.
func (b *bounds) perSync() int {
	if b.Total == 0 {
		return 0
	}
	return max(b.Total, 2*b.Service) / 4 * 5
}

func (b *bounds) room() int {
	if b.Total == 0 {
		return int(^uint(0) >> 1)
	}
	return max(0, b.Total-b.used)
}

func (b *bounds) grant(name types.NamespacedName, elements int) {
	before := b.granted[name]
	b.used += elements - before
	b.freed = b.freed || elements < before
	if elements > 0 {
		b.granted[name] = elements
	} else {
		delete(b.granted, name)
	}
}

// waits reports whether a Service does without some of what it takes.
func (b *bounds) waits(name types.NamespacedName) bool {
	_, waits := b.shortages[name]
	return waits
}

type demand struct {
	name    types.NamespacedName
	wanted  int // in all
	more    int
	created time.Time
}

// inOrder sorts demands: the smallest Service first, then the oldest. So a Service of a few elements does not
// wait for one of thousands.
func inOrder(demands []demand) []demand {
	slices.SortFunc(demands, func(x, y demand) int {
		return cmp.Or(cmp.Compare(x.wanted, y.wanted), x.created.Compare(y.created), cluster.CompareNames(x.name, y.name))
	})
	return demands
}

func (b *bounds) demands() []demand {
	var all []demand
	for name, one := range b.shortages {
		if wanted := b.ForOne(one.wanted); wanted > one.granted {
			all = append(all, demand{name, wanted, wanted - one.granted, one.created})
		}
	}
	return all
}

// withdrawn takes back what Services got in this sync, where others come first in order and have no room. They
// are compiled again.
func (b *bounds) withdrawn(created func(types.NamespacedName) time.Time) []types.NamespacedName {
	all := b.demands()
	if len(all) == 0 || len(b.grown) == 0 {
		return nil
	}
	room := b.room()
	for name, before := range b.grown {
		granted := b.granted[name]
		all = append(all, demand{name, granted, granted - before, created(name)})
		room += granted - before
	}
	var names []types.NamespacedName
	for _, one := range inOrder(all) {
		before, grown := b.grown[one.name]
		switch {
		case one.more <= room:
			room -= one.more
		case grown:
			b.grant(one.name, before)
			b.held[one.name] = true
			names = append(names, one.name)
		}
	}
	return names
}

// admitted are waiting Services that have room now, in order.
func (b *bounds) admitted() []types.NamespacedName {
	if !b.freed {
		return nil
	}
	b.freed, b.held = false, map[types.NamespacedName]bool{}
	room := b.room()
	var names []types.NamespacedName
	for _, one := range inOrder(b.demands()) {
		if one.more <= room {
			names = append(names, one.name)
			room -= one.more
		}
	}
	return names
}

// left is the first Service in order that has nothing and for which the room is enough for its minimum.
func (b *bounds) left() []types.NamespacedName {
	var all []demand
	room := b.room()
	for name, one := range b.shortages {
		if one.granted == 0 && one.least <= room {
			all = append(all, demand{name: name, wanted: b.ForOne(one.wanted), created: one.created})
		}
	}
	if len(all) == 0 {
		return nil
	}
	b.minimumGrantedTo = inOrder(all)[0].name
	return []types.NamespacedName{b.minimumGrantedTo}
}

// notes say what is missing of Services, and whether that has changed since the last call.
func (b *bounds) notes(node string) (notes map[types.NamespacedName]string, changed bool) {
	if !b.noted {
		return nil, false
	}
	b.noted = false
	notes = make(map[types.NamespacedName]string, len(b.shortages))
	for name, one := range b.shortages {
		notes[name] = fmt.Sprintf("node %s programs %s", node, b.text(one))
	}
	return notes, true
}

// text says what a Service does without, why, and what to do.
func (b *bounds) text(one shortage) string {
	part := "a part of the Service"
	if one.nothing {
		part = "nothing of the Service"
	}
	if one.granted == b.ForOne(one.wanted) {
		return part + ": " + b.Beyond(one.wanted)
	}
	return fmt.Sprintf("%s: the whole Service needs %d elements and has %d; of the %d elements that --max-elements allows, %d are free; remove Services or endpoints, or raise the flag and the memory of vicinity-proxy",
		part, one.wanted, one.granted, b.Total, b.room())
}
