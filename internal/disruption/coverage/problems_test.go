package coverage

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

// uneven has 6, 4 and 2 pods of a Deployment in three zones.
func uneven() *builder {
	w := in("a", "b", "c")
	return w.pods(w.deployment(12), "a-1", "a-1", "a-1", "a-2", "a-2", "a-2", "b-1", "b-1", "b-2", "b-2", "c-1", "c-2")
}

func TestProblems(t *testing.T) {
	minimum := func(text string) func(*spec) {
		return func(s *spec) { s.MinAvailable, s.MaxUnavailable = amount(text), nil }
	}
	for _, test := range []struct {
		name  string
		world *builder
		// The condition Satisfiable; messages are how it begins.
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		{"an even division", in("a", "b").pods(nil, "a-1", "b-1"), metav1.ConditionTrue, ReasonSatisfiable, "Every domain can spare a pod when all are healthy."},
		{
			"6, 4 and 2 pods, and 80% must stay", uneven().budget(minimum("80%")), metav1.ConditionFalse, ReasonBlocked,
			`No healthy pod can ever be evicted where the budget needs all of them: domain "b" has 4 pods and must keep 4 (its even share is 4), domain "c" has 2 pods and must keep 4 (its even share is 4). Lower spec.minAvailable, use spec.maxUnavailable, or spread the pods evenly.`,
		},
		{
			"6, 4 and 2 pods, and 40% must stay", uneven().budget(minimum("40%")), metav1.ConditionFalse, ReasonBlocked,
			`No healthy pod can ever be evicted where the budget needs all of them: domain "c" has 2 pods and must keep 2 (its even share is 4).`,
		},
		{
			"one domain", in("a").pods(nil, "a-1").budget(func(s *spec) { minimum("1")(s); s.NodeSelectorTerm = nil }), metav1.ConditionFalse, ReasonBlocked,
			"No healthy pod can ever be evicted where the budget needs all of them: the budget has 1 pod and must keep 1 (its even share is 1). Lower spec.minAvailable, or have more replicas.",
		},
		{
			"a group", in("a").pod("p", "a-1", labeled("shard", "1")).budget(func(s *spec) { minimum("2")(s); s.GroupBy = "shard" }), metav1.ConditionFalse, ReasonBlocked,
			`No healthy pod can ever be evicted where the budget needs all of them: domain "a" of group "1" has 1 pod and must keep 2 (its even share is 1).`,
		},
		{"nothing may go", in("a").budget(func(s *spec) { s.MaxUnavailable = amount("0%") }), metav1.ConditionFalse, ReasonBlocked, "spec.maxUnavailable is 0, so no healthy pod can ever be evicted. Raise it."},
		{
			"one zone after another", in("a", "b", "c").pods(nil, "a-1", "b-1").budget(frees("a")), metav1.ConditionTrue, ReasonSatisfiable,
			`Only pods of zone "a" may be evicted now. To free another zone: "vicinity budget advance web -n shop --to ZONE". 1 pod is not covered, because spec.nodeSelectorTerm leaves out the nodes.`,
		},
		{
			"a free zone and a node without a zone", withLost(in("a", "b")).pods(nil, "lost").budget(frees("a")), metav1.ConditionFalse, ReasonNodeWithoutKey,
			"1 pod is not covered, because the nodes lack the label " + zone + ": lost. Only pods of zone",
		},
		{"no zone is free", in("a", "b").budget(frees("typo")), metav1.ConditionFalse, ReasonBlocked, "spec.maxUnavailable is 0, so no healthy pod can ever be evicted."},
		{
			"a zone is only not chosen", in("a", "b", "c").budget(func(s *spec) {
				s.MaxUnavailable, s.NodeSelectorTerm = amount("0"), expressions(zone+" In a,b; "+zone+" Exists")
			}),
			metav1.ConditionFalse, ReasonBlocked, "spec.maxUnavailable is 0, so no healthy pod can ever be evicted.",
		},
		{
			"no node has the key", in("a", "b").pods(nil, "a-1").budget(func(s *spec) { s.NodeSelectorTerm = expressions("example.com/rack Exists") }), metav1.ConditionFalse, ReasonNoNodes,
			"spec.nodeSelectorTerm matches none of the 4 nodes, so no pod is covered. 4 nodes are without the label example.com/rack. 1 pod is not covered, because the nodes lack the label example.com/rack: a-1.",
		},
		{
			"pods on nodes without the key", withLost(in("a")).pods(nil, "a-1", "lost", "lost"), metav1.ConditionFalse, ReasonNodeWithoutKey,
			"2 pods are not covered, because the nodes lack the label " + zone + ": lost.",
		},
		{
			"an owner that says no number", withScaleless(in("a")), metav1.ConditionTrue, ReasonSatisfiable,
			"The number of replicas of Database.example.com/db is unknown, so only existing pods count and missing pods go unnoticed.",
		},
		{"an invalid spec", in("a").budget(func(s *spec) { s.MaxUnavailable = nil }), metav1.ConditionUnknown, ReasonInvalid, "The spec is invalid."},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := StateOf(test.world.World)
			found := Problems(test.world.World, s, disruption.Measure(&s, began.Add(time.Hour)))
			if len(found) != 2 || found[0].Type != v1alpha1.ConditionValid || found[1].Type != v1alpha1.ConditionSatisfiable {
				t.Fatalf("%+v", found)
			}
			if got := found[1]; got.Status != test.status || got.Reason != test.reason || !strings.HasPrefix(got.Message, test.message) || got.ObservedGeneration != 7 {
				t.Errorf("%+v", got)
			}
			if valid := test.reason != ReasonInvalid; (found[0].Status == metav1.ConditionTrue) != valid {
				t.Errorf("%+v", found[0])
			}
		})
	}
}

