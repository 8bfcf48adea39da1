package controller

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// blockedAfter is how long a budget must allow no eviction to count as blocked.
const blockedAfter = 15 * time.Minute

// Reasons of the condition DisruptionAllowed. The first two are those of a PodDisruptionBudget.
const (
	reasonSufficientPods   = "SufficientPods"
	reasonInsufficientPods = "InsufficientPods"
	reasonNoPods           = "NoPods"
	reasonDomainsFree      = "DomainsFree"
	reasonInvalid          = coverage.ReasonInvalid
	reasonGlassBroken      = "BreakGlass"
	reasonBlocked          = "Blocked"
)

// Reasons of the condition BreakGlass.
const (
	reasonOpen       = "Open"
	reasonUsed       = "Used"
	reasonEnded      = "Ended"
	reasonUnreadable = "Unreadable"
)

// Reasons of the condition DeletesDirectly.
const (
	reasonRollingUpdate = "RollingUpdate"
	reasonPodsKept      = "PodsKept"
)

// verdict is the reason and the message of a condition.
type verdict struct{ reason, message string }

func (v verdict) condition(name string, holds bool) metav1.Condition {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: name, Status: status, Reason: v.reason, Message: v.message}
}

// judge finds the conditions of a budget.
type judge struct {
	report    *reservation.Report
	enforced  verdict
	projected *verdict // nil if unknown or not requested
	now       time.Time
}

// conditions returns the conditions to store. A condition without a transition keeps its time.
func (j *judge) conditions() []metav1.Condition {
	found := []metav1.Condition{j.enforced.condition(v1alpha1.ConditionEnforced, j.enforced.reason == reasonEnforced)}
	found = append(found, coverage.Problems(j.report.World, j.report.State, j.report.Measures)...)
	found = append(found, j.breakGlass()...)
	found = append(found, j.deletesDirectly())
	if j.projected != nil {
		found = append(found, j.projected.condition(v1alpha1.ConditionProjected, j.projected.isProjected()))
	}
	for i := range found {
		found[i] = j.stamped(found[i], j.now)
	}
	return append(found, j.allowed())
}

func (j *judge) before(name string) *metav1.Condition {
	return meta.FindStatusCondition(j.report.Budget.Status.Conditions, name)
}

func (j *judge) stamped(condition metav1.Condition, now time.Time) metav1.Condition {
	condition.ObservedGeneration = j.report.Budget.Generation
	return shell.Transition(j.before(condition.Type), condition, now)
}

// glass returns the break-glass of the budget, and whether it is in effect.
func (j *judge) glass() (glass disruption.BreakGlass, open bool) {
	glass = j.report.State.Budget.BreakGlass
	return glass, j.now.Before(glass.Until)
}

// breakGlass returns the condition of the annotation. A budget that never had the annotation gets none.
func (j *judge) breakGlass() []metav1.Condition {
	before := j.before(v1alpha1.ConditionBreakGlass)
	glass, open := j.glass()
	_, err := coverage.BreakGlassOf(j.report.Budget.Annotations)
	found := metav1.Condition{Type: v1alpha1.ConditionBreakGlass, Status: metav1.ConditionFalse}
	switch {
	case open:
		found.Status, found.Reason = metav1.ConditionTrue, reasonOpen
		found.Message = fmt.Sprintf("Every eviction is admitted until %s: %s.", glass.Until.UTC().Format(time.RFC3339), strings.TrimSuffix(plaintext.Of(glass.Reason), "."))
		if before != nil && before.Status == metav1.ConditionTrue && (before.Reason == reasonUsed || j.isEvictedSince(before.LastTransitionTime.Time)) {
			found.Reason = reasonUsed
		}
	case err != nil:
		found.Reason, found.Message = reasonUnreadable, fmt.Sprintf("The annotation %s has no effect: %s.", v1alpha1.AnnotationBreakGlass, err)
	case !glass.Until.IsZero():
		found.Reason = reasonEnded
		found.Message = fmt.Sprintf("Break-glass ended at %s, so the budget holds again. Remove the annotation %s.", glass.Until.UTC().Format(time.RFC3339), v1alpha1.AnnotationBreakGlass)
	case before != nil:
		found.Reason, found.Message = reasonEnded, "The annotation was removed, so the budget holds again."
	default:
		return nil
	}
	return []metav1.Condition{found}
}

// isEvictedSince reports whether a pod of the budget was evicted since a time. It reads pods, because break-glass makes no reservations.
func (j *judge) isEvictedSince(begin time.Time) bool {
	selector := coverage.Selector(j.report.Budget)
	return slices.ContainsFunc(j.report.World.Pods, func(pod *corev1.Pod) bool {
		return selector.Matches(labels.Set(pod.Labels)) && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.DisruptionTarget && c.Reason == reasonOfEvictions && !c.LastTransitionTime.Time.Before(begin)
		})
	})
}

