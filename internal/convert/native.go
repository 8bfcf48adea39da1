package convert

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// native reads a PodDisruptionBudget. Its meaning is that of a budget with one domain.
func (o *object) native() error {
	var err error
	if o.budget.Selector, err = o.spec.selector(); err != nil {
		return err
	}
	if o.budget.MinAvailable, err = o.spec.amount("minAvailable"); err != nil {
		return err
	}
	raw := o.spec.values["maxUnavailable"]
	if o.budget.MaxUnavailable, err = o.spec.amount("maxUnavailable"); err != nil {
		return err
	}
	switch {
	case o.budget.MinAvailable != nil && o.budget.MaxUnavailable != nil:
		return o.spec.refused("maxUnavailable", raw, "left out beside minAvailable, as Kubernetes wants it")
	case o.budget.MinAvailable == nil && o.budget.MaxUnavailable == nil:
		// Kubernetes takes such a budget, and lets no ready pod be evicted by it.
		none := intstr.FromInt32(0)
		o.budget.MaxUnavailable = &none
	}
	return o.unhealthy()
}

// unhealthy reads when pods that are not ready may be evicted.
func (o *object) unhealthy() error {
	const name, allowed = "unhealthyPodEvictionPolicy", "IfHealthyBudget or AlwaysAllow"
	raw := o.spec.values[name]
	var policy policyv1.UnhealthyPodEvictionPolicyType
	given, err := o.spec.take(name, &policy, allowed)
	switch {
	case err != nil || !given:
		return err
	case policy != policyv1.IfHealthyBudget && policy != policyv1.AlwaysAllow:
		return o.spec.refused(name, raw, allowed)
	}
	o.budget.UnhealthyPodEvictionPolicy = &policy
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
