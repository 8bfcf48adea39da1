// Package capacity gives clusters what package translate leaves to others: the language
// in which users write how much traffic comes from a zone, and a memory that goroutines
// can share.
package capacity

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/routing/intent"
)

// mostRemembered is how many capacities, and views of its nodes, a cluster remembers. Each view is as
// large as the cluster.
const mostRemembered = 64

// NewCluster reads the nodes of a cluster. It can be used concurrently.
func NewCluster(nodes []*corev1.Node) *intent.Cluster {
	m := &memory{values: map[any]any{}}
	return intent.NewCluster(nodes).With(intent.Tools{Evaluate: Evaluate, Remember: m.remember})
}

type memory struct {
	mu     sync.Mutex
	values map[any]any
}

// remember starts over when the memory is full.
func (m *memory) remember(key any, compute func() any) any {
	m.mu.Lock()
	value, known := m.values[key]
	m.mu.Unlock()
	if known {
		return value
	}
	value = compute() // which may remember something else
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.values) >= mostRemembered {
		clear(m.values)
	}
	m.values[key] = value
	return value
}
