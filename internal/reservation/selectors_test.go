package reservation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/coverage"
)

// Whatever budgets come, change and go, those are found that a look at each of them finds.
func TestSelectorsFindWhatEachSays(t *testing.T) {
	keys, values := []string{"app", "tier", "shard"}, []string{"x", "y", "z", ""}
	operators := []metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Like",
	}
	selector := rapid.Custom(func(t *rapid.T) *metav1.LabelSelector {
		if rapid.IntRange(0, 9).Draw(t, "none") == 0 {
			return nil
		}
		s := &metav1.LabelSelector{MatchLabels: rapid.MapOfN(rapid.SampledFrom(keys), rapid.SampledFrom(values), 0, 2).Draw(t, "labels")}
		for range rapid.IntRange(0, 2).Draw(t, "expressions") {
			e := metav1.LabelSelectorRequirement{Key: rapid.SampledFrom(keys).Draw(t, "key"), Operator: rapid.SampledFrom(operators).Draw(t, "operator")}
			if e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpNotIn {
				e.Values = rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, 3, rapid.ID[string]).Draw(t, "values")
			}
			s.MatchExpressions = append(s.MatchExpressions, e)
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		index, stored := newSelectors(), map[types.NamespacedName]*v1alpha1.TopologyDisruptionBudget{}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			key := types.NamespacedName{Namespace: rapid.SampledFrom([]string{"m", "n"}).Draw(t, "namespace"), Name: fmt.Sprint(rapid.IntRange(0, 5).Draw(t, "budget"))}
			if rapid.Bool().Draw(t, "goes") {
				index.forget(key.Namespace, key.Name)
				delete(stored, key)
			} else {
				budget := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
				budget.Spec.Selector = selector.Draw(t, "selector")
				index.set(budget)
				stored[key] = budget
			}
			pod := rapid.MapOf(rapid.SampledFrom(keys), rapid.SampledFrom(values)).Draw(t, "pod")
			for _, namespace := range []string{"m", "n"} {
				var want []types.NamespacedName
				for key, budget := range stored {
					if key.Namespace == namespace && coverage.Selector(budget).Matches(labels.Set(pod)) {
						want = append(want, key)
					}
				}
				slices.SortFunc(want, func(a, b types.NamespacedName) int { return strings.Compare(a.Name, b.Name) })
				if got := index.matching(namespace, pod); !slices.Equal(got, want) {
					t.Fatalf("a pod with %v in %s: found %v, want %v", pod, namespace, got, want)
				}
				if has := slices.ContainsFunc(slices.Collect(maps.Keys(stored)), func(k types.NamespacedName) bool { return k.Namespace == namespace }); has != index.has(namespace) {
					t.Fatalf("%s has a budget: %t", namespace, index.has(namespace))
				}
			}
		}
	})
}
