package budget

import (
	"context"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/admission"
)

var now = time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)

type change = func(*v1alpha1.TopologyDisruptionBudget)

// budget is a budget without any warning.
func budget(changes ...change) *v1alpha1.TopologyDisruptionBudget {
	one := intstr.FromInt32(1)
	tdb := &v1alpha1.TopologyDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: v1alpha1.TopologyDisruptionBudgetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, MaxUnavailable: &one,
		NodeSelectorTerm: &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{
			{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpExists},
		}},
	}}
	for _, c := range changes {
		c(tdb)
	}
	return tdb
}

func glass(text string) change {
	return func(tdb *v1alpha1.TopologyDisruptionBudget) {
		tdb.Annotations = map[string]string{v1alpha1.AnnotationBreakGlass: text}
	}
}

// fixed is a cluster with a node in each of two zones, and further objects.
type fixed struct {
	pods      []*corev1.Pod
	workloads []coverage.Workload
}

func (f fixed) World(_ context.Context, tdb *v1alpha1.TopologyDisruptionBudget) (coverage.World, error) {
	w := coverage.World{Budget: tdb, Pods: f.pods, Workloads: f.workloads, Nodes: map[string]*corev1.Node{}}
	for _, name := range []string{"a", "b"} {
		w.Nodes[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelTopologyZone: name}}}
	}
	return w, nil
}

func pod(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

func workloads() []coverage.Workload {
	web := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}}
	set := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "db", UID: "1"}, Spec: appsv1.StatefulSetSpec{Template: web}}
	return []coverage.Workload{
		coverage.OfStatefulSet(set),
		coverage.OfDeployment(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web", UID: "2"}, Spec: appsv1.DeploymentSpec{Template: web}}),
		coverage.OfDaemonSet(&appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "agent", UID: "3"}, Spec: appsv1.DaemonSetSpec{Template: web}, Status: appsv1.DaemonSetStatus{DesiredNumberScheduled: 2}}),
	}
}

func TestJudge(t *testing.T) {
	minutes := func(tdb *v1alpha1.TopologyDisruptionBudget) {
		tdb.Spec.SettleTime = &metav1.Duration{Duration: time.Minute}
	}
	badKey := func(tdb *v1alpha1.TopologyDisruptionBudget) { tdb.Spec.Selector.MatchLabels["-x"] = "y" }
	everything := func(tdb *v1alpha1.TopologyDisruptionBudget) { tdb.Spec.Selector = &metav1.LabelSelector{} }
	for _, test := range []struct {
		name             string
		object, stored   *v1alpha1.TopologyDisruptionBudget
		namespace        string
		world            worlds
		faults, warnings []string // how they begin
	}{
		{name: "fine", object: budget()},
		{name: "labels that none can have", object: budget(badKey), faults: []string{`spec.selector.matchLabels: Invalid value: "-x"`}},
		{name: "stored already", object: budget(badKey, minutes), stored: budget(badKey), warnings: []string{"spec.settleTime has no effect"}},
		{name: "going", object: budget(badKey, func(tdb *v1alpha1.TopologyDisruptionBudget) { tdb.DeletionTimestamp = &metav1.Time{Time: now} }), stored: budget()},
		{name: "everything", object: budget(everything), warnings: []string{"spec.selector is empty: the budget covers all pods of the namespace"}},
		{name: "settled for nothing", object: budget(minutes), warnings: []string{"spec.settleTime has no effect without spec.maxUnavailableDomains"}},
		{
			name: "none may go", object: budget(func(tdb *v1alpha1.TopologyDisruptionBudget) { *tdb.Spec.MaxUnavailable = intstr.FromInt32(0) }),
			warnings: []string{"spec.maxUnavailable is 0, so no healthy pod can ever be evicted. Raise it."},
		},
		{name: "system", object: budget(), namespace: "kube-system", warnings: []string{"budgets are not enforced in kube-system"}},
		{
			name: "blocked", object: budget(func(tdb *v1alpha1.TopologyDisruptionBudget) {
				tdb.Spec.MinAvailable, tdb.Spec.MaxUnavailable = new(intstr.FromString("80%")), nil
			}), world: fixed{pods: []*corev1.Pod{pod("p", "a")}},
			warnings: []string{"No healthy pod can ever be evicted where the budget needs all of them: domain \"a\" has 1 pod and must keep 1"},
		},
		{
			name: "rollouts", object: budget(), world: fixed{workloads: workloads()},
			warnings: []string{
				"DaemonSet/agent deletes pods without asking the budget when its template changes; updateStrategy.type: OnDelete leaves the pods alone",
				"Deployment/web deletes pods without asking the budget when its template changes; strategy.type: RollingUpdate with rollingUpdate.maxUnavailable: 0 deletes a pod only once",
				"StatefulSet/db deletes pods without asking",
			},
		},
		{name: "break glass for long", object: budget(glass("2026-01-03T15:00:01Z a flood")), stored: budget(), warnings: []string{"annotation vicinity.dev/break-glass admits every eviction for more than a day, until 2026-01-03T15:00:01Z"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := judge{Options{Worlds: test.world, Own: "vicinity", Clock: clocktesting.NewFakePassiveClock(now)}}
			if test.namespace == "" {
				test.namespace = "shop"
			}
			verdict, err := j.judge(t.Context(), admission.Write[v1alpha1.TopologyDisruptionBudget]{Object: test.object, Stored: test.stored, Namespace: test.namespace})
			if err != nil {
				t.Error(err)
			}
			begin(t, "faults", verdict.Faults, test.faults)
			begin(t, "warnings", verdict.Warnings, test.warnings)
		})
	}
}

func begin(t *testing.T, what string, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !strings.HasPrefix(got[i], want[i]) {
			t.Errorf("%s are %q, want %q", what, got, want)
			return
		}
	}
}
