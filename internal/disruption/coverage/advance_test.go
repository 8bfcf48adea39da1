package coverage

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestAdvance(t *testing.T) {
	const none = "leaves no domain out"
	w := in("a", "b", "c")
	for _, test := range []struct{ term, to, before, after, err string }{
		{term: zone + " NotIn a; " + zone + " Exists", to: "b", before: "a", after: zone + " NotIn b; " + zone + " Exists"},
		{term: betaZone + " Exists; " + betaZone + " NotIn a,b", to: "c", before: "a,b", after: betaZone + " Exists; " + betaZone + " NotIn c"},
		{term: zone + " NotIn a", to: "a", before: "a", after: zone + " NotIn a"},
		{term: zone + " Exists; pool NotIn x; " + zone + " NotIn a", to: "b", before: "a", after: zone + " Exists; pool NotIn x; " + zone + " NotIn b"},
		{term: zone + " NotIn a; " + zone + " Exists", to: "d", err: "no node has the label " + zone + "=d; nodes have the values: a, b, c"},
		{term: "rack NotIn r; rack Exists", to: "q", err: "no node has the label rack=q; nodes have the values: none"},
		{term: zone + " Exists", to: "b", err: none},
		{term: zone + " In b,c; " + zone + " Exists", to: "b", err: none},
		{term: zone + " Exists; pool NotIn x", to: "b", err: none},
		{term: zone + " Exists; " + zone + " NotIn a; " + zone + " NotIn b", to: "c", err: "several expressions with the operator NotIn, about " + zone + ", " + zone},
	} {
		b := budget(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.NodeSelectorTerm = expressions(test.term) })
		got, before, err := Advance(b, test.to, maps.Values(w.Nodes))
		if test.err != "" {
			if err == nil || !strings.Contains(err.Error(), test.err) {
				t.Errorf("%s: got %v, want %q", test.term, err, test.err)
			}
			continue
		}
		var after []string
		for i := range got {
			after = append(after, describe(&got[i]))
		}
		if err != nil || strings.Join(before, ",") != test.before || strings.Join(after, "; ") != test.after {
			t.Errorf("%s: got %v in place of %v, %v", test.term, after, before, err)
		}
		if !slices.EqualFunc(b.Spec.NodeSelectorTerm.MatchExpressions, expressions(test.term).MatchExpressions, sameExpression) {
			t.Errorf("%s: the budget is changed", test.term)
		}
	}
	if _, _, err := Advance(budget(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.NodeSelectorTerm = nil }), "b", maps.Values(w.Nodes)); err == nil || !strings.Contains(err.Error(), none) {
		t.Errorf("without a term: %v", err)
	}
}

func sameExpression(a, b v1alpha1.NodeSelectorRequirement) bool { return describe(&a) == describe(&b) }
