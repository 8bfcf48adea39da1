package controller

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
)

const status = "status budget web"

// running makes a world with a budget of one pod for each zone, with written conditions.
func running(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, append(aShop(), perZone("web", 1))...)
	w.label(shop, marks)
	w.sync("web", status)
	w.expectEvents("Normal BudgetEnforced", "Warning OwnersDeleteDirectly")
	w.sync("web")
	return w
}

func (w *world) allowedSince() time.Time {
	w.t.Helper()
	return meta.FindStatusCondition(w.budget("web").Status.Conditions, v1alpha1.ConditionDisruptionAllowed).LastTransitionTime.Time
}

// A budget that allows no eviction for a long time reports that once, and reports the end.
func TestBlockedForLong(t *testing.T) {
	w := running(t)
	w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionTrue, reasonSufficientPods)
	ready(w, "web-1", false)
	ready(w, "web-3", false)
	begun := w.clock.Now()
	after := w.sync("web", status).RequeueAfter
	message := w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionFalse, reasonInsufficientPods)
	for _, part := range []string{"for pod web-2", "web-1 is not ready", "continue when it is ready again"} {
		if !strings.Contains(message, part) {
			t.Errorf("the message is %q, want %q", message, part)
		}
	}
	w.expectEvents()
	if after != blockedAfter {
		t.Errorf("it is looked at again after %s, want %s", after, blockedAfter)
	}
	w.clock.SetTime(begun.Add(blockedAfter))
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionFalse, reasonBlocked)
	w.expectEvents("Warning BudgetBlocked")
	if !w.allowedSince().Equal(begun) {
		t.Errorf("it is blocked since %s, want %s", w.allowedSince(), begun)
	}
	w.start(testOptions())
	w.label(shop)
	w.sync("web")
	ready(w, "web-1", true)
	w.clock.SetTime(begun.Add(time.Hour))
	w.sync("web", status)
	w.expectEvents("Normal BudgetUnblocked")
}

// A budget whose evictions keep being admitted is not blocked, even if every look finds no allowance.
func TestBudgetWithAdmittedEvictionsIsNotBlocked(t *testing.T) {
	w := running(t)
	ready(w, "web-1", false)
	ready(w, "web-3", false)
	w.sync("web", status)
	w.clock.SetTime(w.clock.Now().Add(blockedAfter))
	admitted := w.clock.Now().Add(-time.Minute)
	b := w.budget("web")
	b.Status.Reservations = []v1alpha1.Reservation{{UID: "web-2", Pod: "web-2", Expires: metav1.NewTime(admitted.Add(disruption.ReservationTime))}}
	if err := w.client.Status().Update(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	w.writes = nil
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionFalse, reasonInsufficientPods)
	if !w.allowedSince().Equal(admitted) {
		t.Errorf("nothing is allowed since %s, want %s", w.allowedSince(), admitted)
	}
	w.sync("web")
	w.expectEvents()
}

// Break-glass has events when it opens, when it is first used, and when it ends.
func TestBreakGlassEvents(t *testing.T) {
	w := running(t)
	if meta.FindStatusCondition(w.budget("web").Status.Conditions, v1alpha1.ConditionBreakGlass) != nil {
		t.Error("a budget without the annotation has its condition")
	}
	until := w.clock.Now().Add(time.Hour)
	write := func(value string) {
		change(w, w.budget("web"), func(b *v1alpha1.TopologyDisruptionBudget) {
			b.Annotations = map[string]string{v1alpha1.AnnotationBreakGlass: value}
			if value == "" {
				b.Annotations = nil
			}
		})
	}
	write("soon please")
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionBreakGlass, metav1.ConditionFalse, reasonUnreadable)
	w.expectEvents("Warning BreakGlassUnreadable")

	write(until.Format(time.RFC3339) + " zone a burns.")
	w.sync("web", status)
	if message := w.says("web", v1alpha1.ConditionBreakGlass, metav1.ConditionTrue, reasonOpen); !strings.Contains(message, "zone a burns.") || strings.Contains(message, "..") {
		t.Errorf("the message is %q", message)
	}
	w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionTrue, reasonGlassBroken)
	w.expectEvents("Warning BreakGlassOpened")
	w.sync("web")

	evicted := func(name string, at time.Time) {
		change(w, pod(name, ""), func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: reasonOfEvictions, LastTransitionTime: metav1.NewTime(at),
			})
		})
	}
	evicted("web-1", w.clock.Now().Add(-time.Minute)) // before
	w.sync("web")
	evicted("web-2", w.clock.Now())
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionBreakGlass, metav1.ConditionTrue, reasonUsed)
	w.expectEvents("Warning BreakGlassUsed")
	w.drop(pod("web-2", ""))
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionBreakGlass, metav1.ConditionTrue, reasonUsed)

	w.clock.SetTime(until)
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionBreakGlass, metav1.ConditionFalse, reasonEnded)
	w.expectEvents("Normal BreakGlassEnded")
	write("")
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionBreakGlass, metav1.ConditionFalse, reasonEnded)
	w.expectEvents()
}

