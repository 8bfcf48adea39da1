package convert

import (
	policyv1 "k8s.io/api/policy/v1"
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
