package ruleset

import (
	"maps"
	"net/netip"
	"slices"
	"time"
)

// revision is the state of one Commit.
type revision struct {
	*Table
	now  time.Time
	held *holding // the kernel's rules, nil if they are those of the last Commit

	revised   []portRevision
	fronts    []frontRevision
	seen      map[Front]int       // the index in fronts
	addresses map[netip.Addr]bool // whether the kernel has an address as one of Services
	touched   [partKinds][]*part

	created, outdated []*part
	flushed, deleted  []Change // chains are emptied, then deleted
	removals, adds    [setCount][]Element

	ended        map[*port][]netip.AddrPort // endpoints whose connections must end
	drained      map[*port][]netip.AddrPort // endpoints whose connections must end although they serve
	unseen       []Stale                    // requested by an earlier Commit that the kernel may have refused
	stale        []Stale
	untranslated []Stale
	forget       []Forget
	losses       []loss
}

type portRevision struct {
	name     string
	old, new *port // nil if there is none
}

// frontRevision is a front with its entry in the kernel.
type frontRevision struct {
	front Front
	old   *entry
	owner string // the name of the port that had the front, if any
}

func newRevision(t *Table, now time.Time) *revision {
	return &revision{Table: t, now: now, seen: make(map[Front]int), addresses: make(map[netip.Addr]bool), ended: make(map[*port][]netip.AddrPort), drained: make(map[*port][]netip.AddrPort)}
}

// commit updates the table and returns the changes.
func (r *revision) commit() Commit {
	before := r.config
	if r.stagedConfig != nil {
		r.config = *r.stagedConfig
	}
	r.due = r.now.Add(Linger)
	if r.listing != nil {
		r.adopt()
	}
	r.revisePorts()
	for _, f := range r.fronts {
		r.keepFront(f)
		wanted := r.claims.entry(f.front)
		r.reviseFront(f.front, f.old, wanted)
		r.findStale(f, wanted)
	}
	r.reviseAddresses()
	r.reviseHairpin()
	r.stale = append(r.stale, r.stillStale(r.unseen)...)
	r.reviseMemories()
	if len(r.stale)+len(r.losses) > 0 {
		r.lingering.deferRecheck(&recheck{stale: r.stale, losses: r.losses}, r.due)
	}
	r.settle()
	r.expire()
	transaction := Transaction{Family: r.config.Family, Changes: r.changes(before)}
	r.listing, r.stagedConfig, r.stagedHairpin = nil, nil, nil
	// A cleared map would keep its size and be slow to iterate.
	r.staged = make(map[string]*port)
	return Commit{Transaction: transaction, Stale: slices.Concat(r.untranslated, r.stale), Forget: r.forget}
}

// adopt continues from the kernel's rules, and stages all ports again.
func (r *revision) adopt() {
	r.held = readHolding(r.config.Family, *r.listing)
	if len(r.held.foreign) > 0 || r.listing.Flagged || r.listing.Unread || !r.listing.Exists {
		r.held = &holding{replaceTable: true, lost: r.held}
	}
	for name, p := range r.ports {
		if _, ok := r.staged[name]; !ok {
			again := *p
			for pool, targets := range p.pools {
				again.pools[pool] = p.shapes[pool].sorted(targets)
			}
			r.staged[name] = &again
		}
	}
	clear(r.clusterIPs)
	for _, address := range r.held.addresses {
		r.addresses[address] = true
	}
	r.removals = r.held.junk
	// If the kernel refused the transaction, its stale connections were not deleted.
	for _, l := range r.lingering.rechecks {
		r.unseen = append(r.unseen, l.stale...)
	}
	r.lingering = newLingering()
	clear(r.recalled)
	for _, s := range r.held.strays {
		r.lingering.deferSlots(s.of, s.slots, r.due)
	}
	withRemoved := make(map[string][]removedTarget)
	for p := range r.withRemoved {
		for _, one := range p.removed {
			withRemoved[p.name] = append(withRemoved[p.name], removedTarget{one.target, r.due})
		}
	}
	clear(r.parts)
	clear(r.withRemoved)
	for _, p := range r.held.parts {
		r.parts[p.name] = p
		r.setRemoved(p, withRemoved[p.name])
		r.touch(p)
	}
}

