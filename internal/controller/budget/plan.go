package budget

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/coverage"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/reservation"
)

// plan is which PodDisruptionBudgets would say the same as a budget.
type plan struct {
	// unfit is why there are none.
	unfit verdict
	zones []zonePlan
	// spread are the workloads whose pods have to be spread by the scheduler.
	spread []string
}

// zonePlan has the numbers of a zone.
type zonePlan struct {
	zone    string
	desired int // how many pods must stay healthy
}

// planOf is the plan for a budget by what is known of it.
func planOf(r *reservation.Report, now time.Time) plan {
	spec := &r.Budget.Spec
	if not := complexity(spec); not != "" {
		return plan{unfit: verdict{reasonNotSimple, fmt.Sprintf("No PodDisruptionBudget can say the same: %s.", not)}}
	}
	switch b := &r.State.Budget; {
	case b.Invalid != "":
		return plan{unfit: verdict{reasonInvalid, "The spec cannot be followed."}}
	case now.Before(b.BreakGlass.Until):
		return plan{unfit: verdict{reasonGlassBroken, "A PodDisruptionBudget would refuse what the break glass admits."}}
	}
	if without, first := withoutZone(r); without > 0 {
		return plan{unfit: verdict{reasonPodsLackZone, fmt.Sprintf("Pods lack the label %s with the zone of their node, %d of them, %s among them: Kubernetes sets it when it binds a pod, since 1.35. Pods of before get it when they are made anew.", corev1.LabelTopologyZone, without, first)}}
	}
	p := plan{spread: spreadBy(r)}
	for _, d := range r.Measures.Domains {
		p.zones = append(p.zones, zonePlan{d.Domain, d.Desired})
	}
	return p
}

// complexity is what a spec has that a PodDisruptionBudget for each zone cannot say.
func complexity(spec *v1alpha1.TopologyDisruptionBudgetSpec) string {
	term := spec.NodeSelectorTerm
	switch {
	case spec.Selector == nil:
		return "spec.selector is not given"
	case term == nil || len(term.MatchFields) > 0 || len(term.MatchExpressions) != 1 ||
		term.MatchExpressions[0].Key != corev1.LabelTopologyZone || term.MatchExpressions[0].Operator != corev1.NodeSelectorOpExists:
		return "spec.nodeSelectorTerm is not the one expression " + corev1.LabelTopologyZone + " Exists"
	case spec.GroupBy != "":
		return "spec.groupBy is given"
	case spec.MaxUnavailableDomains != nil:
		return "spec.maxUnavailableDomains is given"
	case spec.MaxUnavailableTotal != nil:
		return "spec.maxUnavailableTotal is given"
	}
	return ""
}

// withoutZone counts the covered pods that do not have the zone of their node as a label.
func withoutZone(r *reservation.Report) (count int, first string) {
	labelled := map[string]string{}
	for _, pod := range r.World.Pods {
		labelled[string(pod.UID)] = pod.Labels[corev1.LabelTopologyZone]
	}
	for i := range r.State.Pods {
		pod := &r.State.Pods[i]
		if pod.Place != disruption.Covered || pod.Finished || labelled[pod.UID] == pod.Domain {
			continue
		}
		if count++; first == "" {
			first = pod.Name
		}
	}
	return count, first
}

// spreadBy are the workloads whose pods the scheduler must not place where they are not spread.
func spreadBy(r *reservation.Report) []string {
	selector := coverage.Selector(r.Budget)
	found := map[string]bool{}
	for i := range r.World.Workloads {
		w := &r.World.Workloads[i]
		if w.Template == nil || w.Kind == "ReplicaSet" && w.Controller != nil || !selector.Matches(labels.Set(w.Template.Labels)) {
			continue
		}
		if slices.ContainsFunc(w.Template.Spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
			return c.WhenUnsatisfiable == corev1.DoNotSchedule
		}) {
			found[w.ID()] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
