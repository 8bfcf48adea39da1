package doctor

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// checkBudgets checks TopologyDisruptionBudgets, by the findings of the controller and by specs that never allow an
// eviction.
func (e *examination) checkBudgets() {
	templates := e.templates()
	for _, budget := range e.Budgets {
		object := objectOf("TopologyDisruptionBudget", budget)
		if e.isOff(ValueDisruption) {
			e.checkPart(ValueDisruption, object, "asks to limit evictions")
			continue // its status is out of date
		}
		next := "kubectl describe tdb " + budget.Name + object.at()
		current := budget.Status.ObservedGeneration == budget.Generation
		conditionIs := func(kind string, status metav1.ConditionStatus) (message, reason string, is bool) {
			c := meta.FindStatusCondition(budget.Status.Conditions, kind)
			if c == nil || c.Status != status || !current {
				return "", "", false
			}
			return sentence(c.Message), c.Reason, true
		}
		if message, _, is := conditionIs(v1alpha1.ConditionValid, metav1.ConditionFalse); is {
			e.add(budgetInvalid, object, fmt.Sprintf("%s: %s.", object, message), next)
			continue
		}
		if message, _, is := conditionIs(v1alpha1.ConditionEnforced, metav1.ConditionFalse); is && e.isInstalled() {
			e.add(budgetNotEnforced, object, fmt.Sprintf("%s: %s.", object, message), next)
		}
		if message, _, is := conditionIs(v1alpha1.ConditionBreakGlass, metav1.ConditionTrue); is {
			e.add(budgetGlassBroken, object, fmt.Sprintf("%s: %s.", object, message), next)
		}
		message, reason, is := conditionIs(v1alpha1.ConditionSatisfiable, metav1.ConditionFalse)
		switch never := e.neverAllows(budget); {
		case is && reason == coverage.ReasonBlocked:
			e.add(budgetBlocks, object, fmt.Sprintf("%s: %s.", object, message), next)
		case never != "":
			e.add(budgetBlocks, object, fmt.Sprintf("%s: %s.", object, never), next)
		case is && reason == coverage.ReasonNoNodes:
			e.add(budgetCoversNothing, object, fmt.Sprintf("%s: %s.", object, message), next)
		case is && reason == coverage.ReasonNodeWithoutKey:
			e.add(budgetLeavesOut, object, fmt.Sprintf("%s: %s.", object, message), next)
		case current && budget.Status.ObservedGeneration > 0 && budget.Status.ExpectedPods == 0 && e.isForNothing(budget.Spec.Selector, templates[budget.Namespace]):
			e.add(budgetCoversNothing, object, fmt.Sprintf("The selector of %s matches no pod, and no Deployment or StatefulSet either.", object), next)
		}
	}
}

// neverAllows returns the field of a budget that allows no eviction, whatever pods there are. It is empty for most budgets, and for
// budgets that free one domain after another.
func (e *examination) neverAllows(budget *v1alpha1.TopologyDisruptionBudget) string {
	spec := &budget.Spec
	_, term := coverage.BudgetOf(budget)
	isFreeing := !term.All() && !e.knows(SourceNodes) || len(term.LeftOut(slices.Values(e.Nodes))) > 0
	switch {
	case isNothing(spec.MaxUnavailable) && isFreeing:
		return ""
	case isNothing(spec.MaxUnavailable):
		return "spec.maxUnavailable is 0"
	case isNothing(spec.MaxUnavailableTotal):
		return "spec.maxUnavailableTotal is 0"
	case spec.MaxUnavailableDomains != nil && *spec.MaxUnavailableDomains == 0:
		return "spec.maxUnavailableDomains is 0"
	case spec.MinAvailable != nil && spec.MinAvailable.Type == intstr.String && spec.MinAvailable.StrVal == "100%":
		return "spec.minAvailable is 100%"
	}
	return ""
}

func isNothing(amount *intstr.IntOrString) bool {
	return amount != nil && (amount.Type == intstr.Int && amount.IntVal == 0 || amount.Type == intstr.String && amount.StrVal == "0%")
}

