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

// eventOf is the event for a change of a condition, empty if there is nothing to tell. The condition before is empty if
// there was none.
func eventOf(was, now *metav1.Condition) (kind, reason string) {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	isTrue, known := now.Status == metav1.ConditionTrue, was.Status != ""
	switch now.Type {
	case v1alpha1.ConditionEnforced:
		if isTrue {
			return normal, eventEnforced
		}
		return warning, eventNotEnforced
	case v1alpha1.ConditionValid:
		switch {
		case !isTrue:
			return warning, eventInvalid
		case known:
			return normal, eventValid
		}
	case v1alpha1.ConditionSatisfiable:
		switch {
		case now.Status == metav1.ConditionFalse:
			return warning, eventNotSatisfiable
		case isTrue && was.Status == metav1.ConditionFalse:
			return normal, eventSatisfiable
		}
	case v1alpha1.ConditionDisruptionAllowed:
		switch {
		case now.Reason == reasonBlocked:
			return warning, eventBlocked
		case was.Reason == reasonBlocked:
			return normal, eventUnblocked
		}
	case v1alpha1.ConditionBreakGlass:
		switch {
		case now.Reason == reasonUsed:
			return warning, eventGlassUsed
		case isTrue:
			return warning, eventGlassOpened
		case now.Reason == reasonUnreadable:
			return warning, eventGlassUnreadable
		case was.Status == metav1.ConditionTrue:
			return normal, eventGlassEnded
		}
	case v1alpha1.ConditionDeletesDirectly:
		if isTrue {
			return warning, eventDeletesDirectly
		}
	case v1alpha1.ConditionProjected:
		switch {
		case now.Reason == reasonSpreadConstraints:
			return warning, eventProjectionHindering
		case isTrue:
			return normal, eventProjected
		case was.Status == metav1.ConditionTrue:
			return warning, eventProjectedNoMore
		}
	}
	return "", ""
}
