package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
)

// budgeted is a cluster of three zones with a node each, and six pods of a StatefulSet, two in each
// zone, in a namespace whose budgets are enforced.
type budgeted struct {
	pods       []*corev1.Pod
	budgets    []*v1alpha1.TopologyDisruptionBudget
	shifts     []*v1alpha1.ZoneShift
	pdbs       []*policyv1.PodDisruptionBudget
	namespace  *corev1.Namespace
	controller *appsv1.Deployment
	webhooks   bool
	more       []runtime.Object
}

var (
	longAgo = metav1.NewTime(time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC))
	later   = metav1.NewTime(time.Date(2026, 1, 2, 15, 10, 0, 0, time.UTC))
	future  = metav1.NewTime(time.Date(2099, 1, 2, 15, 4, 5, 0, time.UTC))
)

func newBudgeted() *budgeted {
	b := &budgeted{
		namespace:  &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{v1alpha1.LabelBudgets: "true"}}},
		controller: aController(), webhooks: true,
	}
	for i := range 6 {
		b.pods = append(b.pods, aPodOf("web", i, "node-"+string("abc"[i%3])))
	}
	return b
}

func aPodOf(owner string, ordinal int, node string) *corev1.Pod {
	name := fmt.Sprintf("%s-%d", owner, ordinal)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": owner},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "StatefulSet", Name: owner, UID: types.UID("set-" + owner), Controller: new(true)}},
		},
		Spec: corev1.PodSpec{NodeName: node},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: longAgo},
		}},
	}
}

// budget adds a TopologyDisruptionBudget by zone that allows one pod down in each.
func (b *budgeted) budget(name string, change ...func(*v1alpha1.TopologyDisruptionBudget)) *budgeted {
	tdb := &v1alpha1.TopologyDisruptionBudget{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "TopologyDisruptionBudget"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1},
		Spec: v1alpha1.TopologyDisruptionBudgetSpec{
			Selector:         &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}},
			NodeSelectorTerm: &v1alpha1.NodeSelectorTerm{MatchExpressions: []v1alpha1.NodeSelectorRequirement{{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpExists}}},
			MaxUnavailable:   new(intstr.FromInt32(1)),
		},
	}
	for _, do := range change {
		do(tdb)
	}
	b.budgets = append(b.budgets, tdb)
	return b
}

// pdb adds a PodDisruptionBudget with a number of allowed disruptions.
func (b *budgeted) pdb(name string, allowed int32) *budgeted {
	p := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed, CurrentHealthy: 5 + allowed, DesiredHealthy: 5, ExpectedPods: 6},
	}
	if allowed == 0 {
		p.Status.Conditions = []metav1.Condition{{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason, LastTransitionTime: later}}
	}
	b.pdbs = append(b.pdbs, p)
	return b
}

// down makes pods not ready.
func (b *budgeted) down(pods ...int) *budgeted {
	for _, i := range pods {
		b.pods[i].Status.Conditions[0].Status = corev1.ConditionFalse
		b.pods[i].Status.Conditions[0].LastTransitionTime = later
	}
	return b
}

// but changes a cluster.
func (b *budgeted) but(change func(*budgeted)) *budgeted {
	change(b)
	return b
}

func (b *budgeted) cluster(t *testing.T) *fakeCluster {
	t.Helper()
	objects := []runtime.Object{b.namespace, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "set-web"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(6)), Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}},
		},
	}}
	for _, letter := range "abc" {
		objects = append(objects, aNode("node-"+string(letter), "zone-"+string(letter), "4", ""))
	}
	if b.controller != nil {
		objects = append(objects, b.controller)
	}
	if b.webhooks {
		meta := metav1.ObjectMeta{Name: "vicinity-evictions", Labels: map[string]string{"app.kubernetes.io/part-of": "vicinity"}}
		at := admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Namespace: "vicinity-system", Name: "vicinity-webhooks"}}
		rules := []admissionregistrationv1.RuleWithOperations{{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
		}}
		objects = append(objects, &admissionregistrationv1.MutatingWebhookConfiguration{
			ObjectMeta: meta, Webhooks: []admissionregistrationv1.MutatingWebhook{{ClientConfig: at, Rules: rules}},
		})
	}
	for _, pod := range b.pods {
		objects = append(objects, pod)
	}
	for _, pdb := range b.pdbs {
		objects = append(objects, pdb)
	}
	var own []runtime.Object
	for _, budget := range b.budgets {
		own = append(own, inAPI(t, budget))
	}
	for _, zs := range b.shifts {
		own = append(own, inAPI(t, zs))
	}
	kinds := listKinds()
	return &fakeCluster{
		typed:   fake.NewClientset(append(objects, b.more...)...),
		dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds, own...),
	}
}

