package kernel

import (
	"slices"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// stages divides the changes of a transaction, which are meant by their places, into those
// that the kernel must have done before the rest, if any, and the rest.
//
// A packet goes by the rules as they were when it came to its first chain, but it finds
// the elements of a map as they are when it comes to the map. If a transaction adds a
// chain and the element that leads to it, a packet that is on its way may be led to a
// chain that has no rules yet for it, and goes on untranslated. A chain that was there a
// transaction before has rules for all packets.
func stages(t ruleset.Transaction) (first, rest []int) {
	added, deleted := make(map[string]bool), make(map[string]bool)
	chains := false
	for i := range t.Changes {
		switch c := &t.Changes[i]; c.Kind {
		case ruleset.AddTable, ruleset.DeleteTable:
			// No packet is on its way through a table that is new.
			return nil, all(t)
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
		// What takes the place of another cannot come before that goes.
		chains = chains && !added[name]
	}
	if !chains {
		return nil, all(t)
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

// all are all changes of a transaction.
func all(t ruleset.Transaction) []int {
	places := make([]int, len(t.Changes))
	for i := range places {
		places[i] = i
	}
	return places
}

// undo takes back that a transaction has added sets and chains.
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
