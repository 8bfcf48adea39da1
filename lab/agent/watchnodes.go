package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// watchNodes follows what others say of the agent's nodes. The control plane calls a
// node unwell whose lease it missed, be it for a pause of the API; only the node itself
// can take that back.
func (a *agent) watchNodes(ctx context.Context) {
	selector := fields.Everything()
	if a.Node != "" {
		selector = fields.OneTermEqualSelector(metav1.ObjectNameField, a.Node)
	}
	list := cache.NewFilteredListWatchFromClient(a.client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll,
		func(o *metav1.ListOptions) { o.FieldSelector = selector.String() })
	cache.NewReflectorWithOptions(cache.ToListWatcherWithWatchListSemantics(list, a.client), &corev1.Node{}, nodeStore{a},
		cache.ReflectorOptions{Name: "nodes"}).RunWithContext(ctx)
}

// nodeStore looks at nodes as they pass, and keeps none.
type nodeStore struct{ agent *agent }

// Add looks at a node.
func (s nodeStore) Add(obj any) error {
	object := obj.(*corev1.Node)
	n := s.agent.node(object.Name)
	if n == nil || object.UID != n.uid() {
		return nil
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			n.proclaim()
		}
	}
	return nil
}

// Update looks at a node.
func (s nodeStore) Update(obj any) error { return s.Add(obj) }

// Delete does nothing: a node whose object is deleted registers when its agent starts
// anew, as with a kubelet.
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
