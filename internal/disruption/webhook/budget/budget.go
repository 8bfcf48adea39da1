// Package budget is the admission webhook for TopologyDisruptionBudgets. It refuses errors that the
// schema cannot find, such as selectors with labels that no pod can have. It warns of probable mistakes: fields without effect,
// numbers that never allow an eviction, and rollouts that bypass the budget. It does not refuse errors that are already
// stored: such a budget admits no eviction, and the condition Valid says why.
//
// # How it is installed
//
//	rules:          CREATE and UPDATE of topologydisruptionbudgets, vicinity.dev, v1alpha1,
//	                scope Namespaced
//	failurePolicy:  Ignore
//	timeoutSeconds: 2
//	sideEffects:    None
package budget

import (
	"context"
	"fmt"
	"reflect"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/admission"
)

// Path is where the webhook is served.
const Path = "/validate-topologydisruptionbudget"

// longGlass is how long break-glass may last without a warning.
const longGlass = 24 * time.Hour

// worldTimeout bounds the read of the objects of a budget.
const worldTimeout = 500 * time.Millisecond

type worlds interface {
	World(ctx context.Context, budget *v1alpha1.TopologyDisruptionBudget) (coverage.World, error)
}

// Options are what the webhook depends on.
type Options struct {
	// Worlds reads pods, nodes and owners. Without it there are no warnings about them.
	Worlds worlds
	// Own is the controller's namespace, whose evictions are never checked.
	Own string
	// Clock defaults to the real clock.
	Clock clock.PassiveClock
	// Metrics are those of all webhooks of the process.
	Metrics *admission.Metrics
}

// Register has a manager serve the webhook.
func Register(mgr manager.Manager, o Options) {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	admission.Register(mgr, Path, admission.OfWrites(judge{o}.judge), admission.Options{
		Webhook: "topologydisruptionbudget", OnFailure: admission.FailOpen, Metrics: o.Metrics,
	})
}

type judge struct{ Options }

func (j judge) judge(ctx context.Context, write admission.Write[v1alpha1.TopologyDisruptionBudget]) (admission.Verdict, error) {
	budget, stored := write.Object.DeepCopy(), write.Stored
	if budget.DeletionTimestamp != nil {
		return admission.Verdict{}, nil
	}
	budget.Namespace = write.Namespace
	var verdict admission.Verdict
	sameSpec := stored != nil && reflect.DeepEqual(budget.Spec, stored.Spec)
	if !sameSpec {
		verdict.Faults = newFaults(&budget.Spec, stored)
	}
	if len(verdict.Faults) > 0 {
		return verdict, nil
	}
	const glass = v1alpha1.AnnotationBreakGlass
	if stored == nil || budget.Annotations[glass] != stored.Annotations[glass] {
		verdict.Warnings = append(verdict.Warnings, glassWarnings(budget, j.Clock.Now())...)
	}
	if sameSpec {
		return verdict, nil
	}
	verdict.Warnings = append(verdict.Warnings, j.placeWarnings(budget)...)
	verdict.Warnings = append(verdict.Warnings, specWarnings(&budget.Spec)...)
	world, err := j.world(ctx, budget)
	state := coverage.StateOf(world)
	if state.Budget.Invalid != "" {
		return verdict, nil // the stored budget had the errors already
	}
	for _, found := range coverage.Findings(world, state, disruption.Measure(&state, j.Clock.Now())) {
		verdict.Warnings = append(verdict.Warnings, found.Message)
	}
	verdict.Warnings = append(verdict.Warnings, rolloutWarnings(world)...)
	return verdict, err
}

// newFaults returns the faults of a spec that the stored spec does not have.
func newFaults(spec *v1alpha1.TopologyDisruptionBudgetSpec, stored *v1alpha1.TopologyDisruptionBudget) []string {
	known := map[string]bool{}
	if stored != nil {
		for _, fault := range coverage.Faults(&stored.Spec) {
			known[fault.Error()] = true
		}
	}
	var faults []string
	for _, fault := range coverage.Faults(spec) {
		if !known[fault.Error()] {
			faults = append(faults, fault.Error())
		}
	}
	return faults
}

// world reads the objects of a budget. On failure it has only the budget.
func (j judge) world(ctx context.Context, budget *v1alpha1.TopologyDisruptionBudget) (coverage.World, error) {
	unknown := coverage.World{Budget: budget}
	if j.Worlds == nil {
		return unknown, nil
	}
	ctx, cancel := context.WithTimeout(ctx, worldTimeout)
	defer cancel()
	world, err := j.Worlds.World(ctx, budget)
	if err != nil {
		return unknown, fmt.Errorf("reading the objects of the budget: %w", err)
	}
	return world, nil
}

func glassWarnings(budget *v1alpha1.TopologyDisruptionBudget, now time.Time) []string {
	glass, err := coverage.BreakGlassOf(budget.Annotations)
	switch {
	case err != nil:
		return []string{fmt.Sprintf("annotation %s has no effect: %v", v1alpha1.AnnotationBreakGlass, err)}
	case glass.Until.IsZero():
		return nil
	case !now.Before(glass.Until):
		return []string{fmt.Sprintf("annotation %s has no effect: it ended at %s", v1alpha1.AnnotationBreakGlass, glass.Until.Format(time.RFC3339))}
	case glass.Until.Sub(now) > longGlass:
		return []string{fmt.Sprintf("annotation %s admits every eviction for more than a day, until %s", v1alpha1.AnnotationBreakGlass, glass.Until.Format(time.RFC3339))}
	}
	return nil
}

// placeWarnings are about the namespace of the budget.
func (j judge) placeWarnings(budget *v1alpha1.TopologyDisruptionBudget) []string {
	switch budget.Namespace {
	case metav1.NamespaceSystem:
		return []string{"budgets are not enforced in " + metav1.NamespaceSystem + ": evictions there must not depend on Vicinity"}
	case j.Own:
		return []string{"budgets are not enforced in " + j.Own + ", Vicinity's own namespace: it must be possible to evict Vicinity itself"}
	}
	return nil
}

func specWarnings(spec *v1alpha1.TopologyDisruptionBudgetSpec) (warnings []string) {
	switch {
	case spec.Selector == nil:
		warnings = append(warnings, "spec.selector is missing: the budget covers no pod")
	case len(spec.Selector.MatchLabels) == 0 && len(spec.Selector.MatchExpressions) == 0:
		warnings = append(warnings, "spec.selector is empty: the budget covers all pods of the namespace, including those of Jobs")
	}
	if spec.SettleTime != nil && spec.MaxUnavailableDomains == nil {
		warnings = append(warnings, "spec.settleTime has no effect without spec.maxUnavailableDomains")
	}
	return warnings
}

// rolloutWarnings are about workloads whose rollouts do not ask the budget.
func rolloutWarnings(world coverage.World) (warnings []string) {
	const most = 5
	refs := coverage.DirectDeleters(world)
	for _, ref := range refs[:min(len(refs), most)] {
		warnings = append(warnings, fmt.Sprintf("%s deletes pods without asking the budget when its template changes; %s", ref.ID(), coverage.WayOut(ref.Kind)))
	}
	if len(refs) > most {
		warnings = append(warnings, fmt.Sprintf("%d more workloads delete pods without asking the budget when their templates change", len(refs)-most))
	}
	return warnings
}
