package scaledown

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/requester"
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
	if n := w.r.memory.misplaced(); n != 3 {
		t.Errorf("%d pods are misplaced", n)
	}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[workload]())
	defer queue.ShutDown()
	handler := w.r.nodeHandler()
	for i := range 3 {
		node := &corev1.Node{}
		change(w, node, fmt.Sprintf("c%d", i+1), func(n *corev1.Node) { n.Labels = nil })
		before := node.DeepCopy()
		before.Labels = map[string]string{zones: "c"}
		handler.Update(t.Context(), updated{ObjectOld: before, ObjectNew: node}, queue)
	}
	w.sync(web)
	w.sync(web)
	w.lists(1)
	if n := w.r.memory.misplaced(); n != 2 {
		t.Errorf("without nodes in zone c %d pods are misplaced", n)
	}
}

// Workloads whose repairs are denied share what was read of nodes for a while.
func TestDeniedRepairsReadNodesSeldom(t *testing.T) {
	w := skewed(t, v1alpha1.AnnotationRepairSpread, "true")
	w.outcome = requester.Denied
	w.sync(web)
	w.pass(quietTime)
	w.lists(1)
	for range 8 {
		w.sync(web)
		w.pass(repairAgain)
	}
	if len(w.requests) != 8 {
		t.Errorf("evictor was asked for %q", w.requests)
	}
	w.lists(2)
}

// sharedNodes hands nodes out as a cache does that does not copy them.
type sharedNodes struct {
	client.Client
	nodes []corev1.Node
}

func (s *sharedNodes) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	if l, ok := list.(*corev1.NodeList); ok {
		l.Items = append([]corev1.Node(nil), s.nodes...)
		return nil
	}
	return s.Client.List(ctx, list, options...)
}

// BenchmarkDomains finds the domains of a workload among 5,000 nodes, as each sync does.
func BenchmarkDomains(b *testing.B) {
	w := newWorld(b)
	w.deploy(6, v1alpha1.AnnotationKeepSpread, zones)
	w.pods("web-1", "a1x", "a2x", "b1x", "b2x", "c1x", "c2x")
	shared := &sharedNodes{Client: w.client}
	for i := range 5000 {
		shared.nodes = append(shared.nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("node-%d", i), Labels: map[string]string{zones: string("abc"[i%3])},
		}})
	}
	w.r.nodes.cached = shared
	c, err := w.r.read(b.Context(), web)
	if err != nil {
		b.Fatal(err)
	}
	n := w.r.memory.note(web)
	b.ReportAllocs()
	for b.Loop() {
		if found, err := w.r.nodes.domainsOf(b.Context(), &n.domains, c); err != nil || len(found) != 3 {
			b.Fatal(found, err)
		}
	}
}
