package kernel

import (
	"slices"
	"testing"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func TestStages(t *testing.T) {
	set := func(kind ruleset.ChangeKind, name string) ruleset.Change {
		return ruleset.Change{Kind: kind, Set: &ruleset.Set{Name: name}}
	}
	chain := func(kind ruleset.ChangeKind, name string) ruleset.Change {
		return ruleset.Change{Kind: kind, Chain: &ruleset.Chain{Name: name}}
	}
	base := ruleset.Change{Kind: ruleset.AddChain, Chain: &ruleset.Chain{Name: "base", Base: &ruleset.Base{}}}
	lead := set(ruleset.AddElements, "services")
	for _, test := range []struct {
		name    string
		changes []ruleset.Change
		first   []int
	}{
		{"elements alone", []ruleset.Change{set(ruleset.DeleteElements, "services"), lead}, nil},
		{"a chain that something leads to", []ruleset.Change{chain(ruleset.AddChain, "pick-1"), lead}, []int{0}},
		{"whatever the order", []ruleset.Change{set(ruleset.DeleteElements, "services"), chain(ruleset.AddChain, "pick-1"), lead}, []int{1}},
		{"sets that its rules name", []ruleset.Change{lead, set(ruleset.AddSet, "affinity-1"), chain(ruleset.AddChain, "sticky-1")}, []int{1, 2}},
		{"a chain that nothing leads to", []ruleset.Change{chain(ruleset.AddChain, "pick-1")}, nil},
		{"a set alone", []ruleset.Change{set(ruleset.AddSet, "affinity-1"), lead}, nil},
		{"a chain that packets come to first", []ruleset.Change{base, lead}, nil},
		{"rules that lead to a chain", []ruleset.Change{chain(ruleset.ReplaceRules, "serve"), chain(ruleset.AddChain, "pick-1"), base}, []int{1}},
		{"a new table", []ruleset.Change{{Kind: ruleset.AddTable}, chain(ruleset.AddChain, "pick-1"), lead}, nil},
		{"a chain in place of another", []ruleset.Change{chain(ruleset.DeleteChain, "pick-1"), chain(ruleset.AddChain, "pick-1"), lead}, nil},
		{"a set in place of another", []ruleset.Change{set(ruleset.DeleteSet, "a"), set(ruleset.AddSet, "a"), chain(ruleset.AddChain, "pick-1"), lead}, nil},
	} {
		first, rest := stages(ruleset.Transaction{Changes: test.changes})
		if !slices.Equal(first, test.first) {
			t.Errorf("%s: first are %v, want %v", test.name, first, test.first)
		}
		both := slices.Sorted(slices.Values(append(slices.Clone(first), rest...)))
		if len(both) != len(test.changes) || !slices.IsSorted(first) || !slices.IsSorted(rest) || len(slices.Compact(both)) != len(test.changes) {
			t.Errorf("%s: %v and %v are not all changes, each once and in order", test.name, first, rest)
		}
	}
}
