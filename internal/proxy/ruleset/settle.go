package ruleset

import (
	"slices"
	"time"
)

func (r *revision) usePart(name string) *part {
	p := r.parts[name]
	if p == nil {
		p = parsePart(name)
		r.parts[name] = p
	}
	p.refs++
	r.touch(p)
	return p
}

func (r *revision) touch(p *part) {
	if !p.touched {
		p.touched = true
		r.touched[p.kind] = append(r.touched[p.kind], p)
	}
}

// settle creates parts that are used, and defers the deletion of unused parts. Parts that lead to others come first.
func (r *revision) settle() {
	for kind := partKinds - 1; kind >= 0; kind-- {
		for _, p := range r.touched[kind] {
			p.touched = false
			if !p.leads && (p.refs > 0 || p.held && r.holdsAll(p.leadsTo())) {
				p.leads = true
				for _, name := range p.leadsTo() {
					if to := r.usePart(name); to.kind == affinityPart {
						p.memory = to
					}
				}
			}
			switch {
			case p.refs > 0 && !p.held:
				p.held, p.outdated = true, false
				r.created = append(r.created, p)
			case p.refs > 0:
				p.due = time.Time{}
				if p.outdated && !p.unknown() {
					p.outdated, p.foreign = false, false
					r.outdated = append(r.outdated, p)
				}
			case !p.held:
				delete(r.parts, p.name)
			case p.due.IsZero():
				p.left = r.due
				r.lingering.deferPart(p, r.due)
			}
		}
	}
	slices.SortFunc(r.created, compareParts)
}

// holdsAll reports whether the kernel has all the named parts. A part without them has foreign rules.
func (r *revision) holdsAll(names []string) bool {
	return !slices.ContainsFunc(names, func(name string) bool { return r.parts[name] == nil || !r.parts[name].held })
}

// expire deletes due parts and slots, and the parts that only these use.
func (r *revision) expire() {
	r.repeatRequests(r.lingering.takeRechecks(r.now))
	var expired [partKinds][]*part
	for {
		due, ok := r.lingering.nextDeletion()
		if !ok || due.After(r.now) {
			break
		}
		item := r.lingering.queue[0]
		r.lingering.queue = r.lingering.queue[1:]
		if item.part != nil {
			expired[item.part.kind] = append(expired[item.part.kind], item.part)
			continue
		}
		id := setSlots + setID(item.slots.pool)
		for _, slot := range r.lingering.slots[item.slots].slots {
			r.removals[id] = append(r.removals[id], Element{Key: slotKey(item.slots.front, slot)})
		}
		delete(r.lingering.slots, item.slots)
	}
	for kind := partKinds - 1; kind >= 0; kind-- {
		slices.SortFunc(expired[kind], compareParts)
		for _, p := range expired[kind] {
			delete(r.parts, p.name)
			delete(r.withRemoved, p)
			delete(r.recalled, p)
			if p.foreign {
				// Its foreign rules may lead to parts that are deleted before it.
				r.flushed = append(r.flushed, Change{Kind: ReplaceRules, Chain: &Chain{Name: p.name}})
			}
			if p.kind == affinityPart {
				r.deleted = append(r.deleted, Change{Kind: DeleteSet, Set: r.config.affinitySet(p.name)})
			} else {
				r.deleted = append(r.deleted, Change{Kind: DeleteChain, Chain: &Chain{Name: p.name}})
			}
			if !p.leads {
				continue
			}
			for _, name := range p.leadsTo() {
				other := r.parts[name]
				other.refs--
				switch {
				case other.refs > 0:
				case other.left.After(r.now):
					r.lingering.deferPart(other, other.left)
				default:
					expired[other.kind] = append(expired[other.kind], other)
				}
			}
		}
	}
}

// outdatedParts returns the parts whose kernel rules differ, in order.
func (r *revision) outdatedParts(before Config) []*part {
	outdated := r.outdated
	switch {
	case r.held != nil:
		outdated = nil
		for _, p := range r.held.parts {
			switch {
			case p.kind == affinityPart || r.held.chains[p.name].equals(p.chain(r.config)):
			case p.refs == 0 && p.kind != hookPart, p.unknown():
				// The part is about to be deleted, or keeps its rules because the right ones are not fully known.
				p.outdated, p.foreign = true, true
			default:
				outdated = append(outdated, p)
			}
		}
	case r.stagedConfig != nil:
		for _, p := range r.parts {
			if p.kind != affinityPart && !p.foreign && !slices.Contains(r.created, p) && !slices.Contains(outdated, p) &&
				!slices.Equal(p.chain(before).Fingerprints(), p.chain(r.config).Fingerprints()) {
				outdated = append(outdated, p)
			}
		}
	}
	slices.SortFunc(outdated, compareParts)
	return outdated
}
