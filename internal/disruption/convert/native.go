package convert

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// native converts a PodDisruptionBudget. It means the same as a budget with one domain.
func (o *object) native() error {
	spec, err := specOf[policyv1.PodDisruptionBudgetSpec](o)
	if err != nil {
		return err
	}
	o.budget.Selector, o.budget.UnhealthyPodEvictionPolicy = spec.Selector, spec.UnhealthyPodEvictionPolicy
	o.budget.MinAvailable, o.budget.MaxUnavailable = spec.MinAvailable, spec.MaxUnavailable
	if spec.MinAvailable == nil && spec.MaxUnavailable == nil {
		// Kubernetes accepts such a budget. It admits no eviction of a ready pod.
		o.budget.MaxUnavailable = new(intstr.FromInt32(0))
	}
	return nil
}

// emptySelectorKey is the key that stands for all pods in selectors of policy/v1beta1.
const emptySelectorKey = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"

// nativeBeta converts a PodDisruptionBudget of policy/v1beta1, where an empty selector selects no pods.
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
