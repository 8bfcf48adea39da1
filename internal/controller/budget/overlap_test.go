package budget

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"pgregory.net/rapid"
)

func is(key string, operator metav1.LabelSelectorOperator, values ...string) metav1.LabelSelectorRequirement {
	return metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: values}
}

func selecting(requirements ...metav1.LabelSelectorRequirement) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: requirements}
}

const (
	in, notIn, exists, lacks = metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist
)

func TestSelectorsThatMayOverlap(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b *metav1.LabelSelector
		want bool
	}{
		{"other values", selecting(is("app", in, "web")), selecting(is("app", in, "db")), false},
		{"labels and expressions", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, selecting(is("app", in, "db", "cache")), false},
		{"a value in common", selecting(is("app", in, "web", "db")), selecting(is("app", in, "db")), true},
		{"no pods", nil, selecting(), false},
		{"excluded", selecting(is("app", in, "web", "db")), selecting(is("app", notIn, "db", "web", "x")), false},
		{"one that cannot be read", selecting(is("app", "Like", "web")), selecting(is("app", in, "db")), true},
	} {
		if got := mayOverlap(test.a, test.b); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
		if got := mayOverlap(test.b, test.a); got != test.want {
			t.Errorf("%s, the other way round: %t, want %t", test.name, got, test.want)
		}
	}
}

// Two selectors that are said not to overlap match no pod in common.
func TestNoPodHasTwoBudgets(t *testing.T) {
	keys, values := []string{"a", "b"}, []string{"x", "y", "z"}
	selector := rapid.Custom(func(t *rapid.T) *metav1.LabelSelector {
		s := &metav1.LabelSelector{}
		for range rapid.IntRange(0, 3).Draw(t, "requirements") {
			r := is(rapid.SampledFrom(keys).Draw(t, "key"), rapid.SampledFrom([]metav1.LabelSelectorOperator{in, notIn, exists, lacks}).Draw(t, "operator"))
			if r.Operator == in || r.Operator == notIn {
				r.Values = rapid.SliceOfNDistinct(rapid.SampledFrom(values), 1, 3, rapid.ID).Draw(t, "values")
			}
			s.MatchExpressions = append(s.MatchExpressions, r)
		}
		return s
	})
	rapid.Check(t, func(t *rapid.T) {
		a, b := selector.Draw(t, "a"), selector.Draw(t, "b")
		if mayOverlap(a, b) {
			return
		}
		matches := func(s *metav1.LabelSelector, pod labels.Set) bool {
			read, err := metav1.LabelSelectorAsSelector(s)
			if err != nil {
				t.Fatal(err)
			}
			return read.Matches(pod)
		}
		for _, x := range append(values, "") {
			for _, y := range append(values, "") {
				pod := labels.Set{"a": x, "b": y}
				for key, value := range pod {
					if value == "" {
						delete(pod, key)
					}
				}
				if matches(a, pod) && matches(b, pod) {
					t.Fatalf("both match %v", pod)
				}
			}
		}
	})
}
