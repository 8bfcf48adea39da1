package controller

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// While rollouts are off, waiting pods lose the gate, and keep the gates of other owners.
func TestWaitingPodsAreReleased(t *testing.T) {
	pod := func(name, node string, gates ...string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.PodSpec{NodeName: node}, Status: corev1.PodStatus{Phase: corev1.PodPending}}
		for _, gate := range gates {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: gate})
		}
		return p
	}
	const other = "example.com/quota"
	c := fake.NewClientBuilder().WithScheme(testScheme(t)).
		WithObjects(pod("held", "", v1alpha1.RolloutGate), pod("both", "", other, v1alpha1.RolloutGate), pod("foreign", "", other), pod("placed", "n1")).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&corev1.Pod{}, "status.phase", func(o client.Object) []string { return []string{string(o.(*corev1.Pod).Status.Phase)} }).
		Build()
	g := gates{reader: c, writer: c}
	for _, want := range []int{2, 0} {
		if released, err := g.release(t.Context()); err != nil || released != want {
			t.Fatalf("%d pods are released, want %d: %v", released, want, err)
		}
	}
	for name, want := range map[string]int{"held": 0, "both": 1, "foreign": 1, "placed": 0} {
		var p corev1.Pod
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "shop", Name: name}, &p); err != nil {
			t.Fatal(err)
		}
		if len(p.Spec.SchedulingGates) != want || want > 0 && p.Spec.SchedulingGates[0].Name != other {
			t.Errorf("pod %s has the gates %v", name, p.Spec.SchedulingGates)
		}
	}
}
