// Package capacity gives clusters of package intent an evaluator of capacity expressions, and a memory that goroutines
// can share.
package capacity

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/routing/intent"
)

// Sizes of the memory. Each view of the nodes is as large as the cluster, and each capacity may be an expression to
// compile. A single tenant can write many.
const (
	mostCapacities = 1000
	mostViews      = 32
)

// NewCluster reads the nodes of a cluster. It can be used concurrently.
func NewCluster(nodes []*corev1.Node) *intent.Cluster {
	return intent.NewCluster(nodes).With(tools())
}

func tools() intent.Tools {
	return intent.Tools{
		Evaluate: Evaluate, RememberCapacity: newMemory(mostCapacities).remember, RememberNodes: newMemory(mostViews).remember,
	}
}

type memory struct {
	most   int
	mu     sync.Mutex
	values map[any]any
}

func newMemory(most int) *memory { return &memory{most: most, values: map[any]any{}} }

// remember starts over when the memory is full.
func (m *memory) remember(key any, compute func() any) any {
	m.mu.Lock()
	value, known := m.values[key]
	m.mu.Unlock()
	if known {
		return value
	}
	value = compute() // it may call remember too
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.values) >= m.most {
		clear(m.values)
	}
	m.values[key] = value
	return value
}
