package inspect

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/bools"
	"vicinity.dev/vicinity/internal/rollout"
)

// BudgetStatus is the status of a TopologyDisruptionBudget.
type BudgetStatus struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Current is false if the status is missing or older than the spec.
	Current   bool  `json:"current"`
	Expected  int32 `json:"expected"`
	Healthy   int32 `json:"healthy"`
	Desired   int32 `json:"desired"`
	Allowed   int32 `json:"allowed"`
	Disturbed int32 `json:"disturbedDomains"`
	// Admitted are pods that are about to be evicted.
	Admitted []string                `json:"admitted,omitempty"`
	Domains  []v1alpha1.DomainStatus `json:"domains"`
	// Blocks are the conditions with the wrong status, oldest first.
	Blocks []Block `json:"blocks,omitempty"`
}

// Block is a condition with the wrong status.
type Block struct {
	Condition string    `json:"condition"`
	Reason    string    `json:"reason"`
	Message   string    `json:"message"`
	Since     time.Time `json:"since"`
}

// Blocking reports whether no pod of the budget can be evicted.
func (b *BudgetStatus) Blocking() bool {
	return slices.ContainsFunc(b.Blocks, func(block Block) bool {
		return block.Condition == v1alpha1.ConditionDisruptionAllowed || block.Condition == v1alpha1.ConditionValid
	})
}

// BudgetStatusOf reads the status of a budget.
func BudgetStatusOf(tdb *v1alpha1.TopologyDisruptionBudget) BudgetStatus {
	s := &tdb.Status
	b := BudgetStatus{
		Namespace: tdb.Namespace, Name: tdb.Name, Current: s.ObservedGeneration == tdb.Generation && len(s.Conditions) > 0,
		Expected: s.ExpectedPods, Healthy: s.CurrentHealthy, Desired: s.DesiredHealthy, Allowed: s.DisruptionsAllowed, Disturbed: s.DisturbedDomains,
		Domains: append([]v1alpha1.DomainStatus{}, s.Domains...), Blocks: blocksOf(s.Conditions, v1alpha1.ConditionBreakGlass, v1alpha1.ConditionDeletesDirectly),
	}
	for i := range s.Reservations {
		b.Admitted = append(b.Admitted, s.Reservations[i].Pod)
	}
	return b
}

// blocksOf returns the conditions that are not True. Conditions of a type in wrong should be False instead.
func blocksOf(conditions []metav1.Condition, wrong ...string) []Block {
	var blocks []Block
	for i := range conditions {
		c := &conditions[i]
		wanted := metav1.ConditionTrue
		if slices.Contains(wrong, c.Type) {
			wanted = metav1.ConditionFalse
		}
		if c.Status != wanted {
			blocks = append(blocks, Block{c.Type, c.Reason, c.Message, c.LastTransitionTime.UTC()})
		}
	}
	slices.SortStableFunc(blocks, func(a, b Block) int { return a.Since.Compare(b.Since) })
	return blocks
}

// RolloutStatus is the status of a DomainRollout.
type RolloutStatus struct {
	Namespace   string                 `json:"namespace"`
	Name        string                 `json:"name"`
	Target      v1alpha1.RolloutTarget `json:"target"`
	TopologyKey string                 `json:"topologyKey"`
	Pods        int32                  `json:"pods"`
	Updated     int32                  `json:"updated"`
	Healthy     int32                  `json:"healthy"`
	// Current is false if the status is missing or older than the spec.
	Current bool `json:"current"`
	// Moving says that pods are replaced or a wave bakes.
	Moving  bool                         `json:"moving"`
	Failure string                       `json:"failure,omitempty"`
	Status  v1alpha1.DomainRolloutStatus `json:"status"`
	// Blocks are the conditions with the wrong status, oldest first.
	Blocks []Block `json:"blocks,omitempty"`
}

// RolloutStatusOf reads the status of a rollout.
func RolloutStatusOf(d *v1alpha1.DomainRollout) RolloutStatus {
	r := RolloutStatus{
		Namespace: d.Namespace, Name: d.Name, Target: d.Spec.TargetRef, TopologyKey: d.Spec.TopologyKey,
		Current: d.Status.ObservedGeneration == d.Generation && d.Status.Phase != "", Status: d.Status,
	}
	for i := range d.Status.Domains {
		domain := &d.Status.Domains[i]
		r.Pods, r.Updated, r.Healthy = r.Pods+domain.Pods, r.Updated+domain.Updated, r.Healthy+domain.Healthy
	}
	if f := d.Status.Failure; f != nil {
		words := rollout.Words{Namespace: d.Namespace, Name: d.Name, Key: d.Spec.TopologyKey}
		r.Failure = words.Failure(f)
	}
	for _, block := range blocksOf(d.Status.Conditions) {
		if block.Condition != v1alpha1.ConditionProgressing {
			r.Blocks = append(r.Blocks, block)
		}
	}
	r.Moving = slices.ContainsFunc(d.Status.Conditions, func(c metav1.Condition) bool {
		return c.Type == v1alpha1.ConditionProgressing && c.Status == metav1.ConditionTrue
	})
	return r
}

// CompareBudgets sorts blocking budgets first, then by namespace and name.
func CompareBudgets(a, b BudgetStatus) int {
	return cmp.Or(bools.Compare(b.Blocking(), a.Blocking()), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
}

// CompareRollouts sorts moving and failed rollouts first, then by namespace and name.
func CompareRollouts(a, b RolloutStatus) int {
	urgent := bools.Compare(b.Moving || b.Failure != "", a.Moving || a.Failure != "")
	return cmp.Or(urgent, strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name))
}
