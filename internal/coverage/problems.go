package coverage

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

// Problems are the conditions Valid and Satisfiable of a budget, without times.
func Problems(w World, s disruption.State, m disruption.Measures) []metav1.Condition {
	valid := metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, ObservedGeneration: w.Budget.Generation, Reason: "Valid"}
	if s.Budget.Invalid != "" {
		valid.Status, valid.Reason, valid.Message = metav1.ConditionFalse, "Invalid", s.Budget.Invalid
	}
	satisfiable := metav1.Condition{Type: v1alpha1.ConditionSatisfiable, Status: metav1.ConditionTrue, ObservedGeneration: w.Budget.Generation, Reason: "Satisfiable"}
	if len(m.Blocked) > 0 {
		satisfiable.Status, satisfiable.Reason = metav1.ConditionFalse, "Blocked"
	}
	return []metav1.Condition{valid, satisfiable}
}
