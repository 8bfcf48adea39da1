package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/spread"
)

// blockedTime is how long the allowance of a domain must last, or be missing, before that counts. Each restart of a pod takes the
// allowance of its domain for some seconds, and the costs of all pods of the domain depend on it.
const blockedTime = 10 * time.Second

// blocked has the domains without allowance: the ones that count now, and the ones that may count soon.
type blocked struct {
	known   bool
	counts  string
	lasting shell.Lasting[string]
}

// settle makes domains count once they have stayed the same for long enough. The first ones count at once. It returns after how long
// others may count.
func (b *blocked) settle(domains []string, now time.Time) time.Duration {
	found := strings.Join(domains, "\n")
	left := b.lasting.Left(found, now, blockedTime)
	if !b.known || left == 0 {
		b.known, b.counts, left = true, found, 0
	}
	if found == b.counts {
		return 0
	}
	return left
}

func (b *blocked) has(domain string) bool {
	return slices.Contains(strings.Split(b.counts, "\n"), domain)
}

// block marks the pods whose domain has no allowance by a budget. It returns after how long to look again.
func (r *reconciler) block(ctx context.Context, n *notes, c *current, pods []spread.Pod, nodes map[string]*corev1.Node) (time.Duration, error) {
	if !r.options.Budgets {
		return 0, nil
	}
	var budgets v1alpha1.TopologyDisruptionBudgetList
	if err := r.client.List(ctx, &budgets, client.InNamespace(c.Namespace)); err != nil {
		return 0, fmt.Errorf("reading the TopologyDisruptionBudgets of %s: %w", c.Namespace, err)
	}
	domains := map[string][]string{} // of the pods, by name
	empty := map[string]bool{}
	for i := range budgets.Items {
		budget := &budgets.Items[i]
		read, term := coverage.BudgetOf(budget)
		if budget.DeletionTimestamp != nil || budget.Status.ObservedGeneration == 0 || read.BreakGlass.Until.After(r.clock.Now()) {
			continue
		}
		selector := coverage.Selector(budget)
		for _, pod := range c.pods {
			node := nodes[pod.Spec.NodeName]
			if node == nil || !selector.Matches(labels.Set(pod.Labels)) {
				continue
			}
			domain, covered := term.Domain(node.Labels)
			if !covered {
				continue
			}
			group := pod.Labels[budget.Spec.GroupBy]
			key := strings.Join([]string{budget.Name, group, domain}, " ")
			domains[pod.Name] = append(domains[pod.Name], key)
			empty[key] = !allows(&budget.Status, group, domain)
		}
	}
	var without []string
	for key := range empty {
		if empty[key] {
			without = append(without, key)
		}
	}
	slices.Sort(without)
	wait := n.blocked.settle(without, r.clock.Now())
	for i := range pods {
		pods[i].Blocked = slices.ContainsFunc(domains[pods[i].Name], n.blocked.has)
	}
	return wait, nil
}

// allows reports whether a budget allows an eviction in a domain. A status lists only the domains that allow the least. An unlisted
// domain allows an eviction if the budget allows any.
func allows(status *v1alpha1.TopologyDisruptionBudgetStatus, group, domain string) bool {
	for i := range status.Domains {
		if d := &status.Domains[i]; d.Group == group && d.Domain == domain {
			return d.Allowed > 0
		}
	}
	return status.DisruptionsAllowed > 0
}
