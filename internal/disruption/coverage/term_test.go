package coverage

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	zone     = corev1.LabelTopologyZone
	region   = corev1.LabelTopologyRegion
	betaZone = corev1.LabelFailureDomainBetaZone
)

// expressions reads "key Operator value,value", one a line.
func expressions(text string) *v1alpha1.NodeSelectorTerm {
	term := new(v1alpha1.NodeSelectorTerm)
	for line := range strings.SplitSeq(text, ";") {
		words := strings.Fields(line)
		e := v1alpha1.NodeSelectorRequirement{Key: words[0], Operator: corev1.NodeSelectorOperator(words[1])}
		if len(words) > 2 {
			e.Values = strings.Split(words[2], ",")
		}
		term.MatchExpressions = append(term.MatchExpressions, e)
	}
	return term
}

func mustRead(t testing.TB, text string) *Term {
	t.Helper()
	term, faults := readTerm(expressions(text), field.NewPath("term"))
	if len(faults) > 0 {
		t.Fatal(faults)
	}
	return term
}

func TestTermSaysWhichDomainANodeIsIn(t *testing.T) {
	for _, test := range []struct {
		name, term string
		labels     map[string]string
		domain     string
		uncovered  bool
	}{
		{"a zone", zone + " Exists", map[string]string{zone: "a"}, "a", false},
		{"no zone", zone + " Exists", map[string]string{region: "r"}, "", true},
		{"a zone without a name", zone + " Exists", map[string]string{zone: ""}, "", false},
		{"no key divides", zone + " In a,b", map[string]string{zone: "a"}, "", false},
		{"restricted and divided", zone + " Exists; " + zone + " In a,b", map[string]string{zone: "b"}, "b", false},
		{"tuples have the order of keys", region + " Exists; " + zone + " Exists", map[string]string{zone: "a", region: "r"}, "r/a", false},
		{"a part of a tuple is missing", region + " Exists; " + zone + " Exists", map[string]string{zone: "a"}, "", true},
		{"not in without the label", zone + " Exists; pool NotIn old", map[string]string{zone: "a"}, "a", false},
		{"the old key on a new node", betaZone + " Exists", map[string]string{zone: "a"}, "a", false},
		{"the old key on an old node", betaZone + " Exists", map[string]string{betaZone: "a"}, "a", false},
		{"the old key of a node with both", betaZone + " Exists", map[string]string{betaZone: "a", zone: "b"}, "a", false},
		{"the old region", corev1.LabelFailureDomainBetaRegion + " In r", map[string]string{region: "r"}, "", false},
		{"the old key must not be there", betaZone + " DoesNotExist", map[string]string{zone: "a"}, "", true},
		{"today's key does not mean the old one", zone + " Exists", map[string]string{betaZone: "a"}, "", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			domain, covered := mustRead(t, test.term).Domain(test.labels)
			if domain != test.domain || covered == test.uncovered {
				t.Errorf("domain %q, covered %t", domain, covered)
			}
		})
	}
}

func TestTermWithoutExpressionsIsAllNodes(t *testing.T) {
	for _, written := range []*v1alpha1.NodeSelectorTerm{nil, {}} {
		term, faults := readTerm(written, field.NewPath("term"))
		if domain, covered := term.Domain(nil); len(faults) > 0 || !term.All() || !covered || domain != "" {
			t.Errorf("%v: domain %q, covered %t, %v", written, domain, covered, faults)
		}
	}
}