// reasonOfEvictions is the reason of the condition DisruptionTarget of an evicted pod.
const reasonOfEvictions = "EvictionByEvictionAPI"

// lastAdmitted returns when the latest reservation was made.
func (j *judge) lastAdmitted() time.Time {
	var last time.Time
	for i := range j.report.Budget.Status.Reservations {
		if made := j.report.Budget.Status.Reservations[i].Expires.Add(-disruption.ReservationTime); made.After(last) {
			last = made
		}
	}
	return last
}

// allowed returns the condition DisruptionAllowed, with the time since when no eviction is allowed. A later reservation moves that time:
// it shows that an eviction was allowed in between, too briefly to be seen.
func (j *judge) allowed() metav1.Condition {
	m := &j.report.Measures
	found := metav1.Condition{Type: v1alpha1.ConditionDisruptionAllowed, Status: metav1.ConditionTrue}
	switch _, open := j.glass(); {
	case open:
		found.Reason, found.Message = reasonGlassBroken, "Every eviction is admitted for a while."
	case j.report.State.Budget.Invalid != "":
		found.Status, found.Reason = metav1.ConditionFalse, reasonInvalid
		found.Message = "The spec is invalid, so no pod that the selector matches may be evicted. The condition Valid says what to correct."
	case m.Expected == 0:
		found.Reason, found.Message = reasonNoPods, "The budget expects no pods."
	case len(j.report.State.Budget.Free) > 0:
		found.Reason, found.Message = reasonDomainsFree, j.report.State.Budget.OnlyFree()
	case m.Allowed > 0:
		found.Reason, found.Message = reasonSufficientPods, "Pods may be evicted."
	default:
		found.Status, found.Reason, found.Message = metav1.ConditionFalse, reasonInsufficientPods, j.shortage()
	}
	before := j.before(found.Type)
	if found.Status == metav1.ConditionTrue || before == nil || before.Status == metav1.ConditionTrue {
		return j.stamped(found, j.now)
	}
	found = j.stamped(found, j.now)
	if last := j.lastAdmitted(); last.After(found.LastTransitionTime.Time) {
		found.LastTransitionTime = metav1.NewTime(last.Truncate(time.Second))
	}
	if found.Reason == reasonInsufficientPods && !j.now.Before(found.LastTransitionTime.Add(blockedAfter)) {
		found.Reason = reasonBlocked
	}
	return found
}

// blockedAt returns when a budget without allowance becomes blocked, zero if it already is or allows an eviction.
func blockedAt(conditions []metav1.Condition) time.Time {
	c := meta.FindStatusCondition(conditions, v1alpha1.ConditionDisruptionAllowed)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != reasonInsufficientPods {
		return time.Time{}
	}
	return c.LastTransitionTime.Add(blockedAfter)
}

// shortage says why no eviction is allowed, by the answer for one of the pods.
func (j *judge) shortage() string {
	tally := disruption.NewTally(&j.report.State, j.now)
	for i := range j.report.State.Pods {
		if d := tally.Decide(j.report.State.Pods[i].UID); !d.Allowed {
			return fmt.Sprintf("No healthy pod may be evicted now. The answer for pod %s is: %s", d.Pod, d.Brief())
		}
	}
	return "No pod of the budget is healthy."
}

// deletesDirectly returns a condition that names workloads whose rollouts do not ask the budget.
func (j *judge) deletesDirectly() metav1.Condition {
	refs := coverage.DirectDeleters(j.report.World)
	if len(refs) == 0 {
		return metav1.Condition{
			Type: v1alpha1.ConditionDeletesDirectly, Status: metav1.ConditionFalse, Reason: reasonPodsKept,
			Message: "No owner's rollout deletes a pod without an eviction before its replacement is available.",
		}
	}
	names, kinds := make([]string, len(refs)), map[string]bool{}
	for i, ref := range refs {
		names[i] = ref.ID()
		kinds[ref.Kind] = true
	}
	var ways []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		ways = append(ways, fmt.Sprintf("for a %s %s", kind, coverage.WayOut(kind)))
	}
	found := metav1.Condition{Type: v1alpha1.ConditionDeletesDirectly}
	found.Status, found.Reason = metav1.ConditionTrue, reasonRollingUpdate
	found.Message = fmt.Sprintf("Evictions ask this budget. Rollouts and scale-downs of %s do not: they delete pods. To stay within it: %s; scale down in steps while disruptionsAllowed is above 0. \"vicinity rollout adopt -n %s\" prints how to update them by domain.",
		plaintext.FirstOf(names, 5), strings.Join(ways, "; "), j.report.World.Budget.Namespace)
	return found
}