// isForNothing reports whether a selector that matches no pod matches no workload either. A workload that is scaled to
// zero is no mistake.
func (e *examination) isForNothing(selector *metav1.LabelSelector, templates []template) bool {
	if !e.knows(SourceWorkloads, SourceStatefulSets) {
		return false
	}
	matches, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !slices.ContainsFunc(templates, func(t template) bool { return matches.Matches(labels.Set(t.labels)) })
}

func (e *examination) checkPDBs() {
	templates := e.templates()
	covering := map[Object][]string{} // names of PodDisruptionBudgets, by workload
	for _, pdb := range e.PDBs {
		object := objectOf("PodDisruptionBudget", pdb)
		next := "kubectl describe pdb " + pdb.Name + object.at()
		s := &pdb.Status
		failure := e.syncFailure(pdb)
		if failure != "" {
			e.add(pdbSyncFailed, object, fmt.Sprintf("Kubernetes cannot compute %s: %s.", object, failure), next)
		}
		if failure == "" && s.ObservedGeneration == pdb.Generation {
			switch {
			case s.ExpectedPods == 0 && s.CurrentHealthy == 0:
				if e.isForNothing(pdb.Spec.Selector, templates[pdb.Namespace]) {
					e.add(pdbCoversNothing, object, fmt.Sprintf("The selector of %s matches no pod, and no Deployment or StatefulSet either.", object), next)
				}
			case s.DisruptionsAllowed == 0 && s.CurrentHealthy >= s.ExpectedPods && s.DesiredHealthy >= max(s.ExpectedPods, wantedPods(pdb.Spec.Selector, templates[pdb.Namespace])):
				e.add(pdbBlocks, object, fmt.Sprintf("%s allows no eviction: %d of %s must be healthy, and all are.", object, s.DesiredHealthy, plaintext.Plural(int(s.ExpectedPods), "pod")), next)
			}
		}
		matches, err := metav1.LabelSelectorAsSelector(pdb.Spec.Selector)
		if err != nil || isProjected(pdb) {
			continue // a TopologyDisruptionBudget has one for each zone
		}
		for _, t := range templates[pdb.Namespace] {
			if t.replicas > 0 && matches.Matches(labels.Set(t.labels)) {
				covering[t.object] = append(covering[t.object], pdb.Name)
			}
		}
	}
	for object, names := range covering {
		if len(names) > 1 {
			slices.Sort(names)
			e.add(pdbsOverlap, object, fmt.Sprintf("The pods of %s are under %s: %s.", object, plaintext.Plural(len(names), "PodDisruptionBudget"), strings.Join(names, ", ")),
				"kubectl get pdb"+object.at())
		}
	}
}

// syncFailure returns why Kubernetes cannot compute a PodDisruptionBudget, empty if it can. A failure for a moment,
// while pods and their owners change, does not count. Kubernetes then keeps the observed generation.
func (e *examination) syncFailure(pdb *policyv1.PodDisruptionBudget) string {
	c := meta.FindStatusCondition(pdb.Status.Conditions, policyv1.DisruptionAllowedCondition)
	if c == nil || c.Status != metav1.ConditionFalse || c.Reason != policyv1.SyncFailedReason || e.now().Sub(c.LastTransitionTime.Time) < settling {
		return ""
	}
	return cmp.Or(sentence(c.Message), "it does not say why")
}

// wantedPods counts the wanted pods of the workloads that a selector matches. A rollout may have removed some for a
// moment.
func wantedPods(selector *metav1.LabelSelector, templates []template) (sum int32) {
	matches, err := metav1.LabelSelectorAsSelector(selector)
	for _, t := range templates {
		if err == nil && matches.Matches(labels.Set(t.labels)) {
			sum += t.replicas
		}
	}
	return sum
}

func isProjected(pdb *policyv1.PodDisruptionBudget) bool {
	return pdb.Labels[v1alpha1.LabelManagedBy] == v1alpha1.ManagedByController
}
