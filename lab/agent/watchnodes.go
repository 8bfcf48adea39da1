package agent

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/tools/cache"
)

// watchNodes watches all nodes until the context ends. When a lease is late, for instance
// because the API server paused, the control plane marks the node as not ready. Only the node
// itself can revert that.
func (a *agent) watchNodes(ctx context.Context) {
	list := cache.NewListWatchFromClient(a.client.CoreV1().RESTClient(), "nodes", metav1.NamespaceAll, fields.Everything())
	_, nodes := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.ToListWatcherWithWatchListSemantics(list, a.client), ObjectType: &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{AddFunc: a.nodeChanged, UpdateFunc: func(_, now any) { a.nodeChanged(now) }},
	})
	nodes.RunWithContext(ctx)
}

func (a *agent) nodeChanged(obj any) {
	object := obj.(*corev1.Node)
	n := a.node(object.Name)
	if n == nil || object.UID != n.uid() {
		return
	}
	for _, c := range object.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue {
			n.reportReady()
		}
	}
}
