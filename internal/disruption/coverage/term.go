package coverage

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Term decides which nodes a budget covers, and the domain of each.
type Term struct {
	requirements labels.Requirements
	keys         []string
}

// operators are the operators of nodeSelectorTerm.
var operators = map[corev1.NodeSelectorOperator]selection.Operator{
	corev1.NodeSelectorOpIn:           selection.In,
	corev1.NodeSelectorOpNotIn:        selection.NotIn,
	corev1.NodeSelectorOpExists:       selection.Exists,
	corev1.NodeSelectorOpDoesNotExist: selection.DoesNotExist,
	corev1.NodeSelectorOpGt:           selection.GreaterThan,
	corev1.NodeSelectorOpLt:           selection.LessThan,
}

// readTerm reads spec.nodeSelectorTerm. An invalid expression restricts nothing.
func readTerm(written *v1alpha1.NodeSelectorTerm, path *field.Path) (*Term, field.ErrorList) {
	t := new(Term)
	if written == nil {
		return t, nil
	}
	var faults field.ErrorList
	if len(written.MatchFields) > 0 {
		faults = append(faults, field.Forbidden(path.Child("matchFields"), "domains follow from node labels; use matchExpressions"))
	}
	for i := range written.MatchExpressions {
		expression, at := &written.MatchExpressions[i], path.Child("matchExpressions").Index(i)
		operator, known := operators[expression.Operator]
		if !known {
			faults = append(faults, field.NotSupported(at.Child("operator"), expression.Operator, []corev1.NodeSelectorOperator{
				corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn, corev1.NodeSelectorOpExists, corev1.NodeSelectorOpDoesNotExist,
				corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt,
			}))
			continue
		}
		requirement, err := labels.NewRequirement(expression.Key, operator, expression.Values, field.WithPath(at))
		if err != nil {
			faults = append(faults, field.Invalid(at, describe(expression), err.Error()))
			continue
		}
		t.requirements = append(t.requirements, *requirement)
		if operator == selection.Exists {
			if slices.Contains(t.keys, expression.Key) {
				faults = append(faults, field.Duplicate(at.Child("key"), expression.Key))
				continue
			}
			t.keys = append(t.keys, expression.Key)
		}
	}
	return t, faults
}

func describe(expression *v1alpha1.NodeSelectorRequirement) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", expression.Key, expression.Operator, strings.Join(expression.Values, ",")))
}

// Keys returns the node labels whose values name the domains, in the order of the spec.
func (t *Term) Keys() []string { return t.keys }

// All reports whether the term covers all nodes as one domain.
func (t *Term) All() bool { return len(t.requirements) == 0 }

// Domain returns the domain of a node by its labels. A node that is not covered has none.
func (t *Term) Domain(node map[string]string) (domain string, covered bool) {
	of := nodeLabels(node)
	for i := range t.requirements {
		if !t.requirements[i].Matches(of) {
			return "", false
		}
	}
	return of.domain(t.keys), true
}

// exclusions returns the key of each expression with NotIn about a domain.
func (t *Term) exclusions() (keys []string) {
	for i := range t.requirements {
		if r := &t.requirements[i]; r.Operator() == selection.NotIn && (len(t.keys) == 0 || slices.Contains(t.keys, r.Key())) {
			keys = append(keys, r.Key())
		}
	}
	return keys
}

// LeftOut lists the domains of nodes that an expression with NotIn about a key leaves out. In a term without keys, NotIn names the keys.
func (t *Term) LeftOut(nodes iter.Seq[*corev1.Node]) []string {
	keys := t.keys
	if len(keys) == 0 {
		keys = slices.Compact(slices.Sorted(slices.Values(t.exclusions())))
	}
	found := map[string]bool{}
	for node := range nodes {
		of := nodeLabels(node.Labels)
		isIn := !slices.ContainsFunc(keys, func(key string) bool { return !of.Has(key) })
		if isIn && slices.ContainsFunc(t.requirements, func(r labels.Requirement) bool {
			return r.Operator() == selection.NotIn && slices.Contains(keys, r.Key()) && !r.Matches(of)
		}) {
			found[of.domain(keys)] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Missing lists the keys that a node lacks.
func (t *Term) Missing(node map[string]string) []string {
	var missing []string
	for _, key := range t.keys {
		if !nodeLabels(node).Has(key) {
			missing = append(missing, key)
		}
	}
	return missing
}

// nodeLabels are the labels of a node. The zone and region keys from before Kubernetes 1.17 fall back to today's keys.
type nodeLabels map[string]string

var today = map[string]string{
	corev1.LabelFailureDomainBetaZone:   corev1.LabelTopologyZone,
	corev1.LabelFailureDomainBetaRegion: corev1.LabelTopologyRegion,
}

// Lookup implements labels.Labels.
func (l nodeLabels) Lookup(key string) (value string, found bool) {
	value, found = l[key]
	if !found && today[key] != "" {
		value, found = l[today[key]]
	}
	return value, found
}

// Has implements labels.Labels.
func (l nodeLabels) Has(key string) bool {
	_, found := l.Lookup(key)
	return found
}

// domain joins the values of keys. No value of a label has a slash.
func (l nodeLabels) domain(keys []string) string {
	if len(keys) == 1 {
		return l.Get(keys[0])
	}
	values := make([]string, len(keys))
	for i, key := range keys {
		values[i] = l.Get(key)
	}
	return strings.Join(values, "/")
}

// Get implements labels.Labels.
func (l nodeLabels) Get(key string) string {
	value, _ := l.Lookup(key)
	return value
}