func TestTermLeavesOutDomains(t *testing.T) {
	w := in("a", "b", "c")
	for _, name := range []string{"a-1", "b-1", "c-1"} {
		w.Nodes[name].Labels["pool"] = "web"
	}
	w.node("old", map[string]string{betaZone: "d"})
	w.node("nowhere", map[string]string{"pool": "web"})
	for term, want := range map[string]string{
		zone + " Exists":                                    "",
		zone + " NotIn a; " + zone + " Exists":              "a",
		betaZone + " NotIn a,d; " + betaZone + " Exists":    "a d",
		zone + " In b,c; " + zone + " Exists":               "", // this chooses nodes, and frees no zone
		zone + " NotIn typo; " + zone + " Exists":           "",
		zone + " NotIn a":                                   "a",
		zone + " In b,c":                                    "",
		"pool In web; " + zone + " Exists":                  "", // a zone without such nodes may need another pool, and is no intention
		zone + " NotIn a; " + zone + " Exists; pool Exists": "a/web",
	} {
		if got := strings.Join(mustRead(t, term).LeftOut(maps.Values(w.Nodes)), " "); got != want {
			t.Errorf("%s leaves out %q, want %q", term, got, want)
		}
	}
}

// randomTerm draws valid expressions.
func randomTerm(t *rapid.T, keys []string) *v1alpha1.NodeSelectorTerm {
	term := new(v1alpha1.NodeSelectorTerm)
	values := rapid.SampledFrom([]string{"a", "b", "1", "2", ""})
	for range rapid.IntRange(1, 4).Draw(t, "expressions") {
		e := v1alpha1.NodeSelectorRequirement{
			Key:      rapid.SampledFrom(keys).Draw(t, "key"),
			Operator: rapid.SampledFrom(slices.Sorted(maps.Keys(operators))).Draw(t, "operator"),
		}
		switch e.Operator {
		case corev1.NodeSelectorOpIn, corev1.NodeSelectorOpNotIn:
			e.Values = rapid.SliceOfN(values, 1, 3).Draw(t, "values")
		case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt:
			e.Values = []string{rapid.SampledFrom([]string{"0", "1", "2"}).Draw(t, "number")}
		}
		term.MatchExpressions = append(term.MatchExpressions, e)
	}
	return term
}

// A node is covered if a pod with the same term in its node affinity could run there.
func TestTermMatchesAsKubernetesDoes(t *testing.T) {
	keys := []string{"k", "l", zone}
	rapid.Check(t, func(t *rapid.T) {
		written := randomTerm(t, keys)
		node := rapid.MapOf(rapid.SampledFrom(keys), rapid.SampledFrom([]string{"a", "b", "1", "2", "3", ""})).Draw(t, "labels")
		theirs := corev1.NodeSelectorTerm{}
		for _, e := range written.MatchExpressions {
			theirs.MatchExpressions = append(theirs.MatchExpressions, corev1.NodeSelectorRequirement(e))
		}
		selector, err := nodeaffinity.NewNodeSelector(&corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{theirs}})
		if err != nil {
			t.Fatal(err)
		}
		term, _ := readTerm(written, field.NewPath("term"))
		want := selector.Match(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: node}})
		if _, covered := term.Domain(node); covered != want {
			t.Fatalf("covered %t, want %t", covered, want)
		}
	})
}

// Every stored term can be read, and covers the same nodes each time.
func FuzzTerm(f *testing.F) {
	f.Add(zone, "Exists", "", "a")
	f.Add(betaZone, "In", "a,b", "b")
	f.Add("disks", "Gt", "4", "9223372036854775808")
	f.Add("-", "Near", "\x00", "")
	f.Fuzz(func(t *testing.T, key, operator, values, value string) {
		written := &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOperator(operator), Values: strings.Split(values, ",")},
		}}
		term, faults := readTerm(written, field.NewPath("term"))
		if term.All() != (len(faults) > 0) {
			t.Fatalf("all nodes: %t, faults %v", term.All(), faults)
		}
		node := map[string]string{key: value}
		domain, covered := term.Domain(node)
		if again, same := term.Domain(node); again != domain || same != covered {
			t.Fatalf("%q %t, then %q %t", domain, covered, again, same)
		}
		if covered && len(term.Keys()) == 1 && domain != value {
			t.Fatalf("domain %q of a node with %q", domain, value)
		}
	})
}
