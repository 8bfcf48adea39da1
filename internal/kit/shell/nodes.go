package shell

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RecentNodes reads whether nodes take pods, which the manager's cache drops. Callers share a reading for a while.
type RecentNodes struct {
	Live  client.Reader
	Clock clock.PassiveClock
	// Cached says that the API server may answer from its watch cache.
	Cached bool
	// Trust is how long a reading counts. Timeout bounds it, because other callers wait for it.
	Trust, Timeout time.Duration

	mu    sync.Mutex // held for a whole reading
	read  time.Time
	nodes []corev1.Node
}

// List returns the names, labels, taints and cordons of all nodes. The caller must not change them.
func (r *RecentNodes) List(ctx context.Context) ([]corev1.Node, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.Clock.Now()
	if !r.read.IsZero() && now.Sub(r.read) < r.Trust {
		return r.nodes, nil
	}
	ctx, cancel := context.WithTimeout(ctx, r.Timeout)
	defer cancel()
	var list corev1.NodeList
	options := &client.ListOptions{}
	if r.Cached {
		options.Raw = &metav1.ListOptions{ResourceVersion: "0"}
	}
	if err := r.Live.List(ctx, &list, options); err != nil {
		return nil, fmt.Errorf("reading nodes: %w", err)
	}
	r.read, r.nodes = now, make([]corev1.Node, len(list.Items))
	for i := range list.Items {
		node := &list.Items[i]
		r.nodes[i] = corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels},
			Spec:       corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, Taints: node.Spec.Taints},
		}
	}
	return r.nodes, nil
}
