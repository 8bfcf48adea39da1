package convert

import (
	"errors"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// aws reads a ZoneDisruptionBudget of AWS' zone-aware controllers: so many pods may be down,
// all of them in one zone.
func (o *object) aws() error {
	spec, err := specOf[struct {
		DryRun         bool                  `json:"dryRun"`
		Selector       *metav1.LabelSelector `json:"selector"`
		MaxUnavailable *intstr.IntOrString   `json:"maxUnavailable"`
	}](o)
	switch {
	case err != nil:
		return err
	case spec.DryRun:
		return errors.New("spec.dryRun: true has no equivalent: such a budget refuses nothing, and a TopologyDisruptionBudget would. " +
			"Set it to false to convert the budget; \"vicinity explain pod/NAME\" says what a budget would answer without evicting")
	case spec.MaxUnavailable == nil:
		return errors.New(`spec.maxUnavailable is missing; it must be a number from 0, or a percentage from "0%" to "100%"`)
	}
	// An empty selector chooses no pod there.
	if spec.Selector != nil && !isEmpty(spec.Selector) {
		o.budget.Selector = spec.Selector
	}
	o.byZone()
	o.budget.MaxUnavailableDomains = new(int32(1))
	o.budget.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	if spec.MaxUnavailable.Type == intstr.Int {
		o.budget.MaxUnavailable = spec.MaxUnavailable
	} else {
		// There a percentage is one of all pods, though it bounds each zone. With one zone
		// disturbed at a time that is a bound of the total; here one of a domain would be a
		// percentage of its share.
		o.budget.MinAvailable = new(intstr.FromInt32(0))
		o.budget.MaxUnavailableTotal = spec.MaxUnavailable
	}
	o.note(RefusesMore, "a pod that is missing, because it was evicted and its replacement does not exist yet or has no node, counts as down here")
	o.note(AllowsMore, "pods on nodes without the label %s are not covered here; there they are never evicted", o.zoneKey())
	return nil
}