// revisePorts replaces ports by the staged ones, and finds the fronts that may change.
func (r *revision) revisePorts() {
	names := r.Staged()
	for _, name := range names {
		for _, p := range []*port{r.ports[name], r.staged[name]} {
			if p != nil {
				for i := range p.fronts {
					r.find(p.fronts[i].Front)
				}
			}
		}
	}
	if r.held != nil {
		for _, front := range slices.SortedFunc(maps.Keys(r.held.entries), Front.Compare) {
			r.find(front)
		}
	}
	for _, name := range names {
		change := portRevision{name: name, old: r.ports[name], new: r.staged[name]}
		if change.old != nil {
			r.claims.remove(change.old)
			delete(r.ports, name)
		}
		if change.new != nil {
			if change.new.keeps {
				r.keep(change.new)
			}
			for pool, targets := range change.new.pools {
				change.new.pools[pool] = change.new.shapes[pool].arrange(r.before(change, pool), targets)
			}
			r.findEnded(change)
			r.findDrained(change)
			r.claims.add(change.new)
			r.ports[name] = change.new
		}
		r.revised = append(r.revised, change)
	}
}

func (r *revision) find(front Front) {
	if _, ok := r.seen[front]; ok {
		return
	}
	old := nothing
	if r.held == nil {
		old = r.claims.entry(front)
	} else if e := r.held.entries[front]; e != nil {
		old = e
	}
	r.seen[front] = len(r.fronts)
	owner := ""
	if winner, taken := r.claims.winners[front]; taken {
		owner = winner.port.name
	}
	r.fronts = append(r.fronts, frontRevision{front, old, owner})
}

// before returns the previous slots of a port: its own, or those of its fronts in the kernel. Those are equal unless
// another program changed them.
func (r *revision) before(change portRevision, pool int) []netip.AddrPort {
	if r.held == nil && change.old != nil && len(change.old.pools[pool]) > 0 {
		return change.old.pools[pool]
	}
	for i := range change.new.fronts {
		if held := r.fronts[r.seen[change.new.fronts[i].Front]].old.slots[pool]; len(held) > 0 {
			return held
		}
	}
	return nil
}

// changes assembles the transaction: parts that lead to others are added after them and deleted before them.
func (r *revision) changes(before Config) []Change {
	var changes []Change
	replaceTable := r.held != nil && r.held.replaceTable
	if replaceTable {
		changes = append(changes, Change{Kind: DeleteTable}, Change{Kind: AddTable})
	}
	for _, set := range sets {
		if replaceTable || r.held != nil && !r.held.sets[set.Name] {
			changes = append(changes, Change{Kind: AddSet, Set: set})
		}
	}
	for _, p := range r.created {
		if p.kind == affinityPart {
			changes = append(changes, Change{Kind: AddSet, Set: r.config.affinitySet(p.name)})
		} else {
			changes = append(changes, Change{Kind: AddChain, Chain: p.chain(r.config)})
		}
	}
	chains, replaced := r.fixedChains(before)
	changes = append(changes, chains...)
	for id, set := range sets {
		if elements := r.removals[id]; len(elements) > 0 {
			changes = append(changes, Change{Kind: DeleteElements, Set: set, Elements: elements})
		}
		if elements := r.adds[id]; len(elements) > 0 {
			changes = append(changes, Change{Kind: AddElements, Set: set, Elements: elements})
		}
	}
	changes = append(changes, replaced...)
	for _, p := range r.outdatedParts(before) {
		c := p.chain(r.config)
		if c.Base != nil {
			// The kernel cannot change a hook or priority.
			changes = append(changes, Change{Kind: DeleteChain, Chain: c}, Change{Kind: AddChain, Chain: c})
		} else {
			changes = append(changes, Change{Kind: ReplaceRules, Chain: c})
		}
	}
	return slices.Concat(changes, r.flushed, r.deleted)
}

// fixedChains returns the changes of the chains that every table has: added chains, and replaced rules.
func (r *revision) fixedChains(before Config) (made, replaced []Change) {
	if r.held == nil && r.stagedConfig == nil {
		return nil, nil
	}
	old := before.chains()
	for i, c := range r.config.chains() {
		if r.held == nil {
			if !slices.Equal(c.Fingerprints(), old[i].Fingerprints()) {
				replaced = append(replaced, Change{Kind: ReplaceRules, Chain: c})
			}
			continue
		}
		held, there := r.held.chains[c.Name]
		switch {
		case !there:
			made = append(made, Change{Kind: AddChain, Chain: c})
		case held.equals(c):
		case c.Base != nil:
			// The kernel cannot change a hook or priority.
			made = append(made, Change{Kind: DeleteChain, Chain: c}, Change{Kind: AddChain, Chain: c})
		default:
			replaced = append(replaced, Change{Kind: ReplaceRules, Chain: c})
		}
	}
	return made, replaced
}
