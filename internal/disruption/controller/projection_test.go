package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/shell"
)

func projectOptions() Options {
	o := testOptions()
	o.ProjectPDBs = true
	return o
}

// projected makes a world with a budget of one pod for each zone, with written PodDisruptionBudgets.
func projected(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, append(aShop(), perZone("web", 1))...)
	w.start(projectOptions())
	w.label(shop, marks)
	w.sync("web", status, "create pdb "+pdbName("web", "a"), "create pdb "+pdbName("web", "b"), status)
	w.says("web", v1alpha1.ConditionProjected, metav1.ConditionTrue, reasonProjected)
	w.expectEvents("Normal BudgetEnforced", "Warning OwnersDeleteDirectly", "Normal BudgetProjected")
	w.pdbs("web keeps 1 in a", "web keeps 1 in b")
	return w
}

// refresh syncs budgets until nothing changes.
func (w *world) refresh(names ...string) {
	w.t.Helper()
	for range 2 {
		for _, name := range names {
			if _, err := w.r.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: shop, Name: name}}); err != nil {
				w.t.Fatal(err)
			}
		}
	}
	w.writes = nil
}

// A restart writes nothing, and neither does the replacement of a pod in its zone.
func TestProjectionIsQuiet(t *testing.T) {
	w := projected(t)
	w.start(projectOptions())
	w.label(shop)
	w.sync("web")
	for _, change := range []func(){
		func() { ready(w, "web-1", false) },
		func() { w.drop(pod("web-1", "")) },
		func() { w.make(pod("web-5", "a")) },
	} {
		change()
		if _, err := w.r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: shop, Name: "web"}}); err != nil {
			t.Fatal(err)
		}
		w.writes = slices.DeleteFunc(w.writes, func(write string) bool { return write == status })
		w.wrote()
	}
}

// The numbers follow the replicas and the zones.
func TestProjectionFollows(t *testing.T) {
	w := projected(t)
	change(w, deployment(6), func(d *appsv1.Deployment) { d.Spec.Replicas = new(int32(6)) })
	w.make(pod("web-5", "a"), pod("web-6", "b"))
	w.refresh("web")
	w.pdbs("web keeps 2 in a", "web keeps 2 in b")
	change(w, w.budget("web"), func(b *v1alpha1.TopologyDisruptionBudget) {
		b.Spec.MaxUnavailable, b.Spec.MinAvailable = nil, &intstr.IntOrString{Type: intstr.String, StrVal: "30%"}
	})
	w.refresh("web")
	w.pdbs("web keeps 1 in a", "web keeps 1 in b")
	w.make(node("c"))
	w.refresh("web")
	w.pdbs("web keeps 1 in a", "web keeps 1 in b", "web keeps 1 in c")
	w.drop(node("c"))
	w.refresh("web")
	w.pdbs("web keeps 1 in a", "web keeps 1 in b")
	// A foreign change is reverted as long as the label marks the object as ours.
	pdb := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: pdbName("web", "a")}}
	change(w, pdb, func(p *policyv1.PodDisruptionBudget) { p.Spec.MinAvailable.IntVal = 7 })
	w.refresh("web")
	w.pdbs("web keeps 1 in a", "web keeps 1 in b")
	w.drop(w.budget("web"))
	w.sync("web", "delete pdb "+pdbName("web", "a"), "delete pdb "+pdbName("web", "b"))
	w.pdbs()
}

