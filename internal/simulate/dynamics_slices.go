package simulate

import (
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
)

// ledger has the EndpointSlices of a Service, to count how many of them an event writes.
//
// Endpoints of different kinds are in different slices. With groups, the kind is the set of
// consumers; with hints, there is only one kind. Within a kind slices are filled as the
// EndpointSlice controller of Kubernetes does it: new endpoints go first into slices that change
// anyway, then into a slice with room for all the rest, then into new slices.
//
// With hints, a change of a hint also writes the slice. Writes by Kubernetes and by Vicinity for
// the same event count as one; writes without a change do not count.
type ledger struct {
	perSlice int
	slices   []*ledgerSlice
	deleted  int // in the latest layout
}

type ledgerSlice struct {
	kind    allocate.ConsumerSet
	entries []ledgerEntry
	status  sliceStatus
}

type ledgerEntry struct {
	id       string
	endpoint int // index among the endpoints of the latest layout
	// hint has the consumers as the slice names them; only hints need it.
	hint allocate.ConsumerSet
}

// sliceStatus is the effect of the latest layout on a slice.
type sliceStatus int

const (
	unchanged sliceStatus = iota
	updated
	created
)

// touch marks the slice as written.
func (s *ledgerSlice) touch() {
	if s.status == unchanged {
		s.status = updated
	}
}

// oneKind puts all endpoints into one kind.
func oneKind(*allocate.Endpoint) allocate.ConsumerSet { return allocate.ConsumerSet{} }

// layOut updates the slices. New endpoints are placed in the order of endpoints, or as shuffle
// reorders them.
func (l *ledger) layOut(endpoints []allocate.Endpoint, kind func(*allocate.Endpoint) allocate.ConsumerSet, shuffle func(n int, swap func(i, j int))) {
	index := make(map[string]int, len(endpoints))
	for i := range endpoints {
		index[endpoints[i].ID] = i
	}
	placed := make([]bool, len(endpoints))
	l.deleted = 0
	kept := l.slices[:0]
	for _, s := range l.slices {
		before := len(s.entries)
		s.entries = slices.DeleteFunc(s.entries, func(entry ledgerEntry) bool {
			i, there := index[entry.id]
			return !there || kind(&endpoints[i]) != s.kind
		})
		for i := range s.entries {
			s.entries[i].endpoint = index[s.entries[i].id]
			placed[s.entries[i].endpoint] = true
		}
		s.status = unchanged
		if len(s.entries) == 0 {
			l.deleted++
			continue
		}
		if len(s.entries) < before {
			s.touch()
		}
		kept = append(kept, s)
	}
	l.slices = kept

	var kinds []allocate.ConsumerSet // in the order of their first endpoint
	fresh := map[allocate.ConsumerSet][]int{}
	for i := range endpoints {
		if placed[i] {
			continue
		}
		k := kind(&endpoints[i])
		if len(fresh[k]) == 0 {
			kinds = append(kinds, k)
		}
		fresh[k] = append(fresh[k], i)
	}
	for _, k := range kinds {
		if shuffle != nil {
			shuffle(len(fresh[k]), func(i, j int) { fresh[k][i], fresh[k][j] = fresh[k][j], fresh[k][i] })
		}
		l.fill(k, endpoints, fresh[k])
	}
}

// fill puts new endpoints of one kind into slices.
func (l *ledger) fill(kind allocate.ConsumerSet, endpoints []allocate.Endpoint, fresh []int) {
	put := func(s *ledgerSlice) {
		n := min(len(fresh), l.perSlice-len(s.entries))
		for _, i := range fresh[:n] {
			s.entries = append(s.entries, ledgerEntry{id: endpoints[i].ID, endpoint: i})
		}
		fresh = fresh[n:]
	}
	var changing []*ledgerSlice
	for _, s := range l.slices {
		if s.kind == kind && s.status == updated {
			changing = append(changing, s)
		}
	}
	slices.SortStableFunc(changing, func(a, b *ledgerSlice) int { return len(b.entries) - len(a.entries) })
	for _, s := range changing {
		put(s)
	}
	for len(fresh) > 0 {
		s := l.roomFor(kind, len(fresh))
		if s == nil {
			s = &ledgerSlice{kind: kind, status: created}
			l.slices = append(l.slices, s)
		}
		s.touch()
		put(s)
	}
}

// roomFor returns the fullest unchanged slice that has room for so many endpoints, or nil.
func (l *ledger) roomFor(kind allocate.ConsumerSet, endpoints int) *ledgerSlice {
	var fullest *ledgerSlice
	for _, s := range l.slices {
		if s.kind == kind && s.status == unchanged && len(s.entries)+endpoints <= l.perSlice &&
			(fullest == nil || len(s.entries) > len(fullest.entries)) {
			fullest = s
		}
	}
	return fullest
}

// written returns the number of slices written by the latest layout and later calls of touch. A
// slice to delete is reused for one to create.
func (l *ledger) written() int {
	changed, fresh := 0, 0
	for _, s := range l.slices {
		switch s.status {
		case updated:
			changed++
		case created:
			fresh++
		}
	}
	return changed + max(fresh, l.deleted)
}
