package budget

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/util/sets"
)

// mayOverlap reports whether a pod could match two selectors of PodDisruptionBudgets. It is false only if two of their
// requirements exclude each other: the labels of future pods are not known.
func mayOverlap(a, b *metav1.LabelSelector) bool {
	selectorA, errA := metav1.LabelSelectorAsSelector(a)
	selectorB, errB := metav1.LabelSelectorAsSelector(b)
	if errA != nil || errB != nil {
		return true
	}
	requirementsA, selectableA := selectorA.Requirements()
	requirementsB, selectableB := selectorB.Requirements()
	if !selectableA || !selectableB {
		return false // it selects nothing
	}
	for _, x := range requirementsA {
		if slices.ContainsFunc(requirementsB, func(y labels.Requirement) bool { return excludes(&x, &y) || excludes(&y, &x) }) {
			return false
		}
	}
	return true
}

// excludes reports whether no labels can meet both requirements, as far as the operator of the first one tells.
func excludes(a, b *labels.Requirement) bool {
	if a.Key() != b.Key() {
		return false
	}
	switch a.Operator() {
	case selection.DoesNotExist:
		return slices.Contains([]selection.Operator{selection.Exists, selection.In, selection.Equals, selection.DoubleEquals}, b.Operator())
	case selection.In, selection.Equals, selection.DoubleEquals:
		allowed := sets.New(a.ValuesUnsorted()...)
		switch b.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			return !allowed.HasAny(b.ValuesUnsorted()...)
		case selection.NotIn, selection.NotEquals:
			return sets.New(b.ValuesUnsorted()...).IsSuperset(allowed)
		}
	}
	return false
}