func withConditions(conditions ...metav1.Condition) func(*v1alpha1.TopologyDisruptionBudget) {
	return func(tdb *v1alpha1.TopologyDisruptionBudget) {
		for i := range conditions {
			conditions[i].ObservedGeneration, conditions[i].LastTransitionTime = tdb.Generation, later
		}
		tdb.Status.Conditions = conditions
	}
}

func TestExplainPodGolden(t *testing.T) {
	oneZone := func(tdb *v1alpha1.TopologyDisruptionBudget) {
		tdb.Spec.MaxUnavailable = new(intstr.FromString("100%"))
		tdb.Spec.MaxUnavailableDomains = new(int32(1))
	}
	for _, test := range []struct {
		name    string
		cluster *budgeted
		args    string
	}{
		{"domain.txt", newBudgeted().budget("by-zone").down(3), "web-0"},
		{"domain.json", newBudgeted().budget("by-zone").down(3), "web-0 -o json"},
		{"shifted-domain.txt", newBudgeted().budget("zone-at-a-time", oneZone).but(func(b *budgeted) {
			b.shifts = []*v1alpha1.ZoneShift{{
				TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "ZoneShift"},
				ObjectMeta: metav1.ObjectMeta{Name: "out", CreationTimestamp: future},
				Spec:       v1alpha1.ZoneShiftSpec{From: v1alpha1.ShiftedDomain{Key: corev1.LabelTopologyZone, Value: "zone-b"}, For: metav1.Duration{Duration: time.Hour}},
				Status:     v1alpha1.ZoneShiftStatus{Conditions: []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue}}},
			}}
		}), "web-0"},
		{"unready.txt", newBudgeted().budget("by-zone").down(0, 3), "web-0"},
		{"two-budgets.txt", newBudgeted().budget("by-zone").budget("zone-at-a-time", oneZone).down(1), "web-0"},
		{"since.txt", newBudgeted().budget("frozen", func(tdb *v1alpha1.TopologyDisruptionBudget) { tdb.Spec.MaxUnavailable = new(intstr.FromInt32(0)) },
			withConditions(
				metav1.Condition{Type: v1alpha1.ConditionDisruptionAllowed, Status: metav1.ConditionFalse},
				metav1.Condition{Type: v1alpha1.ConditionSatisfiable, Status: metav1.ConditionFalse, Message: "spec.maxUnavailable is 0, so no healthy pod can ever be evicted. Raise it."},
			)), "web-0"},
		{"reserved.txt", newBudgeted().budget("by-zone", func(tdb *v1alpha1.TopologyDisruptionBudget) {
			tdb.Status.Reservations = []v1alpha1.Reservation{{UID: "uid-web-3", Pod: "web-3", Expires: future}}
		}), "web-0"},
		{"break-glass.txt", newBudgeted().budget("by-zone", func(tdb *v1alpha1.TopologyDisruptionBudget) {
			tdb.Annotations = map[string]string{v1alpha1.AnnotationBreakGlass: "2099-01-02T15:04:05Z the disks of zone-a are failing"}
		}).down(3), "web-0"},
		{"invalid.txt", newBudgeted().budget("odd", func(tdb *v1alpha1.TopologyDisruptionBudget) { tdb.Spec.MinAvailable = new(intstr.FromInt32(1)) }), "web-0"},
		{"not-covered.txt", newBudgeted().budget("zone-b", func(tdb *v1alpha1.TopologyDisruptionBudget) {
			tdb.Spec.NodeSelectorTerm.MatchExpressions[0] = v1alpha1.NodeSelectorRequirement{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"zone-b"}}
		}), "web-0"},
		{"no-budget.txt", newBudgeted(), "web-0"},
		{"missing.txt", newBudgeted().budget("by-zone").but(func(b *budgeted) { b.pods = slices.Delete(b.pods, 3, 4) }), "web-0"},
		{"terminating.txt", newBudgeted().budget("by-zone").but(func(b *budgeted) {
			b.pods[0].DeletionTimestamp, b.pods[0].DeletionGracePeriodSeconds, b.pods[0].Finalizers = &later, new(int64(30)), []string{"example.com/wait"}
		}), "web-0"},
		{"pending.txt", newBudgeted().budget("by-zone").pdb("web", 0).but(func(b *budgeted) {
			b.pods[0].Spec.NodeName, b.pods[0].Status = "", corev1.PodStatus{Phase: corev1.PodPending}
		}), "web-0"},
		{"pdb-allows.txt", newBudgeted().budget("by-zone").pdb("web", 1), "web-0"},
		{"pdb-refuses.txt", newBudgeted().budget("by-zone").pdb("web", 0), "web-0"},
		{"two-pdbs.txt", newBudgeted().budget("by-zone").pdb("web", 1).pdb("everything", 1), "web-0"},
		{"no-label.txt", newBudgeted().budget("by-zone").down(3).but(func(b *budgeted) { b.namespace.Labels = nil }), "web-0"},
		{"webhooks-down.txt", newBudgeted().budget("by-zone").but(func(b *budgeted) { b.controller.Status.ReadyReplicas = 0 }), "web-0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.cluster.cluster(t).printsGolden(t, "explain-pod/"+test.name, strings.Fields("explain pod/"+test.args)...)
		})
	}
}

