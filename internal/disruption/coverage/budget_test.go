package coverage

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

func amount(text string) *intstr.IntOrString {
	value := intstr.Parse(text)
	return &value
}

// budget has a selector for app=web and one pod down in each zone.
func budget(change ...func(*v1alpha1.TopologyDisruptionBudgetSpec)) *v1alpha1.TopologyDisruptionBudget {
	tdb := &v1alpha1.TopologyDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Generation: 7},
		Spec: v1alpha1.TopologyDisruptionBudgetSpec{
			Selector:         &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			NodeSelectorTerm: expressions(zone + " Exists"),
			MaxUnavailable:   amount("1"),
		},
	}
	for _, c := range change {
		c(&tdb.Spec)
	}
	return tdb
}

func TestBudgetOf(t *testing.T) {
	domains, policy := int32(2), policyv1.AlwaysAllow
	tdb := budget(func(s *v1alpha1.TopologyDisruptionBudgetSpec) {
		s.MinAvailable, s.MaxUnavailable = amount("80%"), nil
		s.MaxUnavailableTotal, s.MaxUnavailableDomains = amount("3"), &domains
		s.SettleTime, s.UnhealthyPodEvictionPolicy = &metav1.Duration{Duration: time.Minute}, &policy
	})
	tdb.Annotations = map[string]string{v1alpha1.AnnotationBreakGlass: "2026-01-02T15:04:05Z a flood"}
	got, term := BudgetOf(tdb)
	if got.Name != "shop/web" || got.Invalid != "" || got.MaxUnavailable != nil || *got.MinAvailable != (disruption.Amount{Value: 80, Percent: true}) ||
		*got.MaxTotal != (disruption.Amount{Value: 3}) || *got.MaxDomains != 2 || got.Settle != time.Minute || !got.AlwaysAllowUnhealthy {
		t.Errorf("%+v", got)
	}
	if got.BreakGlass.Reason != "a flood" || len(got.Keys) != 1 || got.Keys[0] != zone || len(term.Keys()) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestInvalidBudgets(t *testing.T) {
	negative, never := int32(-1), policyv1.UnhealthyPodEvictionPolicyType("Never")
	withFields := &v1alpha1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n"}}}}
	for _, test := range []struct {
		name   string
		change func(*spec)
		want   string
	}{
		{"neither", func(s *spec) { s.MaxUnavailable = nil }, "spec.maxUnavailable: Required value: either minAvailable or maxUnavailable must be given"},
		{"both", func(s *spec) { s.MinAvailable = amount("1") }, "spec.maxUnavailable: Forbidden: minAvailable and maxUnavailable cannot be given together"},
		{"negative", func(s *spec) { s.MaxUnavailable = amount("-1") }, `spec.maxUnavailable: Invalid value: "-1": must be 0 or more`},
		{"over 100 %", func(s *spec) { s.MaxUnavailable = amount("101%") }, `spec.maxUnavailable: Invalid value: "101%": must be a number`},
		{"far over 100 %", func(s *spec) { s.MaxUnavailable = amount("99999999999999999999%") }, "spec.maxUnavailable: Invalid value"},
		{"a fraction", func(s *spec) { s.MaxUnavailableTotal = amount("1.5%") }, "spec.maxUnavailableTotal: Invalid value"},
		{"a number as text", func(s *spec) { s.MaxUnavailable = &intstr.IntOrString{Type: intstr.String, StrVal: "1"} }, "spec.maxUnavailable: Invalid value"},
		{"negative domains", func(s *spec) { s.MaxUnavailableDomains = &negative }, "spec.maxUnavailableDomains: Invalid value: -1"},
		{"negative time", func(s *spec) { s.SettleTime = &metav1.Duration{Duration: -1} }, "spec.settleTime: Invalid value"},
		{"too long a time", func(s *spec) { s.SettleTime = &metav1.Duration{Duration: MaxSettle + 1} }, "spec.settleTime: Invalid value"},
		{"no label", func(s *spec) { s.GroupBy = "a/b/c" }, `spec.groupBy: Invalid value: "a/b/c"`},
		{"a policy of its own", func(s *spec) { s.UnhealthyPodEvictionPolicy = &never }, `spec.unhealthyPodEvictionPolicy: Unsupported value: "Never"`},
		{"labels that none can have", func(s *spec) { s.Selector.MatchLabels["-x"] = "y" }, `spec.selector.matchLabels: Invalid value: "-x"`},
		{"a field of nodes", func(s *spec) { s.NodeSelectorTerm = withFields }, "spec.nodeSelectorTerm.matchFields: Forbidden: domains follow from node labels; use matchExpressions"},
		{"no operator", func(s *spec) { s.NodeSelectorTerm = expressions("zone Near a") }, `spec.nodeSelectorTerm.matchExpressions[0].operator: Unsupported value: "Near"`},
		{"no values", func(s *spec) { s.NodeSelectorTerm = expressions("zone In") }, `spec.nodeSelectorTerm.matchExpressions[0]: Invalid value: "zone In"`},
		{"a value too many", func(s *spec) { s.NodeSelectorTerm = expressions("zone Exists a") }, `spec.nodeSelectorTerm.matchExpressions[0]: Invalid value: "zone Exists a"`},
		{"no number", func(s *spec) { s.NodeSelectorTerm = expressions("disks Gt few") }, `spec.nodeSelectorTerm.matchExpressions[0]: Invalid value: "disks Gt few"`},
		{"a key twice", func(s *spec) { s.NodeSelectorTerm = expressions("zone Exists; rack Exists; zone Exists") }, `spec.nodeSelectorTerm.matchExpressions[2].key: Duplicate value: "zone"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, _ := BudgetOf(budget(test.change)); !strings.HasPrefix(got.Invalid, test.want) {
				t.Errorf("invalid: %q, want %q", got.Invalid, test.want)
			}
		})
	}
	if got, _ := BudgetOf(budget(func(s *spec) { s.MaxUnavailable, s.GroupBy = nil, "-" })); !strings.Contains(got.Invalid, "; spec.groupBy: ") {
		t.Errorf("invalid: %q, want both faults", got.Invalid)
	}
}

// The selector works as that of a PodDisruptionBudget, except for an invalid one.
func TestSelector(t *testing.T) {
	web, other := labels.Set{"app": "web"}, labels.Set{"app": "other"}
	for _, test := range []struct {
		name       string
		selector   *metav1.LabelSelector
		web, other bool
	}{
		{"some", &metav1.LabelSelector{MatchLabels: web}, true, false},
		{"empty", &metav1.LabelSelector{}, true, true},
		{"none", nil, false, false},
		{"unreadable", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: "Near"}}}, true, true},
	} {
		selector := Selector(budget(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.Selector = test.selector }))
		if selector.Matches(web) != test.web || selector.Matches(other) != test.other {
			t.Errorf("%s: %s", test.name, selector)
		}
	}
}

func TestBreakGlass(t *testing.T) {
	until := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for text, want := range map[string]disruption.BreakGlass{
		"2026-01-02T15:04:05Z a flood":            {Until: until, Reason: "a flood"},
		" 2026-01-02T16:04:05+01:00  two  words ": {Until: until, Reason: "two  words"},
		"2026-01-02T15:04:05Z":                    {},
		"2026-01-02T15:04:05Z ":                   {},
		"2026-01-02 a flood":                      {},
		"tomorrow a flood":                        {},
		"":                                        {},
	} {
		got, err := BreakGlassOf(map[string]string{v1alpha1.AnnotationBreakGlass: text})
		if !got.Until.Equal(want.Until) || got.Reason != want.Reason || (err != nil) != want.Until.IsZero() {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	if got, err := BreakGlassOf(map[string]string{"other": "x"}); err != nil || !got.Until.IsZero() {
		t.Errorf("without the annotation: %+v, %v", got, err)
	}
}

// An annotation that is only partly readable admits nothing.
func FuzzBreakGlass(f *testing.F) {
	for _, text := range []string{"2026-01-02T15:04:05Z a flood", "2026-01-02T15:04:05Z", "now", " ", "9999-12-31T23:59:59.999999999+23:59 x"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := BreakGlassOf(map[string]string{v1alpha1.AnnotationBreakGlass: text})
		if err != nil {
			if !got.Until.IsZero() || got.Reason != "" {
				t.Fatalf("%+v in spite of %v", got, err)
			}
			return
		}
		if got.Reason == "" || strings.TrimSpace(got.Reason) != got.Reason || !strings.Contains(text, got.Reason) {
			t.Fatalf("the reason is %q", got.Reason)
		}
		again, err := BreakGlassOf(map[string]string{v1alpha1.AnnotationBreakGlass: got.Until.Format(time.RFC3339Nano) + " " + got.Reason})
		if err == nil && (!again.Until.Equal(got.Until) || again.Reason != got.Reason) {
			t.Fatalf("%+v, written again %+v", got, again)
		}
	})
}
