package scaledown

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
)

// lists is how often all nodes were read since the last look.
func (w *world) lists(want int) {
	w.t.Helper()
	if w.nodeLists != want {
		w.t.Errorf("nodes were read %d times, want %d", w.nodeLists, want)
	}
	w.nodeLists = 0
}

// Nodes are read again when they change, not in each sync.
func TestNodesAreReadWhenTheyChange(t *testing.T) {
	w := skewed(t)
	for range 5 {
		w.sync(web)
	}
	w.lists(1)
	if n := w.r.misplaced(); n != 3 {
		t.Errorf("%d pods are misplaced", n)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[workload]())
	defer queue.ShutDown()
	for i := range 3 {
		node := &corev1.Node{}
		change(w, node, fmt.Sprintf("c%d", i+1), func(n *corev1.Node) { n.Labels = nil })
		w.r.nodeChanged(t.Context(), node, queue)
	}
	w.sync(web)
	w.sync(web)
	w.lists(1)
	if n := w.r.misplaced(); n != 2 {
		t.Errorf("without nodes in zone c %d pods are misplaced", n)
	}
}
