// Package capacity gives clusters what package translate leaves to others: the language
// in which users write how much traffic comes from a zone, and a memory that goroutines
// can share.
package capacity

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/translate"
)

// How many capacities, and how many views of its nodes, a cluster remembers.
const (
	mostCapacities = 1000
	mostViews      = 32
)

// NewCluster reads the nodes of a cluster. It can be used concurrently.
func NewCluster(nodes []*corev1.Node) *translate.Cluster {
	return translate.NewCluster(nodes).With(translate.Tools{
		Evaluate:   Evaluate,
		Capacities: newMemory(mostCapacities),
		Nodes:      newMemory(mostViews),
	})
}

type memory struct {
	most int

	mu     sync.Mutex
	values map[any]any
}

func newMemory(most int) *memory {
	return &memory{most: most, values: map[any]any{}}
}

func (m *memory) Load(key any) (value any, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	value, known = m.values[key]
	return value, known
}

func (m *memory) Store(key, value any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.values) >= m.most {
		clear(m.values)
	}
	m.values[key] = value
}