// A useless budget has an event, and another one when it is corrected.
func TestEventsOfInvalidSpecs(t *testing.T) {
	w := running(t)
	spec := func(f func(*v1alpha1.TopologyDisruptionBudgetSpec)) {
		change(w, w.budget("web"), func(b *v1alpha1.TopologyDisruptionBudget) { f(&b.Spec); b.Generation++ })
	}
	spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.MinAvailable = s.MaxUnavailable })
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionValid, metav1.ConditionFalse, reasonInvalid)
	w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionFalse, reasonInvalid)
	w.expectEvents("Warning BudgetInvalid")
	spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) {
		s.MinAvailable, s.MaxUnavailable = s.MaxUnavailable, nil
		s.MinAvailable.IntVal = 2
	})
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionSatisfiable, metav1.ConditionFalse, "Blocked")
	w.expectEvents("Normal BudgetValid", "Warning BudgetNotSatisfiable")
	spec(func(s *v1alpha1.TopologyDisruptionBudgetSpec) { s.MinAvailable.IntVal = 1 })
	w.sync("web", status)
	w.expectEvents("Normal BudgetSatisfiable")
	for _, c := range w.budget("web").Status.Conditions {
		if c.ObservedGeneration != w.budget("web").Generation || c.Message == "" {
			t.Errorf("%+v is not of the generation %d, or says nothing", c, w.budget("web").Generation)
		}
	}
	w.drop(w.budget("web"))
	w.sync("web")
	if v := budgetsIn(w.r.views); len(v) != 0 {
		t.Errorf("%d budgets are remembered", len(v))
	}
}

// A budget that frees one zone after another is not blocked, however long that takes.
func TestBudgetWithAFreeZoneIsNotBlocked(t *testing.T) {
	b := perZone("web", 0)
	b.Spec.NodeSelectorTerm.MatchExpressions = append(b.Spec.NodeSelectorTerm.MatchExpressions, v1alpha1.NodeSelectorRequirement{
		Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"a"},
	})
	w := newWorld(t, append(aShop(), b)...)
	w.label(shop, marks)
	w.sync("web", status)
	w.expectEvents("Normal BudgetEnforced", "Warning OwnersDeleteDirectly")
	free := func(zone string) {
		change(w, w.budget("web"), func(b *v1alpha1.TopologyDisruptionBudget) {
			b.Spec.NodeSelectorTerm.MatchExpressions[1].Values = []string{zone}
			b.Generation++
		})
		w.sync("web", status)
	}
	for _, zone := range []string{"a", "b"} {
		free(zone)
		for condition, reason := range map[string]string{v1alpha1.ConditionSatisfiable: coverage.ReasonSatisfiable, v1alpha1.ConditionDisruptionAllowed: reasonDomainsFree} {
			if message := w.says("web", condition, metav1.ConditionTrue, reason); !strings.Contains(message, `Only pods of zone "`+zone+`" may be evicted now.`) {
				t.Errorf("the message of %s is %q", condition, message)
			}
		}
		w.clock.SetTime(w.clock.Now().Add(2 * time.Hour))
		w.sync("web")
		w.expectEvents()
		if since := blockedSince(w.budget("web")); !since.IsZero() {
			t.Errorf("it counts as blocked since %s", since)
		}
	}
	free("typo")
	w.says("web", v1alpha1.ConditionSatisfiable, metav1.ConditionFalse, coverage.ReasonBlocked)
	w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionFalse, reasonInsufficientPods)
	w.expectEvents("Warning BudgetNotSatisfiable")
}

// A budget without pods is not blocked.
func TestBudgetWithoutPodsIsNotBlocked(t *testing.T) {
	w := newWorld(t, namespace(shop), node("a"), perZone("web", 1))
	w.label(shop, marks)
	w.sync("web", status)
	w.says("web", v1alpha1.ConditionDisruptionAllowed, metav1.ConditionTrue, reasonNoPods)
}
