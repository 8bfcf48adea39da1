package translate

import (
	"math"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// A zone's share is divided among its nodes that count: by CPU where that is the
// capacity, and evenly where it is their number or an expression's.
func TestSharesOfNodes(t *testing.T) {
	node := func(name, zone, cpu string, labels ...string) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.Zone: zone}}}
		for _, label := range labels {
			n.Labels[label] = "x"
		}
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		return n
	}
	nodes := []*corev1.Node{
		node("b-1", "b", "4"), node("a-2", "a", "1", "web"), node("a-1", "a", "3", "web"), node("c-1", "c", "4", v1alpha1.LabelControlPlane),
	}
	nodes[3].Spec.Taints = []corev1.Taint{{Key: v1alpha1.LabelControlPlane, Effect: corev1.TaintEffectNoSchedule}}
	for _, test := range []struct {
		name     string
		capacity Capacity
		want     []float64 // of a-1, a-2, b-1, c-1
	}{
		{"nodes", Capacity{}, []float64{1.0 / 3, 1.0 / 3, 1.0 / 3, 0}},
		{"CPU", Capacity{Type: CapacityCPU}, []float64{3.0 / 8, 1.0 / 8, 1.0 / 2, 0}},
		{"expression", Capacity{Type: CapacityExpression, Expression: "cores"}, []float64{0.25, 0.25, 0.5, 0}},
		{"selected", Capacity{NodeSelector: "web"}, []float64{0.5, 0.5, 0, 0}},
		{"none", Capacity{NodeSelector: "none"}, []float64{0, 0, 0, 0}},
	} {
		got := NewCluster(nodes).With(Tools{Evaluate: byCores}).Nodes(test.capacity, []string{topology.Hostname, "web"})
		for i, name := range []string{"a-1", "a-2", "b-1", "c-1"} {
			if got[i].Name != name || got[i].Domains[0] != name || math.Abs(got[i].Share-test.want[i]) > 1e-9 {
				t.Errorf("%s: %+v, want %s with %g", test.name, got[i], name, test.want[i])
			}
		}
	}
}