// Reasons of events of budgets.
const (
	eventEnforced            = "BudgetEnforced"
	eventNotEnforced         = "BudgetNotEnforced"
	eventValid               = "BudgetValid"
	eventInvalid             = "BudgetInvalid"
	eventSatisfiable         = "BudgetSatisfiable"
	eventNotSatisfiable      = "BudgetNotSatisfiable"
	eventBlocked             = "BudgetBlocked"
	eventUnblocked           = "BudgetUnblocked"
	eventGlassOpened         = "BreakGlassOpened"
	eventGlassUsed           = "BreakGlassUsed"
	eventGlassEnded          = "BreakGlassEnded"
	eventGlassUnreadable     = "BreakGlassUnreadable"
	eventDeletesDirectly     = "OwnersDeleteDirectly"
	eventLabelPutBack        = "LabelPutBack"
	eventProjected           = "BudgetProjected"
	eventProjectedNoMore     = "BudgetProjectedNoMore"
	eventProjectionHindering = "ProjectionMayHinderAutoscaler"
)

type announcement struct{ kind, reason, message string }

// transitions returns the events for the changes between two sets of conditions.
func transitions(before, after []metav1.Condition) []announcement {
	var found []announcement
	for i := range after {
		now := &after[i]
		was := meta.FindStatusCondition(before, now.Type)
		if was == nil {
			was = &metav1.Condition{}
		}
		if was.Status == now.Status && was.Reason == now.Reason {
			continue
		}
		if kind, reason := eventOf(was, now); reason != "" {
			found = append(found, announcement{kind, reason, now.Message})
		}
	}
	return found
}

const (
	normal  = corev1.EventTypeNormal
	warning = corev1.EventTypeWarning

	yes = metav1.ConditionTrue
	no  = metav1.ConditionFalse
)

// eventTable has the events of changed conditions. The first matching row counts. An empty cell matches anything.
var eventTable = []struct {
	condition            string
	now, was             metav1.ConditionStatus
	nowReason, wasReason string
	kind, event          string
}{
	{condition: v1alpha1.ConditionEnforced, now: yes, kind: normal, event: eventEnforced},
	{condition: v1alpha1.ConditionEnforced, now: no, kind: warning, event: eventNotEnforced},
	{condition: v1alpha1.ConditionValid, now: no, kind: warning, event: eventInvalid},
	{condition: v1alpha1.ConditionValid, now: yes, was: no, kind: normal, event: eventValid},
	{condition: v1alpha1.ConditionSatisfiable, now: no, kind: warning, event: eventNotSatisfiable},
	{condition: v1alpha1.ConditionSatisfiable, now: yes, was: no, kind: normal, event: eventSatisfiable},
	{condition: v1alpha1.ConditionDisruptionAllowed, nowReason: reasonBlocked, kind: warning, event: eventBlocked},
	{condition: v1alpha1.ConditionDisruptionAllowed, wasReason: reasonBlocked, kind: normal, event: eventUnblocked},
	{condition: v1alpha1.ConditionBreakGlass, nowReason: reasonUsed, kind: warning, event: eventGlassUsed},
	{condition: v1alpha1.ConditionBreakGlass, now: yes, kind: warning, event: eventGlassOpened},
	{condition: v1alpha1.ConditionBreakGlass, nowReason: reasonUnreadable, kind: warning, event: eventGlassUnreadable},
	{condition: v1alpha1.ConditionBreakGlass, was: yes, kind: normal, event: eventGlassEnded},
	{condition: v1alpha1.ConditionDeletesDirectly, now: yes, kind: warning, event: eventDeletesDirectly},
	{condition: v1alpha1.ConditionProjected, nowReason: reasonSpreadConstraints, kind: warning, event: eventProjectionHindering},
	{condition: v1alpha1.ConditionProjected, now: yes, kind: normal, event: eventProjected},
	{condition: v1alpha1.ConditionProjected, was: yes, kind: warning, event: eventProjectedNoMore},
}

// eventOf returns the event for a change of a condition, empty without one. A new condition has an empty one before.
func eventOf(was, now *metav1.Condition) (kind, event string) {
	for i := range eventTable {
		row := &eventTable[i]
		if row.condition == now.Type && (row.now == "" || row.now == now.Status) && (row.was == "" || row.was == was.Status) &&
			(row.nowReason == "" || row.nowReason == now.Reason) && (row.wasReason == "" || row.wasReason == was.Reason) {
			return row.kind, row.event
		}
	}
	return "", ""
}
