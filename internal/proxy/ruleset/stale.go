package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
)

// findStale finds the connections to a front that must not go on.
func (r *revision) findStale(front Front, old, wanted *entry) {
	if !wanted.served() {
		if old.served() {
			r.stale = append(r.stale, Stale{Front: front})
		}
		return
	}
	if !old.complete() && wanted.gains(old) {
		r.stale = append(r.stale, Stale{Front: front, Target: front.own()})
	}
	for _, target := range without(slices.Concat(old.slots[:]...), slices.Concat(wanted.slots[:]...)) {
		r.stale = append(r.stale, Stale{Front: front, Target: target})
	}
}

// reviseMemories finds the maps that remember clients of targets that are gone.
func (r *revision) reviseMemories() {
	known := make(map[string]bool)
	for _, change := range r.revised {
		for _, m := range r.memories(change) {
			p := r.parts[affinityPrefix+m.group]
			if p == nil || !p.held {
				continue
			}
			known[p.name] = true
			if keep, lost := m.keep(); lost || r.held != nil {
				r.forget = append(r.forget, Forget{Set: p.name, Keep: keep})
			}
		}
	}
	if r.held != nil {
		// Somebody may use them again before they are gone.
		for _, p := range r.held.parts {
			if p.kind == affinityPart && !known[p.name] {
				r.forget = append(r.forget, Forget{Set: p.name})
			}
		}
	}
	slices.SortFunc(r.forget, func(a, b Forget) int { return cmp.Compare(a.Set, b.Set) })
}

// memory is a map from clients to targets of a port, with the pools that they are from:
// those that the kernel has for the fronts of the map, and those that it is to have.
type memory struct {
	group         string
	before, after [slotMaps][]netip.AddrPort
}

// memories are the maps that the new port or the old one has.
func (r *revision) memories(change portRevision) []*memory {
	var all []*memory
	for _, p := range []*port{change.new, change.old} {
		if p == nil || p.affinity == 0 {
			continue
		}
		for i := range p.fronts {
			end := &p.fronts[i]
			group := p.group(end)
			if slices.ContainsFunc(all, func(m *memory) bool { return m.group == group }) {
				continue
			}
			m := &memory{group: group}
			if r.held != nil {
				m.before = r.held.remembered(group)
			} else if change.old != nil {
				m.before = change.old.entry(end).slots
			}
			if p == change.new {
				m.after = p.entry(end).slots
			}
			all = append(all, m)
		}
	}
	return all
}

// keep are the targets that clients may go on using, and whether there were others. A
// client that may use one pool of two must not go on with a target that left it, so what
// left either is forgotten by all.
func (m *memory) keep() (keep []netip.AddrPort, lost bool) {
	var gone []netip.AddrPort
	for pool, before := range m.before {
		gone = append(gone, without(before, m.after[pool])...)
	}
	return without(slices.Concat(m.after[:]...), gone), len(gone) > 0
}
