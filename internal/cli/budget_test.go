package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// freeing is a budget that protects all zones but some.
func freeing(zones ...string) *v1alpha1.TopologyDisruptionBudget {
	b := &v1alpha1.TopologyDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TopologyDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "app-pdb", ResourceVersion: "7"},
	}
	b.Spec.MaxUnavailable = new(intstr.FromInt32(0))
	b.Spec.NodeSelectorTerm = &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{
		{Key: corev1.LabelFailureDomainBetaZone, Operator: corev1.NodeSelectorOpExists},
	}}
	if len(zones) > 0 {
		b.Spec.NodeSelectorTerm.MatchExpressions = append(b.Spec.NodeSelectorTerm.MatchExpressions, v1alpha1.NodeSelectorRequirement{
			Key: corev1.LabelFailureDomainBetaZone, Operator: corev1.NodeSelectorOpNotIn, Values: zones,
		})
	}
	return b
}

// zoned is a cluster with a budget, and a node in each of two zones.
func zoned(t *testing.T, b *v1alpha1.TopologyDisruptionBudget) *fakeCluster {
	t.Helper()
	return &fakeCluster{
		typed: fake.NewClientset(
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			aNode("a1", "zone-a", "4", ""), aNode("b1", "zone-b", "4", ""),
		),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), listKinds(), inAPI(t, b)),
	}
}

func TestBudgetAdvance(t *testing.T) {
	toB := `{"nodeSelectorTerm":{"matchExpressions":[{"key":"failure-domain.beta.kubernetes.io/zone","operator":"Exists"},{"key":"failure-domain.beta.kubernetes.io/zone","operator":"NotIn","values":["zone-b"]}]}}`
	for _, test := range []struct {
		name, args    string
		budget        *v1alpha1.TopologyDisruptionBudget
		code          int
		wrote, output string
	}{
		{"advance", "app-pdb --to zone-b", freeing("zone-a"), 0, toB, "TopologyDisruptionBudget shop/app-pdb leaves out zone-b in place of zone-a\n"},
		{"of several zones", "app-pdb --to zone-b", freeing("zone-a", "zone-b"), 0, toB, "leaves out zone-b in place of zone-a, zone-b\n"},
		{"dry run", "app-pdb --to zone-b --dry-run", freeing("zone-a"), 0, toB, "leaves out zone-b in place of zone-a (dry run: nothing is written)"},
		{"twice", "app-pdb --to zone-b", freeing("zone-b"), 0, "", "leaves out zone-b already"},
		{"as JSON", "app-pdb --to zone-b -o json", freeing("zone-a"), 0, toB, "  \"message\": \"leaves out zone-b in place of zone-a\",\n  \"object\": \"TopologyDisruptionBudget shop/app-pdb\"\n}\n"},
		{"no node", "app-pdb --to zone-x", freeing("zone-a"), 1, "", "TopologyDisruptionBudget shop/app-pdb is not changed: no node has the label failure-domain.beta.kubernetes.io/zone=zone-x; nodes have the values: zone-a, zone-b"},
		{"all covered", "app-pdb --to zone-b", freeing(), 1, "", "TopologyDisruptionBudget shop/app-pdb leaves no domain out"},
		{"another name", "app --to zone-b", freeing("zone-a"), 1, "", `no TopologyDisruptionBudget "app" is in namespace "shop"; it has app-pdb`},
		{"no zone", "app-pdb", freeing("zone-a"), 2, "", "--to is missing"},
		{"no name", "--to zone-b", freeing("zone-a"), 2, "", "takes the NAME of one TopologyDisruptionBudget"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := zoned(t, test.budget)
			code, stdout, stderr := c.run(t.Context(), append([]string{"budget", "advance"}, strings.Fields(test.args)...)...)
			if output := stdout + stderr; code != test.code || !strings.Contains(output, test.output) {
				t.Errorf("code %d, printed %q", code, output)
			}
			if wrote := c.patched(t); (test.wrote == "") != (wrote == "") || !isPartOf(wrote, test.wrote) {
				t.Errorf("wrote %s, want %s", wrote, test.wrote)
			}
			for _, action := range c.dynamic.Actions() {
				if patch, ok := action.(kubetesting.PatchActionImpl); ok && slices.Contains(patch.PatchOptions.DryRun, metav1.DryRunAll) != strings.Contains(test.args, "--dry-run") {
					t.Errorf("the options are %+v", patch.PatchOptions)
				}
			}
		})
	}
}

// Another write between the read and the write is kept.
func TestBudgetAdvanceAfterConflict(t *testing.T) {
	c, conflicts := zoned(t, freeing("zone-a")), 0
	c.dynamic.PrependReactor("patch", budgetResource, func(kubetesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts > 1 {
			return false, nil, nil
		}
		changed := freeing("zone-c")
		changed.Spec.MaxUnavailable = new(intstr.FromInt32(1))
		if err := c.dynamic.Tracker().Update(v1alpha1.GroupVersion.WithResource(budgetResource), inAPI(t, changed), "shop"); err != nil {
			t.Error(err)
		}
		return true, nil, apierrors.NewConflict(schema.GroupResource{Resource: budgetResource}, "app-pdb", errors.New("changed"))
	})
	code, stdout, stderr := c.run(t.Context(), "budget", "advance", "app-pdb", "--to", "zone-b")
	if code != 0 || !strings.Contains(stdout, "leaves out zone-b in place of zone-c") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}

func TestBudgetAdvanceWithoutRights(t *testing.T) {
	for _, test := range []struct{ resource, group string }{{"nodes", ""}, {budgetResource, v1alpha1.GroupVersion.Group}} {
		c := zoned(t, freeing("zone-a"))
		c.refuse(test.resource, forbidden(test.group, test.resource))
		if code, stdout, stderr := c.run(t.Context(), "budget", "advance", "app-pdb", "--to", "zone-b"); code != 1 || !strings.Contains(stderr, "is not allowed") {
			t.Errorf("%s: code %d: %s%s", test.resource, code, stdout, stderr)
		}
	}
}
