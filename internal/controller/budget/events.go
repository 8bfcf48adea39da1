package budget

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

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

// announcement is an event to write.
type announcement struct{ kind, reason, message string }

// transitions are the events for the changes from some conditions to others.
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

// eventTable has the events of changed conditions. The first row that matches counts; an empty cell matches anything.
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

// eventOf is the event for a change of a condition, empty if there is nothing to tell. The condition before is empty if
// there was none.
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
