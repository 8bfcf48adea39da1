package controller

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// view is the last known state of a budget.
type view struct {
	budget    *v1alpha1.TopologyDisruptionBudget // as stored
	projected *verdict                           // nil before the first sync of its PodDisruptionBudgets
}

// memory has the views of all budgets, without their pods and nodes.
type memory struct {
	mu    sync.Mutex
	views map[types.NamespacedName]view
}

func newMemory() *memory { return &memory{views: map[types.NamespacedName]view{}} }

func (m *memory) set(key types.NamespacedName, budget *v1alpha1.TopologyDisruptionBudget) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.views[key] = view{budget, m.views[key].projected}
}

// setProjected stores the verdict about the projection of a budget, and reports whether it changed.
func (m *memory) setProjected(key types.NamespacedName, projected *verdict) (changed bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.views[key]
	m.views[key] = view{before.budget, projected}
	return projected != nil && (before.projected == nil || *before.projected != *projected)
}

func (m *memory) projected(key types.NamespacedName) *verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views[key].projected
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.views, key)
}

// budget returns nil before the first sync.
func (m *memory) budget(key types.NamespacedName) *v1alpha1.TopologyDisruptionBudget {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views[key].budget
}

// budgets returns all budgets, which the caller must not change.
func (m *memory) budgets() []*v1alpha1.TopologyDisruptionBudget {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*v1alpha1.TopologyDisruptionBudget, 0, len(m.views))
	for _, v := range m.views {
		list = append(list, v.budget)
	}
	return list
}
