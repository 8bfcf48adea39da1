package reservation

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"

	"vicinity.dev/vicinity/internal/disruption/coverage"
)

// A budget has the same state from the pods of an index as from all pods.
func TestPodsOfABudgetAreEnough(t *testing.T) {
	server := newServer(t)
	rapid.Check(t, func(rt *rapid.T) {
		r := server.replica()
		sampled := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(rt, name) }
		var workloads []coverage.Workload
		for _, owner := range []string{"x", "y", "z"} {
			ref := coverage.Ref{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID(owner)}
			made := coverage.OfScale(ref, int32(rapid.IntRange(0, 9).Draw(rt, "replicas")))
			if rapid.Bool().Draw(rt, "of the Deployment") {
				made.Controller = &coverage.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "d"}
			}
			made.Template = &corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": sampled("template", "web", "db"), "tier": sampled("its tier", "a", "b")}}}
			workloads = append(workloads, made)
		}
		workloads = append(workloads, coverage.OfScale(coverage.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "d", UID: "d"}, int32(rapid.IntRange(0, 9).Draw(rt, "its replicas"))))
		r.world.workloads.gather = func(string) []coverage.Workload { return workloads }
		for i := range rapid.IntRange(0, 12).Draw(rt, "pods") {
			pod := aPod(i, 10+i)
			pod.Namespace = sampled("namespace", shop, shop, "other")
			pod.Labels = map[string]string{"app": sampled("app", "web", "db"), "tier": sampled("tier", "a", "b")}
			if owner := sampled("owner", "", "x", "y", "z"); owner != "" {
				pod.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: owner, UID: types.UID(owner), Controller: new(true)}}
			}
			r.sees(pod)
		}
		budget := aBudget("web", 1)
		selector := budget.Spec.Selector
		if rapid.Bool().Draw(rt, "tier, too") {
			selector.MatchLabels["tier"] = sampled("value", "a", "b")
		}
		if rapid.IntRange(0, 3).Draw(rt, "several values") == 0 {
			selector.MatchLabels = nil
			selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "db"}}}
		}
		if rapid.Bool().Draw(rt, "stored") {
			r.sees(budget)
		}
		got, err := r.world.of(t.Context(), budget)
		if err != nil {
			rt.Fatal(err)
		}
		all := got
		all.Pods = ofType[*corev1.Pod](inNamespace(r.world.pods, shop))
		if few, many := coverage.StateOf(got), coverage.StateOf(all); !reflect.DeepEqual(few, many) {
			rt.Fatalf("with the pods of the index the state is\n%+v, with all it is\n%+v", few, many)
		}
		var names []string
		for _, pod := range got.Pods {
			names = append(names, fmt.Sprint(pod.Namespace, "/", pod.Name))
		}
		slices.Sort(names)
		if len(slices.Compact(names)) != len(got.Pods) {
			rt.Fatalf("pods are listed twice: %v", names)
		}
	})
}