// A budget is not projected if PodDisruptionBudgets cannot express it, or would conflict with others. Earlier ones are deleted.
func TestBudgetsThatAreNotProjected(t *testing.T) {
	spec := func(f func(*v1alpha1.TopologyDisruptionBudgetSpec)) func(*world) {
		return func(w *world) { change(w, w.budget("web"), func(b *v1alpha1.TopologyDisruptionBudget) { f(&b.Spec) }) }
	}
	theirs := func(requirement metav1.LabelSelectorRequirement) func(*world) {
		return func(w *world) {
			w.make(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: "theirs"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: selecting(requirement)}})
		}
	}
	for _, test := range []struct {
		name   string
		change func(*world)
		want   string // reason
		says   string
	}{
		{"nothing", func(*world) {}, reasonProjected, "Each zone has a PodDisruptionBudget."},
		{"no selector", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.Selector = nil }), reasonNotSimple, "spec.selector"},
		{"no term", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.NodeSelectorTerm = nil }), reasonNotSimple, "spec.nodeSelectorTerm"},
		{"another key", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.NodeSelectorTerm.MatchExpressions[0].Key = "rack" }), reasonNotSimple, "spec.nodeSelectorTerm"},
		{"one zone", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) {
			s.NodeSelectorTerm.MatchExpressions[0].Operator, s.NodeSelectorTerm.MatchExpressions[0].Values = corev1.NodeSelectorOpIn, []string{"a"}
		}), reasonNotSimple, "spec.nodeSelectorTerm"},
		{"two keys", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) {
			s.NodeSelectorTerm.MatchExpressions = append(s.NodeSelectorTerm.MatchExpressions, v1alpha1.NodeSelectorRequirement{Key: "rack", Operator: corev1.NodeSelectorOpExists})
		}), reasonNotSimple, "spec.nodeSelectorTerm"},
		{"groups", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.GroupBy = "shard" }), reasonNotSimple, "spec.groupBy"},
		{"domains", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.MaxUnavailableDomains = new(int32(1)) }), reasonNotSimple, "spec.maxUnavailableDomains"},
		{"total", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.MaxUnavailableTotal = s.MaxUnavailable }), reasonNotSimple, "spec.maxUnavailableTotal"},
		{"both limits", spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.MinAvailable = s.MaxUnavailable }), reasonInvalid, "spec"},
		{"break glass", func(w *world) {
			change(w, w.budget("web"), func(b *v1alpha1.TopologyDisruptionBudget) {
				b.Annotations = map[string]string{v1alpha1.AnnotationBreakGlass: w.clock.Now().Add(time.Hour).Format(time.RFC3339) + " test"}
			})
		}, reasonGlassBroken, "break-glass"},
		{"a pod of before 1.35", func(w *world) {
			w.drop(pod("web-1", ""))
			old := pod("web-1", "a")
			delete(old.Labels, corev1.LabelTopologyZone)
			w.make(old)
		}, reasonPodsLackZone, "1 pod lacks the label"},
		{"a user's budget of the same pods", theirs(is("app", in, "web")), reasonOverlap, "theirs"},
		{"a user's budget of pods that may be the same", theirs(is("tier", exists)), reasonOverlap, "theirs"},
		{"spread constraints", func(w *world) {
			change(w, deployment(4), func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: corev1.DoNotSchedule}}
			})
		}, reasonSpreadConstraints, "Deployment/web (DoNotSchedule)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := projected(t)
			test.change(w)
			w.refresh("web")
			want := metav1.ConditionFalse
			own := 0
			if test.want == reasonProjected || test.want == reasonSpreadConstraints {
				want, own = metav1.ConditionTrue, 2
			}
			if message := w.says("web", v1alpha1.ConditionProjected, want, test.want); !strings.Contains(message, test.says) {
				t.Errorf("the message is %q, want %q", message, test.says)
			}
			var list policyv1.PodDisruptionBudgetList
			if err := w.client.List(t.Context(), &list); err != nil {
				t.Fatal(err)
			}
			for i := range list.Items {
				if ownerOf(&list.Items[i]) != nil {
					own--
				}
			}
			if own != 0 {
				t.Errorf("there are %d PodDisruptionBudgets", len(list.Items))
			}
		})
	}
}

// A foreign PodDisruptionBudget is never touched, whatever its name.
func TestForeignPDBsStay(t *testing.T) {
	theirs := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: pdbName("web", "a"), Labels: map[string]string{v1alpha1.LabelManagedBy: v1alpha1.ManagedByController}},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selecting(is("app", in, "other")), MinAvailable: new(intstr.FromInt32(3))},
	}
	w := newWorld(t, append(aShop(), perZone("web", 1), theirs)...)
	w.start(projectOptions())
	w.label(shop, marks)
	w.refresh("web")
	w.pdbs("no owner keeps 3 in ?", "web keeps 1 in b")
	w.drop(w.budget("web"))
	w.refresh("web")
	w.pdbs("no owner keeps 3 in ?")
}

// A budget whose PodDisruptionBudgets are refused, as by a quota, keeps its own schedule.
func TestRefusedPDBs(t *testing.T) {
	w := newWorld(t, append(aShop(), perZone("web", 1))...)
	w.start(projectOptions())
	w.label(shop, marks)
	w.refuse = func(what string) error {
		if strings.HasPrefix(what, "create pdb") {
			return apierrors.NewForbidden(policyv1.Resource("poddisruptionbudgets"), "web", errors.New("exceeded quota"))
		}
		return nil
	}
	create := "create pdb " + pdbName("web", "a")
	ready(w, "web-1", false)
	ready(w, "web-3", false)
	blocked := w.clock.Now().Add(blockedAfter)
	if after := w.sync("web", status, create).RequeueAfter; after != projectionRetry {
		t.Errorf("it is synced again after %s, want %s", after, projectionRetry)
	}
	w.clock.SetTime(blocked.Add(-time.Second))
	if after := w.sync("web", create).RequeueAfter; after != time.Second {
		t.Errorf("it is synced again after %s, before which it is not blocked", after)
	}
	w.clock.SetTime(blocked)
	w.sync("web", status, create)
	w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionFalse, reasonBlocked)
	if failed := testutil.ToFloat64(w.r.metrics.syncs.WithLabelValues(string(shell.Failed))); failed != 3 {
		t.Errorf("%g failures are counted, want 3", failed)
	}
	w.refuse = nil
	w.sync("web", create, "create pdb "+pdbName("web", "b"), status)
}

