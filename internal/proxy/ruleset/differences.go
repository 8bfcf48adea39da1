package ruleset

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// Differences describes how the kernel's rules differ from those of the last Commit. The order of slots does not matter,
// so that another table can be compared. Unused chains and slots count as differences unless this table left them.
func (t *Table) Differences(l Listing) []string {
	return t.compare(l, false)
}

// Holds reports whether the kernel has exactly the rules that this table left there, including the order of slots and
// unused chains. If not, call Adopt: the kernel may refuse the next transaction.
func (t *Table) Holds(l Listing) bool {
	return t.listing == nil && len(t.compare(l, true)) == 0
}

// HoldsShape is Holds for a listing without elements: it compares chains and sets only.
func (t *Table) HoldsShape(l Listing) bool {
	c := t.newComparison(l, true)
	c.shape()
	return t.listing == nil && len(c.found) == 0
}

func (t *Table) compare(l Listing, exact bool) []string {
	if !l.Exists {
		return []string{fmt.Sprintf("there is no table %s %s", t.config.Family, TableName)}
	}
	c := t.newComparison(l, exact)
	c.shape()
	c.elements()
	return c.found
}

// comparison compares a Table with the kernel's.
type comparison struct {
	*Table
	held  *holding
	exact bool
	found []string
}

func (t *Table) newComparison(l Listing, exact bool) *comparison {
	c := &comparison{Table: t, held: readHolding(t.config.Family, l), exact: exact}
	if l.Flagged {
		c.differ("the table has flags, such as dormant")
	}
	return c
}

func (c *comparison) differ(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *comparison) shape() {
	for _, foreign := range c.held.foreign {
		c.differ("the %s is not of this table", foreign)
	}
	for _, set := range sets {
		if !c.held.sets[set.Name] {
			c.differ("the set %s is missing", set.Name)
		}
	}
	for _, chain := range c.config.chains() {
		c.chain(chain)
	}
	there := make(map[string]bool, len(c.held.parts))
	for _, p := range c.held.parts {
		there[p.name] = true
		if c.parts[p.name] == nil {
			c.differ("no rule uses %s", p.name)
		}
	}
	// Unused parts may be used again as they are.
	wanted := slices.SortedFunc(maps.Values(c.parts), compareParts)
	if !c.exact {
		wanted = c.usedParts()
	}
	for _, p := range wanted {
		switch {
		case p.refs == 0 && !there[p.name]:
			c.differ("%s was deleted too early", p.name)
		case p.kind != affinityPart && !p.outdated:
			c.chain(p.chain(c.config))
		case !there[p.name]:
			c.differ("the set %s is missing", p.name)
		}
	}
}

func (c *comparison) chain(want *Chain) {
	switch held, there := c.held.chains[want.Name]; {
	case !there:
		c.differ("the chain %s is missing", want.Name)
	case !held.hasBase(want.Base):
		c.differ("the chain %s has another type, hook, priority or policy", want.Name)
	case !held.equals(want):
		c.differ("the chain %s has other rules", want.Name)
	}
}

func (c *comparison) elements() {
	fronts := slices.Collect(maps.Keys(c.held.entries))
	for front := range c.claims.winners {
		if c.held.entries[front] == nil {
			fronts = append(fronts, front)
		}
	}
	slices.SortFunc(fronts, Front.Compare)
	for _, front := range fronts {
		held := c.held.entries[front]
		if held == nil {
			held = nothing
		}
		c.front(front, held, c.claims.entry(front))
	}
	c.compareUnusedSlots()
	for id, junk := range c.held.junk {
		if len(junk) > 0 {
			c.differ("%s has %d elements that are not of this table", sets[id].Name, len(junk))
		}
	}
	c.addresses(setClusterIPs, c.held.addresses, slices.Collect(maps.Keys(c.clusterIPs)))
	c.addresses(setHairpin, c.held.hairpin, c.hairpin)
}

func (c *comparison) front(front Front, held, want *entry) {
	for id := range verdictMaps {
		if held.verdicts[id] != want.verdicts[id] {
			c.differ("%s leads %s to %s instead of %s", sets[id].Name, front, held.verdicts[id], want.verdicts[id])
		}
	}
	for i := range slotMaps {
		have, wanted := held.slots[i], want.slots[i]
		if !c.exact {
			have, wanted = slices.Clone(have), slices.Clone(wanted)
			slices.SortFunc(have, netip.AddrPort.Compare)
			slices.SortFunc(wanted, netip.AddrPort.Compare)
		}
		if !slices.Equal(have, wanted) {
			c.differ("%s of %s are %v instead of %v", sets[setSlots+i].Name, front, have, wanted)
		}
	}
}

// compareUnusedSlots compares the unused slots.
func (c *comparison) compareUnusedSlots() {
	lingering := maps.Clone(c.lingering.slots)
	for _, s := range c.held.strays {
		var known []uint32
		if surplus := lingering[s.of]; surplus != nil {
			known = surplus.slots
		}
		delete(lingering, s.of)
		if c.exact && !slices.Equal(s.slots, known) ||
			slices.ContainsFunc(s.slots, func(slot uint32) bool { return !slices.Contains(known, slot) }) {
			c.differ("%s of %s has the unused slots %v", sets[setSlots+setID(s.of.pool)].Name, s.of.front, s.slots)
		}
	}
	if c.exact {
		for of := range lingering {
			c.differ("slots of %s were deleted too early", of.front)
		}
	}
}

func (c *comparison) addresses(id setID, held, want []netip.Addr) {
	there := make(map[netip.Addr]bool, len(held))
	for _, address := range held {
		there[address] = true
	}
	for _, address := range slices.SortedFunc(slices.Values(want), netip.Addr.Compare) {
		if !there[address] {
			c.differ("%s lacks %s", sets[id].Name, address)
		}
		delete(there, address)
	}
	for _, address := range slices.SortedFunc(maps.Keys(there), netip.Addr.Compare) {
		c.differ("%s has the unexpected address %s", sets[id].Name, address)
	}
}
