package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// watchNodes watches the agent's nodes until the context ends. When a lease is late, for
// instance because the API server paused, the control plane marks a node as not ready, and
// only the node itself can revert that.
func (a *agent) watchNodes(ctx context.Context) {
	selector := fields.Everything()
	list := cache.NewFilteredListWatchFromClient(a.client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = selector.String() })
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(list, a.client), &corev1.Node{}, nodeStore{a},
		cache.ReflectorOptions{Name: "nodes"}).RunWithContext(ctx)
}

type nodeStore struct{ agent *agent }

// Add reports a node as ready that is not.
func (s nodeStore) Add(obj any) error {
	object := obj.(*corev1.Node)
	n := s.agent.node(object.Name)
	if n == nil || object.UID != n.uid() {
		return nil
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			n.reportReady()
		}
	}
	return nil
}

// Update does the same.
func (s nodeStore) Update(obj any) error { return s.Add(obj) }

// Delete does nothing: as with a kubelet, a node whose object was deleted registers when
// its agent restarts.
func (s nodeStore) Delete(any) error { return nil }

// Replace looks at all nodes.
func (s nodeStore) Replace(objs []any, _ string) error {
	for _, obj := range objs {
		if err := s.Add(obj); err != nil {
			return err
		}
	}
	return nil
}

// Resync does nothing.
func (s nodeStore) Resync() error { return nil }