// frees leaves one zone out, and protects all pods elsewhere.
func frees(free string) func(*spec) {
	return func(s *spec) {
		s.MaxUnavailable, s.NodeSelectorTerm = amount("0"), expressions(zone+" NotIn "+free+"; "+zone+" Exists")
	}
}

func withLost(w *builder) *builder {
	w.node("lost", nil)
	return w
}

func withScaleless(w *builder) *builder {
	w.add(WithoutScale(*custom("db")))
	return w.pods(custom("db"), "a-1")
}

func TestProblemsOfAnInvalidSpec(t *testing.T) {
	w := in("a").budget(func(s *spec) { s.MaxUnavailable = nil; s.GroupBy = strings.Repeat("x", 40000) })
	s := StateOf(w.World)
	valid := Problems(w.World, s, disruption.Measure(&s, began))[0]
	if valid.Status != metav1.ConditionFalse || valid.Reason != ReasonInvalid || !strings.HasPrefix(valid.Message, "spec.maxUnavailable: Required value") || len(valid.Message) > 32768 {
		t.Errorf("%s %s, %d bytes: %.100s", valid.Status, valid.Reason, len(valid.Message), valid.Message)
	}
	w.Budget.Spec.GroupBy = ""
	s = StateOf(w.World)
	if message := Problems(w.World, s, disruption.Measure(&s, began))[0].Message; !strings.HasSuffix(message, "must be given. No pod that the selector matches may be evicted until the spec is corrected.") {
		t.Error(message)
	}
}

func TestDirectDeleters(t *testing.T) {
	w := in("a")
	w.deployment(2)
	w.statefulSet("other", 2, "app=other")
	w.statefulSet("db", 2)
	w.statefulSet("careful", 2)
	w.Workloads[3].DeletesDirectly = false
	w.statefulSet("idle", 0)
	w.pods(w.statefulSet("relabelled", 1, "app=new"), "a-1")
	got := DirectDeleters(w.World)
	names := make([]string, len(got))
	for i, ref := range got {
		names[i] = ref.ID()
	}
	if want := []string{"Deployment/web", "StatefulSet/db", "StatefulSet/relabelled"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}
}

// A rollout that has replacements available first takes nothing from a budget.
func TestRolloutsThatGoBelow(t *testing.T) {
	amounts := func(surge, unavailable string) (*intstr.IntOrString, *intstr.IntOrString) {
		return new(intstr.Parse(surge)), new(intstr.Parse(unavailable))
	}
	for _, test := range []struct {
		surge, unavailable    string
		replicas              int32
		deployment, daemonSet bool
	}{
		{"1", "0", 4, false, false},
		{"25%", "0%", 4, false, false},
		{"25%", "25%", 4, true, true},
		{"25%", "25%", 3, false, true},
		{"0", "25%", 3, true, true},
		{"0", "1", 3, true, true},
		{"0", "0", 3, true, true},
	} {
		deployment := &appsv1.Deployment{Spec: appsv1.DeploymentSpec{Replicas: &test.replicas, Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{}}}}
		rolling := deployment.Spec.Strategy.RollingUpdate
		rolling.MaxSurge, rolling.MaxUnavailable = amounts(test.surge, test.unavailable)
		set := &appsv1.DaemonSet{
			Spec:   appsv1.DaemonSetSpec{UpdateStrategy: appsv1.DaemonSetUpdateStrategy{RollingUpdate: &appsv1.RollingUpdateDaemonSet{MaxSurge: rolling.MaxSurge, MaxUnavailable: rolling.MaxUnavailable}}},
			Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: test.replicas},
		}
		if a, b := OfDeployment(deployment).DeletesDirectly, OfDaemonSet(set).DeletesDirectly; a != test.deployment || b != test.daemonSet {
			t.Errorf("%+v: the Deployment %v, the DaemonSet %v", test, a, b)
		}
	}
	if !OfDeployment(&appsv1.Deployment{Spec: appsv1.DeploymentSpec{Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}}}).DeletesDirectly {
		t.Error("a Deployment that deletes all its pods first")
	}
}
