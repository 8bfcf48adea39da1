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

// bounds keeps Services within view.Bounds. A Service that does not fit keeps its granted elements and waits. A Service
// without any gets the minimum for all its ports when no other Service fits whole. It does not get all free elements:
// smaller Services that come later would find none.
type bounds struct {
	view.Bounds
	used int
	// granted has the elements that Services may use, and shortages the Services that need more.
	granted   map[types.NamespacedName]int
	shortages map[types.NamespacedName]shortage
	// changed means that shortages have changed since the last call of notes.
	changed bool
	// freed means that a Service needs less than before.
	freed bool
	// grown has the Services that got more in this sync, with their previous elements. held are Services that get no more
	// in this sync.
	grown map[types.NamespacedName]int
	held  map[types.NamespacedName]bool
	// minimumGrantedTo is the Service that gets its minimum in this sync, if any.
	minimumGrantedTo types.NamespacedName
}

// shortage describes a Service that needs more elements than it may use.
type shortage struct {
	// wanted is the need of the whole Service, least the minimum for all its ports.
	wanted, least, granted int
	// nothing means that granted is too little for any of its ports.
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

// limit is how many elements a Service may use, 0 for any number. ofNode means that other nodes may have room for more.
type limit struct {
	most   int
	ofNode bool
}

// fit compiles a Service within its limit.
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
		b.changed = true
	} else if b.waits(name) {
		delete(b.shortages, name)
		b.changed = true
	}
	return result
}

// maxPerSync returns how many elements one sync may add and delete, 0 for any number. They take memory until the kernel has
// them. A sync has room for the change of the largest Service or for all elements, and for a quarter more, so that small
// Services do not wait for a large one.
func (b *bounds) maxPerSync() int {
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

// waits reports whether a Service has a shortage.
func (b *bounds) waits(name types.NamespacedName) bool {
	_, waits := b.shortages[name]
	return waits
}

type demand struct {
	name    types.NamespacedName
	wanted  int // in total
	more    int
	created time.Time
}

// inOrder sorts demands: the smallest Service first, then the oldest. So a Service with a few elements does not wait for
// one with thousands.
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

// withdrawGrants takes back elements that Services got in this sync, if Services that come first in order have no room. It
// returns the Services to compile again.
func (b *bounds) withdrawGrants(created func(types.NamespacedName) time.Time) []types.NamespacedName {
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

// fittingServices returns the waiting Services that fit now, in order.
func (b *bounds) fittingServices() []types.NamespacedName {
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

// grantMinimum returns the first Service in order that has no elements and whose minimum fits.
func (b *bounds) grantMinimum() []types.NamespacedName {
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

// notes describes the shortages, and reports whether they have changed since the last call.
func (b *bounds) notes(node string) (notes map[types.NamespacedName]string, changed bool) {
	if !b.changed {
		return nil, false
	}
	b.changed = false
	notes = make(map[types.NamespacedName]string, len(b.shortages))
	for name, one := range b.shortages {
		notes[name] = fmt.Sprintf("node %s programs %s", node, b.text(one))
	}
	return notes, true
}

// text returns the note: what is missing of a Service, why, and what to do.
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
