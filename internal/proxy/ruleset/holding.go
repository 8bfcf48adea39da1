package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
)

// holding is a listing of the kernel, in the terms of a table.
type holding struct {
	replaceTable bool // the table must be replaced. lost is its listing
	lost         *holding
	foreign      []string // chains and sets that this package does not make

	sets      map[string]bool
	chains    map[string]ListedChain
	parts     []*part // in order
	entries   map[Front]*entry
	targets   map[string][]netip.AddrPort // possible targets of remembered clients, by map
	strays    []stray
	addresses []netip.Addr        // cluster IPs
	hairpin   []netip.Addr        // sorted
	junk      [setCount][]Element // elements that this package does not make
}

// stray has the unused slots of a front.
type stray struct {
	of    slotsOf
	slots []uint32 // sorted
}

type filled struct {
	slot   uint32
	target netip.AddrPort
}

func readHolding(family Family, l Listing) *holding {
	h := &holding{
		sets:    make(map[string]bool),
		chains:  make(map[string]ListedChain),
		entries: make(map[Front]*entry),
		targets: make(map[string][]netip.AddrPort),
	}
	h.holdChains(l.Chains)
	fixed := make(map[string]setID)
	for id, set := range sets {
		fixed[set.Name] = setID(id)
	}
	filled := make(map[slotsOf][]filled)
	for _, set := range l.Sets {
		id, ok := fixed[set.Name]
		if !ok {
			p := parsePart(set.Name)
			if p == nil || p.kind != affinityPart || set.Fingerprint != (Config{}).affinitySet(set.Name).Fingerprint() {
				h.foreign = append(h.foreign, "set "+set.Name)
				continue
			}
			p.held = true
			h.parts = append(h.parts, p)
			h.targets[p.name] = append(h.targets[p.name], set.Remembered...)
			continue
		}
		if set.Fingerprint != sets[id].Fingerprint() {
			h.foreign = append(h.foreign, "set "+set.Name)
			continue
		}
		h.sets[set.Name] = true
		for _, e := range set.Elements {
			if !h.holdElement(family, id, e, filled) {
				h.junk[id] = append(h.junk[id], Element{Key: e.Key})
			}
		}
	}
	h.holdSlots(filled)
	for of, slots := range filled {
		if p := parsePart(h.entry(of.front).verdicts[setServices].Chain); p != nil && p.group != "" {
			name := memoryName(of.pool, p.group)
			for _, f := range slots {
				h.targets[name] = append(h.targets[name], f.target)
			}
		}
	}
	slices.SortFunc(h.parts, compareParts)
	slices.SortFunc(h.hairpin, netip.Addr.Compare)
	return h
}

func (h *holding) holdChains(chains []ListedChain) {
	fixed := make(map[string]bool) // whether packets enter them
	for _, c := range (Config{}).chains() {
		fixed[c.Name] = c.Base != nil
	}
	for _, c := range chains {
		entered, always := fixed[c.Name]
		var p *part
		if !always {
			p = parsePart(c.Name)
			entered = p != nil && p.kind == hookPart
		}
		// No verdict can lead to a base chain, and the kernel deletes no chain that a verdict leads to.
		if !always && (p == nil || p.kind == affinityPart) || entered != (c.Base != nil) {
			h.foreign = append(h.foreign, "chain "+c.Name)
			continue
		}
		if p != nil {
			p.held = true
			h.parts = append(h.parts, p)
		}
		h.chains[c.Name] = c
	}
}

// holdElement reads an element. It returns false for a foreign element.
func (h *holding) holdElement(family Family, id setID, e Element, slots map[slotsOf][]filled) bool {
	switch id {
	case setClusterIPs:
		address, rest, ok := family.TakeAddress(e.Key)
		if !ok || rest != "" {
			return false
		}
		h.addresses = append(h.addresses, address)
		return true
	case setHairpin:
		address, _, ok := family.TakeAddress(e.Key)
		if !ok || e.Key != addressKey(address, address) {
			return false
		}
		h.hairpin = append(h.hairpin, address)
		return true
	}
	front, rest, ok := family.TakeFront(e.Key)
	if !ok {
		return false
	}
	if id == setSlots || id == setLocalSlots {
		slot, ok := takeSlot(rest)
		if !ok {
			return false
		}
		of := slotsOf{front, int(id - setSlots)}
		slots[of] = append(slots[of], filled{slot, family.TakeTarget(e.Data)})
		return true
	}
	if rest != "" {
		return false
	}
	found := h.entry(front)
	found.verdicts[id] = e.Verdict
	return true
}

func (h *holding) entry(front Front) *entry {
	found := h.entries[front]
	if found == nil {
		found = &entry{}
		h.entries[front] = found
	}
	return found
}

// holdSlots separates drawn slots from unused ones.
func (h *holding) holdSlots(slots map[slotsOf][]filled) {
	for of, all := range slots {
		slices.SortFunc(all, func(a, b filled) int { return cmp.Compare(a.slot, b.slot) })
		found := h.entry(of.front)
		drawn := found.verdicts[setServices].slotsNeeded(of.pool)
		n := 0
		for n < len(all) && all[n].slot == uint32(n) && uint32(n) < drawn {
			found.slots[of.pool] = append(found.slots[of.pool], all[n].target)
			n++
		}
		if n < len(all) {
			unused := stray{of: of}
			for _, f := range all[n:] {
				unused.slots = append(unused.slots, f.slot)
			}
			h.strays = append(h.strays, unused)
		}
	}
	slices.SortFunc(h.strays, func(a, b stray) int {
		return cmp.Or(a.of.front.Compare(b.of.front), cmp.Compare(a.of.pool, b.of.pool))
	})
}

// rememberedTargets returns the possible targets of the clients in a map.
func (h *holding) rememberedTargets(set string) []netip.AddrPort { return distinct(h.targets[set]) }

// slotsNeeded returns how many slots a verdict of a front needs.
func (v Verdict) slotsNeeded(pool int) uint32 {
	if p := parsePart(v.Chain); p != nil {
		return p.slots(pool)
	}
	return 0
}
