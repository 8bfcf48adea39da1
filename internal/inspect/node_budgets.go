package inspect

import (
	"cmp"
	"slices"
	"strings"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/coverage"
)

// NodeBudget is a TopologyDisruptionBudget as it is about a node.
type NodeBudget struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Keys are the labels of nodes that make its domains. There are none if its nodes are one domain.
	Keys []string `json:"keys,omitempty"`
	// Domain is that of the node.
	Domain string `json:"domain"`
	// States are those of the domain by group, as the status has them: one, unless the budget has groups.
	States []v1alpha1.DomainStatus `json:"states"`
	// Current is false if the status is older than the spec, or if there is none.
	Current bool `json:"current"`
	// Blocking says that no pod of the budget can be evicted, wherever it is.
	Blocking bool `json:"blocking"`
}

// allowed is how many more pods of the domain may be evicted, of the group that has the least.
func (b *NodeBudget) allowed() int32 {
	least := int32(0)
	for i := range b.States {
		if i == 0 || b.States[i].Allowed < least {
			least = b.States[i].Allowed
		}
	}
	return least
}

// NodeBudgets are the budgets whose status has the domain of a node with these labels. Those that allow
// the least come first.
func NodeBudgets(budgets []*v1alpha1.TopologyDisruptionBudget, node map[string]string) []NodeBudget {
	list := []NodeBudget{}
	for _, tdb := range budgets {
		_, term := coverage.BudgetOf(tdb)
		domain, covered := term.Domain(node)
		if !covered {
			continue
		}
		status := BudgetStatusOf(tdb)
		b := NodeBudget{Namespace: tdb.Namespace, Name: tdb.Name, Keys: term.Keys(), Domain: domain, Current: status.Current, Blocking: status.Blocking()}
		for i := range status.Domains {
			if status.Domains[i].Domain == domain {
				b.States = append(b.States, status.Domains[i])
			}
		}
		if len(b.States) > 0 {
			list = append(list, b)
		}
	}
	slices.SortFunc(list, func(a, b NodeBudget) int {
		return cmp.Or(cmp.Compare(a.allowed(), b.allowed()), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return list
}
