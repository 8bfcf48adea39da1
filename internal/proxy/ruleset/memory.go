package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// removedTarget is a removed target that remembered clients may still have.
type removedTarget struct {
	target netip.AddrPort
	until  time.Time // until then, packets on their way may add clients with it
}

// mostRemovedTargets bounds the rules of a draw chain. With more removed addresses, the chain ignores remembered clients.
const mostRemovedTargets = 32

// recall returns rules that delete clients of removed endpoints, and lead other remembered clients to their targets. They
// compare addresses only: the kernel compares one register.
func (p *part) recall() [][]Statement {
	addresses := make([]netip.Addr, len(p.removed))
	for i, t := range p.removed {
		addresses[i] = t.target.Addr()
	}
	slices.SortFunc(addresses, netip.Addr.Compare)
	addresses = slices.Compact(addresses)
	if len(addresses) > mostRemovedTargets {
		return nil
	}
	var rules [][]Statement
	for _, address := range addresses {
		rules = append(rules, []Statement{Recalls{Map: p.name, Address: address}, Unremember{Map: p.name}})
	}
	return append(rules, []Statement{HasProtocol{p.protocol()}, Translate{Key: []Value{SourceAddress}, Map: p.name}})
}

// trackRemoved adds the removed targets of a map, and drops targets that exist again. It reports whether they change.
func (t *Table) trackRemoved(p *part, removed, present []netip.AddrPort, until time.Time) bool {
	kept := slices.DeleteFunc(slices.Clone(p.removed), func(one removedTarget) bool {
		return contains(present, one.target) || contains(removed, one.target)
	})
	changed := len(kept) < len(p.removed)
	for _, target := range removed {
		kept = append(kept, removedTarget{target, until})
	}
	t.setRemoved(p, kept)
	return changed || len(removed) > 0
}

func (t *Table) setRemoved(p *part, removed []removedTarget) {
	if p.removed = removed; len(removed) > 0 {
		t.withRemoved[p] = true
	} else {
		delete(t.withRemoved, p)
	}
}

// Forgotten records that clients of a map were deleted, beginning at a time. The next Commit deletes the rules about
// removed targets that no packet can have added since.
func (t *Table) Forgotten(set string, at time.Time) {
	p := t.parts[set]
	if p != nil && slices.ContainsFunc(p.removed, func(one removedTarget) bool { return one.isOver(at) }) {
		t.recalled[p] = at
	}
}

func (t removedTarget) isOver(at time.Time) bool { return !t.until.After(at) }

// dropRemoved drops the removed targets that are over, and returns the changed maps.
func (t *Table) dropRemoved() []*part {
	var all []*part
	for p, at := range t.recalled {
		t.setRemoved(p, slices.DeleteFunc(slices.Clone(p.removed), func(one removedTarget) bool { return one.isOver(at) }))
		all = append(all, p)
	}
	clear(t.recalled)
	return all
}

// reviseRecalls renews the chains that look up clients in some maps.
func (r *revision) reviseRecalls(memories []*part) {
	if len(memories) == 0 {
		return
	}
	for _, p := range r.parts {
		if p.kind == drawPart && p.memory != nil && slices.Contains(memories, p.memory) {
			p.outdated = true
			r.touch(p)
		}
	}
}

// loss has the targets that a map of clients has lost.
type loss struct {
	port, set string // port is empty if it is unknown
	removed   []netip.AddrPort
}

// reviseMemories finds the maps with clients of removed targets.
func (r *revision) reviseMemories() {
	revised := r.dropRemoved()
	known := make(map[string]bool)
	for _, change := range r.revised {
		for _, m := range r.memories(change) {
			p := r.parts[m.set]
			if p == nil || !p.held {
				continue
			}
			known[m.set] = true
			if p.found != nil {
				m.before, p.found = distinct(m.before, p.found), nil
				revised = append(revised, p)
			}
			removed := subtract(m.before, m.after)
			// A pending request must not delete clients of targets that came since.
			pending := len(p.removed) > 0 && !slices.Equal(distinct(m.before), distinct(m.after))
			if r.trackRemoved(p, removed, distinct(m.after), r.due) {
				revised = append(revised, p)
			}
			if len(removed) > 0 || r.held != nil || pending {
				r.forget = append(r.forget, Forget{Set: m.set, Keep: distinct(m.after)})
			}
			r.recordLoss(change.name, p, removed)
		}
	}
	if r.held != nil {
		// The maps of unknown ports may be used again before they are deleted.
		kept := r.keptMemories()
		for _, p := range r.held.parts {
			switch {
			case p.kind != affinityPart || known[p.name]:
			case kept[p.name]:
				p.found = append([]netip.AddrPort{}, r.held.rememberedTargets(p.name)...)
			default:
				removed := r.held.rememberedTargets(p.name)
				r.trackRemoved(p, removed, nil, r.due)
				r.recordLoss("", p, removed)
				r.forget = append(r.forget, Forget{Set: p.name})
			}
		}
	}
	r.reviseRecalls(revised)
	slices.SortFunc(r.forget, func(a, b Forget) int { return cmp.Compare(a.Set, b.Set) })
}

// recordLoss adds a recheck of a map: for all its removed targets if the kernel's rules were read.
func (r *revision) recordLoss(port string, p *part, removed []netip.AddrPort) {
	if r.held != nil {
		removed = nil
		for _, one := range p.removed {
			removed = append(removed, one.target)
		}
	}
	if len(removed) > 0 {
		r.losses = append(r.losses, loss{port, p.name, removed})
	}
}

// forgetAgain repeats the request to delete clients of lost targets, unless all of them exist again.
func (r *revision) forgetAgain(lost loss) {
	set := r.parts[lost.set]
	if set == nil || !set.held || slices.ContainsFunc(r.forget, func(f Forget) bool { return f.Set == lost.set }) {
		return
	}
	var after []netip.AddrPort
	if p := r.portOf(lost); p != nil {
		after = distinct(p.pools[set.pool()])
	}
	if len(subtract(lost.removed, after)) > 0 {
		r.forget = append(r.forget, Forget{Set: lost.set, Keep: after})
	}
}

// portOf returns the port that uses a map, nil if there is none.
func (r *revision) portOf(lost loss) *port {
	uses := func(p *port) bool {
		return p != nil && slices.ContainsFunc(p.fronts, func(end FrontEnd) bool {
			group := p.group(&end)
			return group != "" && r.parts[lost.set].group == group
		})
	}
	if p := r.ports[lost.port]; uses(p) {
		return p
	}
	for _, p := range r.ports {
		if p.affinity > 0 && uses(p) {
			return p
		}
	}
	return nil
}

// memory is a map of clients, with the previous and the current targets of its pool.
type memory struct {
	set           string
	pool          int
	before, after []netip.AddrPort
}

// memories returns the maps of the new and the old port, none if they do not change.
func (r *revision) memories(change portRevision) []*memory {
	var all []*memory
	if change.new != nil && change.new.kept != nil {
		return nil
	}
	for _, p := range []*port{change.new, change.old} {
		if p == nil || p.affinity == 0 {
			continue
		}
		for i := range p.fronts {
			group := p.group(&p.fronts[i])
			for pool := range p.pools {
				m := &memory{set: memoryName(pool, group), pool: pool}
				if slices.ContainsFunc(all, func(known *memory) bool { return known.set == m.set }) {
					continue
				}
				if r.held != nil {
					m.before = r.held.rememberedTargets(m.set)
				} else if change.old != nil {
					m.before = change.old.pools[pool]
				}
				if p == change.new {
					m.after = p.pools[pool]
				}
				all = append(all, m)
			}
		}
	}
	return all
}