// Of two budgets that could select the same pods, only the older one is projected.
func TestOlderBudgetIsProjected(t *testing.T) {
	old, young := perZone("old", 1), perZone("young", 1)
	young.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC))
	old.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	young.Spec.Selector.MatchLabels = map[string]string{"app": "db"}
	w := newWorld(t, append(aShop(), old, young)...)
	w.start(projectOptions())
	w.label(shop, marks)
	w.refresh("old", "young")
	w.pdbs("old keeps 1 in a", "old keeps 1 in b", "young keeps 0 in a", "young keeps 0 in b")
	change(w, w.budget("old"), func(b *v1alpha1.TopologyDisruptionBudget) { b.Spec.Selector.MatchLabels = map[string]string{} })
	w.refresh("old", "young")
	w.pdbs("old keeps 1 in a", "old keeps 1 in b")
	w.says("young", v1alpha1.ConditionProjected, metav1.ConditionFalse, reasonOverlap)
	w.drop(w.budget("old"))
	w.refresh("young", "old")
	w.pdbs("young keeps 0 in a", "young keeps 0 in b")
}

// Of two budgets that select the same pods and are created together, before the cache shows either, one is projected.
func TestOneOfTwoAtOnceIsProjected(t *testing.T) {
	w := newWorld(t, append(aShop(), perZone("one", 1), perZone("two", 1))...)
	b := w.r.base
	b.options = projectOptions()
	b.client = interceptor.NewClient(w.client, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			switch list.(type) {
			case *policyv1.PodDisruptionBudgetList, *v1alpha1.TopologyDisruptionBudgetList:
				return nil // as the cache has it
			}
			return c.List(ctx, list, options...)
		},
	})
	p := newProjection(b)
	var syncs errgroup.Group
	verdicts := make([]*verdict, 2)
	for i, name := range []string{"one", "two"} {
		report, err := w.r.ledger.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: name}, func(*reservation.Report) []metav1.Condition { return nil })
		if err != nil {
			t.Fatal(err)
		}
		syncs.Go(func() (err error) {
			verdicts[i], err = p.sync(t.Context(), report)
			return err
		})
	}
	if err := syncs.Wait(); err != nil {
		t.Fatal(err)
	}
	winner := "one"
	if !verdicts[0].isProjected() {
		winner = "two"
	}
	if verdicts[0].isProjected() == verdicts[1].isProjected() {
		t.Errorf("the verdicts are %v and %v", *verdicts[0], *verdicts[1])
	}
	w.pdbs(winner+" keeps 1 in a", winner+" keeps 1 in b")
}

// After projection is switched off, PodDisruptionBudgets are deleted, and only budgets with the condition update it.
func TestProjectionThatIsOff(t *testing.T) {
	w := projected(t)
	w.start(testOptions())
	w.label(shop)
	w.sync("web", "delete pdb "+pdbName("web", "a"), "delete pdb "+pdbName("web", "b"), status)
	w.says("web", v1alpha1.ConditionProjected, metav1.ConditionFalse, reasonOff)
	w.expectEvents("Warning BudgetProjectedNoMore")
	w.sync("web")
}

func TestNamesOfPDBs(t *testing.T) {
	names := map[string]bool{}
	for _, budget := range []string{"web", "a.b", strings.Repeat("x", 253), strings.Repeat("x", 251) + ".y"} {
		for _, zone := range []string{"a", "A", "eu_west.1", strings.Repeat("z", 63), "-", ""} {
			name := pdbName(budget, zone)
			if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 || names[name] {
				t.Errorf("%s of %q and %q is no name, or another's: %v", name, budget, zone, faults)
			}
			names[name] = true
		}
	}
	if name := pdbName("web", "a"); !strings.HasPrefix(name, "web-a-") {
		t.Errorf("the name %s tells nothing", name)
	}
}

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

// Two selectors that cannot overlap have no pod in common.
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
