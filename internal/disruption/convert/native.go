package convert

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// native reads a PodDisruptionBudget. Its meaning is that of a budget with one domain.
func (o *object) native() error {
	spec, err := specOf[policyv1.PodDisruptionBudgetSpec](o)
	if err != nil {
		return err
	}
	o.budget.Selector, o.budget.UnhealthyPodEvictionPolicy = spec.Selector, spec.UnhealthyPodEvictionPolicy
	o.budget.MinAvailable, o.budget.MaxUnavailable = spec.MinAvailable, spec.MaxUnavailable
	if spec.MinAvailable == nil && spec.MaxUnavailable == nil {
		// Kubernetes takes such a budget, and lets no ready pod be evicted by it.
		o.budget.MaxUnavailable = new(intstr.FromInt32(0))
	}
	return nil
}

// emptySelectorKey is in the selector that policy/v1beta1 has for all pods.
const emptySelectorKey = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// nativeBeta reads a PodDisruptionBudget of the version before, in which an empty selector
// chooses no pod.
func (o *object) nativeBeta() error {
	if err := o.native(); err != nil || o.budget.Selector == nil {
		return err
	}
	selector := o.budget.Selector
	switch {
	case isEmpty(selector):
		o.budget.Selector = nil
	case len(selector.MatchLabels) == 0 && len(selector.MatchExpressions) == 1 &&
		selector.MatchExpressions[0].Key == emptySelectorKey && selector.MatchExpressions[0].Operator == metav1.LabelSelectorOpDoesNotExist:
		o.budget.Selector = &metav1.LabelSelector{}
	}
	return nil
}