// podAnswer returns the JSON of explain for the first pod.
func podAnswer(t *testing.T, c *fakeCluster) inspect.PodExplanation {
	t.Helper()
	code, stdout, stderr := c.run(t.Context(), "explain", "pod/web-0", "-o", "json")
	if code != 0 {
		t.Fatalf("code %d: %s", code, stderr)
	}
	var e inspect.PodExplanation
	if err := json.Unmarshal([]byte(stdout), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

// TestExplainPodWithoutRights removes one permission after the other. An unreadable object must not
// make an eviction look allowed.
func TestExplainPodWithoutRights(t *testing.T) {
	for _, test := range []struct {
		resource, group string
		want            inspect.Verdict
		says            string
	}{
		{"nodes", "", inspect.VerdictUnknown, "Nodes may not be read"},
		{"statefulsets", "apps", inspect.VerdictUnknown, "StatefulSets may not be read"},
		{"topologydisruptionbudgets", "vicinity.dev", inspect.VerdictUnknown, "TopologyDisruptionBudgets may not be read"},
		{"poddisruptionbudgets", "policy", inspect.VerdictRefused, "by-zone"},
		{"namespaces", "", inspect.VerdictRefused, "by-zone"},
		{"mutatingwebhookconfigurations", "admissionregistration.k8s.io", inspect.VerdictRefused, "by-zone"},
	} {
		t.Run(test.resource, func(t *testing.T) {
			c := newBudgeted().budget("by-zone").down(3).cluster(t)
			c.refuse(test.resource, forbidden(test.group, test.resource))
			e := podAnswer(t, c)
			if e.Verdict != test.want || !strings.Contains(e.Why, test.says) {
				t.Errorf("got %s: %s; want %s: %s", e.Verdict, e.Why, test.want, test.says)
			}
		})
	}
	t.Run("what the controller found", func(t *testing.T) {
		c := newBudgeted().budget("by-zone", withConditions(metav1.Condition{Type: v1alpha1.ConditionEnforced, Status: metav1.ConditionFalse, Message: "evictions are not checked"})).down(3).cluster(t)
		c.refuse("namespaces", forbidden("", "namespaces"))
		c.refuse("mutatingwebhookconfigurations", forbidden("admissionregistration.k8s.io", "mutatingwebhookconfigurations"))
		if e := podAnswer(t, c); e.Verdict != inspect.VerdictAllowed || e.Unenforced != "evictions are not checked" {
			t.Errorf("got %s, unenforced %q", e.Verdict, e.Unenforced)
		}
	})
	t.Run("PodDisruptionBudgets may refuse", func(t *testing.T) {
		c := newBudgeted().budget("by-zone").cluster(t)
		c.refuse("poddisruptionbudgets", forbidden("policy", "poddisruptionbudgets"))
		if e := podAnswer(t, c); e.Verdict != inspect.VerdictUnknown {
			t.Errorf("got %s: %s", e.Verdict, e.Why)
		}
	})
}

func TestExplainPodWhereEvictionsAreNotChecked(t *testing.T) {
	for want, change := range map[string]func(*budgeted){
		"no MutatingWebhookConfiguration asks Vicinity about pods/eviction": func(b *budgeted) { b.webhooks = false },
		"evictions in namespace shop are never checked":                     func(b *budgeted) { b.controller.Namespace = "shop" },
	} {
		if e := podAnswer(t, newBudgeted().budget("by-zone").down(3).but(change).cluster(t)); e.Verdict != inspect.VerdictAllowed || !strings.HasPrefix(e.Unenforced, want) {
			t.Errorf("got %s, unenforced %q; want %q", e.Verdict, e.Unenforced, want)
		}
	}
}

func TestPermissionsOfExplainPodAreDocumented(t *testing.T) {
	c := newBudgeted().budget("by-zone").cluster(t)
	c.run(t.Context(), "explain", "pod/web-0")
	compareRights(t, documentedRights(t, "\n## One pod\n"), c.actions()...)
}

func TestExplainPodRefuses(t *testing.T) {
	for _, test := range []struct {
		args, want string
		code       int
	}{
		{"explain pod/web-00", `no pod "web-00" is in namespace "shop"; it has `, 1},
		{"explain pod/", `"pod/" has no name; give svc/NAME or pod/NAME`, 2},
	} {
		code, stdout, stderr := newBudgeted().cluster(t).run(t.Context(), strings.Fields(test.args)...)
		if code != test.code || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: code %d, printed %q: %s", test.args, code, stdout, stderr)
		}
	}
}
