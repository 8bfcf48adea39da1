package budget

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// view is what was seen of a budget last.
type view struct {
	budget *v1alpha1.TopologyDisruptionBudget // as it is stored
	plan   plan
}

// memory has the views of all budgets, for metrics and the projection. The pods and nodes that
// they were made of are not kept.
type memory struct {
	mu    sync.Mutex
	views map[types.NamespacedName]*view
}

func newMemory() *memory { return &memory{views: map[types.NamespacedName]*view{}} }

func (m *memory) set(key types.NamespacedName, v *view) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.views[key] = v
}

func (m *memory) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.views, key)
}

// get is nil for a budget that was not seen yet.
func (m *memory) get(key types.NamespacedName) *view {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.views[key]
}

// all are the views, which are not changed once they are kept.
func (m *memory) all() []*view {
	m.mu.Lock()
	defer m.mu.Unlock()
	list := make([]*view, 0, len(m.views))
	for _, v := range m.views {
		list = append(list, v)
	}
	return list
}
