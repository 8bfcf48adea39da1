package convert

import (
	"errors"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// aws reads a ZoneDisruptionBudget of AWS' zone-aware controllers: so many pods may be down,
// all of them in one zone.
func (o *object) aws() error {
	dryRun := false
	if _, err := o.spec.take("dryRun", &dryRun, "true or false"); err != nil {
		return err
	}
	if dryRun {
		return errors.New("spec.dryRun: true has no equivalent: such a budget refuses nothing, and a TopologyDisruptionBudget would. " +
			"Set it to false to convert the budget; \"vicinity explain pod/NAME\" says what a budget would answer without evicting")
	}
	selector, err := o.spec.selector()
	if err != nil {
		return err
	}
	// An empty selector chooses no pod there.
	if selector != nil && !isEmpty(selector) {
		o.budget.Selector = selector
	}
	amount, err := o.spec.amount("maxUnavailable")
	switch {
	case err != nil:
		return err
	case amount == nil:
		return errors.New("spec.maxUnavailable is missing; it must be " + amountAllowed)
	}
	o.byZone()
	one := int32(1)
	o.budget.MaxUnavailableDomains = &one
	always := policyv1.AlwaysAllow
	o.budget.UnhealthyPodEvictionPolicy = &always
	if amount.Type == intstr.Int {
		o.budget.MaxUnavailable = amount
	} else {
		// There a percentage is one of all pods, though it bounds each zone. With one zone
		// disturbed at a time that is a bound of the total; here one of a domain would be a
		// percentage of its share.
		none := intstr.FromInt32(0)
		o.budget.MinAvailable = &none
		o.budget.MaxUnavailableTotal = amount
	}
	o.note(RefusesMore, "a pod that is missing, because it was evicted and its replacement does not exist yet or has no node, counts as down here")
	o.note(AllowsMore, "pods on nodes without the label %s are not covered here; there they are never evicted", o.zoneKey())
	return nil
}
