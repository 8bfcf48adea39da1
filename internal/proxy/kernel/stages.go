package kernel

import (
	"slices"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// stages divides the changes of a transaction, by their indexes: first must come in an earlier transaction, and may be
// empty.
//
// A packet sees the rules of the moment when it entered its first chain, but the current elements of maps. If one
// transaction adds a chain and the element that leads to it, a packet on its way may be led to a chain that has no
// rules for it yet, and pass untranslated. A chain of an earlier transaction has rules for all packets.
func stages(t ruleset.Transaction) (first, rest []int) {
	added, deleted := make(map[string]bool), make(map[string]bool)
	chains := false
	for i := range t.Changes {
		switch c := &t.Changes[i]; c.Kind {
		case ruleset.AddTable, ruleset.DeleteTable:
			// No packet is passing a new table.
			return nil, allIndexes(t)
		case ruleset.AddSet:
			added[c.Set.Name] = true
		case ruleset.AddChain:
			added[c.Chain.Name] = true
			chains = chains || c.Chain.Base == nil
		case ruleset.DeleteSet:
			deleted[c.Set.Name] = true
		case ruleset.DeleteChain:
			deleted[c.Chain.Name] = true
		}
	}
	for name := range deleted {
		// A replacement cannot be added before the old one is deleted.
		chains = chains && !added[name]
	}
	if !chains {
		return nil, allIndexes(t)
	}
	for i := range t.Changes {
		switch c := &t.Changes[i]; {
		case c.Kind == ruleset.AddSet, c.Kind == ruleset.AddChain && c.Chain.Base == nil:
			first = append(first, i)
		default:
			rest = append(rest, i)
		}
	}
	if len(rest) == 0 {
		return nil, first
	}
	return first, rest
}

func allIndexes(t ruleset.Transaction) []int {
	places := make([]int, len(t.Changes))
	for i := range places {
		places[i] = i
	}
	return places
}

// undo returns the transaction that deletes added sets and chains.
func undo(t ruleset.Transaction, added []int) ruleset.Transaction {
	back := ruleset.Transaction{Family: t.Family}
	for _, i := range slices.Backward(added) {
		c := t.Changes[i]
		if c.Kind == ruleset.AddSet {
			c.Kind = ruleset.DeleteSet
		} else {
			c.Kind = ruleset.DeleteChain
		}
		back.Changes = append(back.Changes, c)
	}
	return back
}
