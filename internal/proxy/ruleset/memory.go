package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
)

// loss is what a map that remembers clients has lost.
type loss struct {
	port, group string
	// gone are the targets that left each pool.
	gone [slotMaps][]netip.AddrPort
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
			if m.lose(); m.lost() || r.held != nil {
				r.forget = append(r.forget, Forget{Set: p.name, Keep: m.keep()})
			}
			if m.lost() && change.new != nil {
				r.losses = append(r.losses, loss{change.new.name, m.group, m.gone})
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

// forgetAgain has a map forget once more what it lost, but for what it has again.
func (r *revision) forgetAgain(lost loss) {
	p, set := r.ports[lost.port], r.parts[affinityPrefix+lost.group]
	if p == nil || set == nil || !set.held {
		return
	}
	if slices.ContainsFunc(r.forget, func(f Forget) bool { return f.Set == set.name }) {
		return
	}
	for i := range p.fronts {
		if end := &p.fronts[i]; p.group(end) == lost.group {
			wanted := p.entry(end)
			m := memory{group: lost.group, before: lost.gone, after: wanted.slots}
			// A map that nobody is remembered in any more is about to go.
			if m.lose(); m.lost() && wanted.verdicts[setRemember].Kind != 0 {
				r.forget = append(r.forget, Forget{Set: set.name, Keep: m.keep()})
			}
			return
		}
	}
}

// memory is a map from clients to targets of a port, with the pools that they are from:
// those that the kernel has for the fronts of the map, and those that it is to have.
type memory struct {
	group         string
	before, after [slotMaps][]netip.AddrPort
	// gone are the targets that are not in a pool any more.
	gone [slotMaps][]netip.AddrPort
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

// lose finds what is gone.
func (m *memory) lose() {
	for pool, before := range m.before {
		m.gone[pool] = without(before, m.after[pool])
	}
}

func (m *memory) lost() bool { return len(m.gone[0])+len(m.gone[1]) > 0 }

// keep are the targets that clients may go on using. A client that may use one pool of
// two must not go on with a target that left it, so what left either is forgotten by all.
func (m *memory) keep() []netip.AddrPort {
	return without(slices.Concat(m.after[:]...), slices.Concat(m.gone[:]...))
}
