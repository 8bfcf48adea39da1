package convert

import (
	"errors"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// aws converts a ZoneDisruptionBudget of AWS' zone-aware controllers. It allows a number of pods to be down, all in one zone.
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
		return errors.New("spec.dryRun: true cannot be converted: such a budget refuses nothing, but a TopologyDisruptionBudget does. " +
			"Set it to false and convert again. To see what a budget would answer, run \"vicinity explain pod/NAME\"")
	case spec.MaxUnavailable == nil:
		return errors.New(`spec.maxUnavailable is missing; it must be a number from 0, or a percentage from "0%" to "100%"`)
	}
	// An empty selector of the original selects no pods.
	if s := spec.Selector; s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 {
		o.budget.Selector = s
	}
	o.byZone()
	o.budget.MaxUnavailableDomains = new(int32(1))
	o.budget.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
	if spec.MaxUnavailable.Type == intstr.Int {
		o.budget.MaxUnavailable = spec.MaxUnavailable
	} else {
		// The original takes the percentage of all pods, and applies it to each zone. With one disturbed zone at a time that limits the
		// total. maxUnavailable would be a percentage of the domain's pods.
		o.budget.MinAvailable = new(intstr.FromInt32(0))
		o.budget.MaxUnavailableTotal = spec.MaxUnavailable
	}
	o.note(RefusesMore, "here a pod that is missing or has no node yet also counts as down")
	o.note(AllowsMore, "the original refuses evictions from nodes without the label %s; this budget does not cover those pods", o.zoneKey())
	return nil
}
