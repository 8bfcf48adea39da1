package coverage

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Advance returns the expressions of a budget with one value in the only expression with NotIn about a domain, and the values before.
// A node must have the value: a misspelt one would leave nothing out.
func Advance(tdb *v1alpha1.TopologyDisruptionBudget, value string, nodes iter.Seq[*corev1.Node]) (expressions []v1alpha1.NodeSelectorRequirement, before []string, err error) {
	if tdb.Spec.NodeSelectorTerm != nil {
		expressions = slices.Clone(tdb.Spec.NodeSelectorTerm.MatchExpressions)
	}
	_, term := BudgetOf(tdb)
	var changed *v1alpha1.NodeSelectorRequirement
	var keys []string
	for i := range expressions {
		if e := &expressions[i]; e.Operator == corev1.NodeSelectorOpNotIn && (len(term.keys) == 0 || slices.Contains(term.keys, e.Key)) {
			changed, keys = e, append(keys, e.Key)
		}
	}
	if len(keys) == 0 {
		return nil, nil, fmt.Errorf("leaves no domain out: spec.nodeSelectorTerm.matchExpressions needs one expression with the operator NotIn about a domain, such as "+
			"{key: %s, operator: NotIn, values: [%s]}; see docs/disruption.md", corev1.LabelTopologyZone, value)
	}
	if len(keys) > 1 {
		return nil, nil, fmt.Errorf("has several expressions with the operator NotIn, about %s, and only one can be changed; change spec.nodeSelectorTerm with kubectl edit",
			strings.Join(keys, ", "))
	}
	known := map[string]bool{}
	for node := range nodes {
		if has, found := nodeLabels(node.Labels).Lookup(changed.Key); found {
			known[has] = true
		}
	}
	if !known[value] {
		return nil, nil, fmt.Errorf("is not changed: no node has the label %s=%s; nodes have the values: %s",
			changed.Key, value, cmp.Or(plaintext.FirstOf(slices.Sorted(maps.Keys(known)), mostNamed), "none"))
	}
	before, changed.Values = changed.Values, []string{value}
	return expressions, before, nil
}
