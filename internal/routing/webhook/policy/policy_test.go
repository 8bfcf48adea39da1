package policy

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
)

func of(change func(*v1alpha1.RoutingPolicySpec)) *v1alpha1.RoutingPolicy {
	p := &v1alpha1.RoutingPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "near"}}
	change(&p.Spec)
	return p
}

func expression(text string) func(*v1alpha1.RoutingPolicySpec) {
	return func(spec *v1alpha1.RoutingPolicySpec) {
		spec.Capacity = v1alpha1.Capacity{Type: v1alpha1.CapacityExpression, Expression: text}
	}
}

func TestJudge(t *testing.T) {
	const field = "spec.capacity.expression: Invalid value: "
	badKey := &metav1.LabelSelector{MatchLabels: map[string]string{"-x": "y"}}
	for _, test := range []struct {
		name             string
		object, stored   func(*v1alpha1.RoutingPolicySpec)
		faults, warnings []string // how they begin
	}{
		{name: "nothing", object: func(*v1alpha1.RoutingPolicySpec) {}},
		{name: "fine", object: expression("zone.cpu + 2.0 * zone.nodes")},
		{name: "no CEL", object: expression("zone.cpu +"), faults: []string{field + `"zone.cpu +": column 11: Syntax error`}},
		{
			name: "not used", object: func(spec *v1alpha1.RoutingPolicySpec) {
				expression("zone.gpu")(spec)
				spec.Capacity.Type = v1alpha1.CapacityNodes
			},
		},
		{
			name: "stored already", stored: expression("zone.gpu"),
			object: func(spec *v1alpha1.RoutingPolicySpec) {
				expression("zone.gpu")(spec)
				spec.Mode = v1alpha1.Prefer
			},
		},
		{name: "changed", stored: expression("zone.gpu"), object: expression("zone.gpus"), faults: []string{field + `"zone.gpus"`}},
		{
			name:   "labels that none can have",
			object: func(spec *v1alpha1.RoutingPolicySpec) { spec.Selector, spec.NodeSelector = badKey, badKey },
			faults: []string{`spec.selector.matchLabels: Invalid value: "-x"`, `spec.nodeSelector.matchLabels: Invalid value: "-x"`},
		},
		{
			name: "hard", object: func(spec *v1alpha1.RoutingPolicySpec) { spec.Mode = v1alpha1.Require },
			warnings: []string{"the policy requires a near endpoint, which hints cannot express: where none is near, a stock proxy uses all; it has full effect with spec.delivery: Groups, or on Services annotated with vicinity.dev/proxy"},
		},
		{
			name: "hard by groups",
			object: func(spec *v1alpha1.RoutingPolicySpec) {
				spec.Mode, spec.Delivery = v1alpha1.Require, v1alpha1.DeliveryGroups
			},
		},
		{
			name: "weighted", object: func(spec *v1alpha1.RoutingPolicySpec) { spec.Algorithm = "local-weighted" },
			warnings: []string{"the policy uses the algorithm local-weighted, whose weights hints cannot carry"},
		},
		{
			name:   "nothing new",
			stored: func(spec *v1alpha1.RoutingPolicySpec) { spec.Mode = v1alpha1.Require },
			object: func(spec *v1alpha1.RoutingPolicySpec) { spec.Mode = v1alpha1.Require },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			write := admission.Write[v1alpha1.RoutingPolicy]{Object: of(test.object), Namespace: "shop"}
			if test.stored != nil {
				write.Stored = of(test.stored)
			}
			verdict, _ := judge(t.Context(), write)
			if !slices.EqualFunc(verdict.Faults, test.faults, strings.HasPrefix) {
				t.Errorf("faults %q, want %q", verdict.Faults, test.faults)
			}
			if !slices.EqualFunc(verdict.Warnings, test.warnings, strings.HasPrefix) {
				t.Errorf("warnings %q, want %q", verdict.Warnings, test.warnings)
			}
		})
	}
	far := &v1alpha1.ClusterRoutingPolicy{ObjectMeta: metav1.ObjectMeta{Name: "far"}}
	far.Spec.NamespaceSelector = badKey
	verdict, _ := judgeCluster(t.Context(), admission.Write[v1alpha1.ClusterRoutingPolicy]{Object: far})
	if want := []string{`spec.namespaceSelector.matchLabels: Invalid value: "-x"`}; !slices.EqualFunc(verdict.Faults, want, strings.HasPrefix) {
		t.Errorf("faults %q of a ClusterRoutingPolicy, want %q", verdict.Faults, want)
	}
	worse := far.DeepCopy()
	worse.Spec.Mode = v1alpha1.Require
	expression("zone.gpu")(&worse.Spec.RoutingPolicySpec)
	verdict, _ = judgeCluster(t.Context(), admission.Write[v1alpha1.ClusterRoutingPolicy]{Object: worse, Stored: far})
	if want := []string{field + `"zone.gpu": column 5: undefined field 'gpu'`}; !slices.EqualFunc(verdict.Faults, want, strings.HasPrefix) || len(verdict.Warnings) != 1 {
		t.Errorf("faults %q, warnings %q of a ClusterRoutingPolicy, want %q and a warning", verdict.Faults, verdict.Warnings, want)
	}
	other := far.DeepCopy()
	other.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"-y": "y"}}
	verdict, _ = judgeCluster(t.Context(), admission.Write[v1alpha1.ClusterRoutingPolicy]{Object: other, Stored: far})
	if len(verdict.Faults) != 1 {
		t.Errorf("faults %q of a selector that is changed", verdict.Faults)
	}
	if verdict, _ := judgeCluster(t.Context(), admission.Write[v1alpha1.ClusterRoutingPolicy]{Object: far, Stored: far}); len(verdict.Faults) > 0 {
		t.Errorf("a ClusterRoutingPolicy that is stored is refused: %q", verdict.Faults)
	}
}
