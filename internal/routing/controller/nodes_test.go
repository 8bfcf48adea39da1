package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/intent"
)

func newQueue() queue {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
}

func drain(q queue) []string {
	var names []string
	for q.Len() > 0 {
		request, _ := q.Get()
		names = append(names, request.Name)
		q.Done(request)
	}
	slices.Sort(names)
	return names
}

// A change of nodes requeues routed Services only.
func TestNodesRequeueRoutedServices(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve), aService("none"), aSlice("none", 1, twelve))...)
	w.settle("web")
	w.settle("none")
	w.create(aNode("a-2", "a"))
	q := newQueue()
	if err := w.reconciler.nodes.refresh(t.Context(), q); err != nil {
		t.Fatal(err)
	}
	if got := drain(q); !slices.Equal(got, []string{"web"}) {
		t.Errorf("requeued %v", got)
	}
}

func (w *world) create(object client.Object) {
	w.t.Helper()
	if err := w.client.Create(context.Background(), object); err != nil {
		w.t.Fatal(err)
	}
}

// The regular status updates of a node do not wake the watcher.
func TestUnchangedNodesDoNotWake(t *testing.T) {
	before := aNode("a-1", "a")
	before.Labels[v1alpha1.LabelControlPlane] = ""
	for name, test := range map[string]struct {
		change func(*corev1.Node)
		want   bool
	}{
		"the time":      {func(n *corev1.Node) { n.Status.Conditions[0].LastHeartbeatTime = metav1.Now() }, false},
		"images":        {func(n *corev1.Node) { n.Status.Images = make([]corev1.ContainerImage, 3) }, false},
		"disk":          {func(n *corev1.Node) { n.Status.Allocatable["ephemeral-storage"] = resource.MustParse("1Gi") }, false},
		"an annotation": {func(n *corev1.Node) { n.Annotations = map[string]string{"a": "b"} }, false},
		"the same CPU":  {func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("4000m") }, false},
		"CPU":           {func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceCPU] = resource.MustParse("3") }, true},
		"memory":        {func(n *corev1.Node) { n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse("3Gi") }, true},
		"a label":       {func(n *corev1.Node) { n.Labels["a"] = "b" }, true},
		"readiness":     {func(n *corev1.Node) { n.Status.Conditions[0].Status = corev1.ConditionFalse }, true},
		"a taint that counts": {func(n *corev1.Node) {
			n.Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
		}, true},
		"another taint":       {func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "a", Effect: corev1.TaintEffectNoSchedule}} }, false},
		"no readiness at all": {func(n *corev1.Node) { n.Status.Conditions = nil }, true},
	} {
		after := before.DeepCopy()
		test.change(after)
		if same := sameNode(before, after); same == test.want {
			t.Errorf("%s: the same %t", name, same)
		}
	}
}

// A trimmed node has all fields that decisions read.
func TestTrimmedNodesMakeTheSameCluster(t *testing.T) {
	node := aNode("a-1", "a")
	node.Labels["example.com/rack"] = "r1"
	node.ManagedFields = make([]metav1.ManagedFieldsEntry, 3)
	node.Status.Images = make([]corev1.ContainerImage, 50)
	node.Status.Allocatable[corev1.ResourcePods] = resource.MustParse("110")
	node.Status.Allocatable["ephemeral-storage"] = resource.MustParse("1Gi")
	node.Status.Conditions = append([]corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}}, node.Status.Conditions...)
	object, err := trimNode(node.DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	trimmed := object.(*corev1.Node)
	if !sameNode(node, trimmed) || len(trimmed.Status.Conditions) != 1 || len(trimmed.Status.Images) != 0 || len(trimmed.ManagedFields) != 0 || len(trimmed.Status.Allocatable) != 2 {
		t.Errorf("trimmed to %+v", trimmed)
	}
	server := node.DeepCopy()
	server.Labels[v1alpha1.LabelControlPlane] = ""
	server.Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}, {Key: "a"}}
	kept, err := trimNode(server)
	if err != nil {
		t.Fatal(err)
	}
	if trimmed := kept.(*corev1.Node); len(trimmed.Spec.Taints) != 1 || intent.NewCluster([]*corev1.Node{trimmed}).Counted > 0 {
		t.Errorf("a server that takes no pods is trimmed to %+v", trimmed.Spec)
	}
	for _, capacity := range []intent.Capacity{{}, {Type: intent.CapacityCPU}} {
		if whole, trim := intent.NewCluster([]*corev1.Node{node}).Region(capacity, nil), intent.NewCluster([]*corev1.Node{trimmed}).Region(capacity, nil); fmt.Sprint(whole) != fmt.Sprint(trim) {
			t.Errorf("%v becomes %v", whole, trim)
		}
	}
}
