package ruleset

import (
	"maps"
	"net/netip"
	"slices"
)

// Want returns the kernel's table after the last Commit, without unused parts. Its order does not depend on history.
func (t *Table) Want() Listing {
	l := Listing{Family: t.config.Family, Exists: true}
	for _, c := range t.chains() {
		l.Chains = append(l.Chains, ListedChain{Name: c.Name, Base: c.Base, Fingerprints: c.Fingerprints()})
	}
	elements := t.elements()
	for id, set := range sets {
		l.Sets = append(l.Sets, ListedSet{Name: set.Name, Fingerprint: set.Fingerprint(), Elements: elements[id]})
	}
	for _, set := range t.affinitySets() {
		l.Sets = append(l.Sets, ListedSet{Name: set.Name, Fingerprint: set.Fingerprint()})
	}
	return l
}

// chains returns all used chains, each after the chains that it leads to.
func (t *Table) chains() []*Chain {
	var chains []*Chain
	for _, p := range t.usedParts() {
		if p.kind != affinityPart {
			chains = append(chains, p.chain(t.config))
		}
	}
	return append(chains, t.config.chains()...)
}

func (t *Table) affinitySets() []*Set {
	var memories []*Set
	for _, p := range t.usedParts() {
		if p.kind == affinityPart {
			memories = append(memories, t.config.affinitySet(p.name))
		}
	}
	return memories
}

// usedParts returns the used parts, in the order of their creation.
func (t *Table) usedParts() []*part {
	all := slices.SortedFunc(maps.Values(t.parts), compareParts)
	idle := make(map[string]int)
	used := make([]*part, 0, len(all))
	for _, p := range slices.Backward(all) {
		if p.refs > idle[p.name] {
			used = append(used, p)
			continue
		}
		if !p.leads {
			continue
		}
		for _, name := range p.leadsTo() {
			idle[name]++
		}
	}
	slices.Reverse(used)
	return used
}

// elements returns the elements of the sets that every table has, in the order of fronts or addresses, and slots.
func (t *Table) elements() [setCount][]Element {
	var all [setCount][]Element
	add := func(id setID, e Element) { all[id] = append(all[id], e) }
	for _, front := range slices.SortedFunc(maps.Keys(t.claims.winners), Front.Compare) {
		e := t.claims.entry(front)
		key := frontKey(front)
		for id := range verdictMaps {
			if v := e.verdicts[id]; v.Kind != 0 {
				add(id, Element{Key: key, Verdict: v})
			}
		}
		for i := range slotMaps {
			for slot, target := range e.slots[i] {
				add(setSlots+i, Element{Key: slotKey(front, uint32(slot)), Data: TargetData(target)})
			}
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(t.clusterIPs), netip.Addr.Compare) {
		add(setClusterIPs, Element{Key: addressKey(address)})
	}
	for _, address := range t.hairpin {
		add(setHairpin, Element{Key: addressKey(address, address)})
	}
	return all
}
