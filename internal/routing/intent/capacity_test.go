package intent

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// pool returns a ready node with size cores, GiB and pods, and with a label for its pool.
func pool(name, zone string, size int, of string) *corev1.Node {
	n := aNode(name, zone, "north", fmt.Sprint(size))
	n.Labels["pool"] = of
	n.Status.Allocatable[corev1.ResourceMemory] = resource.MustParse(fmt.Sprint(size, "Gi"))
	n.Status.Allocatable[corev1.ResourcePods] = resource.MustParse(fmt.Sprint(10 * size))
	return n
}

func pools() *Cluster {
	return NewCluster([]*corev1.Node{
		pool("a1", "a", 2, "web"), pool("a2", "a", 4, "batch"),
		pool("b1", "b", 8, "web"),
		pool("c1", "c", 1, "batch"),
		aNode("x1", "", "", "", "stray"),
	})
}

// capacitiesOf returns the capacities of zones as in "a=1 b=2".
func capacitiesOf(region allocate.Region) string {
	var words []string
	for _, zone := range region.Zones {
		words = append(words, fmt.Sprintf("%s=%g", zone.Name, zone.Capacity))
	}
	return strings.Join(words, " ")
}

// A cache lists nodes in any order. Capacities are compared bit by bit, so they must not depend on it.
func TestCapacityHasNoOrderOfNodes(t *testing.T) {
	var nodes []*corev1.Node
	for i, cpu := range []string{"3920m", "1930m", "7910m", "3920m", "1930m", "7910m", "3920m", "1930m", "7910m"} {
		nodes = append(nodes, aNode(fmt.Sprint("n", i), "a", "north", cpu))
	}
	cpu := Capacity{Type: CapacityCPU}
	bits := func() (bits []uint64) {
		cluster := NewCluster(nodes)
		for _, zone := range cluster.Region(cpu, nil).Zones {
			bits = append(bits, math.Float64bits(zone.Capacity))
		}
		for _, node := range cluster.Nodes(cpu, nil) {
			bits = append(bits, math.Float64bits(node.Share))
		}
		return bits
	}
	want := bits()
	for n := range nodes {
		nodes = append(nodes[1:], nodes[0])
		if got := bits(); !slices.Equal(got, want) {
			t.Errorf("rotated by %d: %x, want %x", n+1, got, want)
		}
	}
}

func TestCapacity(t *testing.T) {
	for _, test := range []struct {
		name     string
		capacity Capacity
		want     string
	}{
		{"nothing is nodes", Capacity{}, "a=2 b=1 c=1"},
		{"nodes", Capacity{Type: CapacityNodes}, "a=2 b=1 c=1"},
		{"cpu", Capacity{Type: CapacityCPU}, "a=6 b=8 c=1"},
		{"selected nodes", Capacity{Type: CapacityNodes, NodeSelector: "pool=web"}, "a=1 b=1 c=0"},
		{"cpu of selected nodes", Capacity{Type: CapacityCPU, NodeSelector: "pool in (batch)"}, "a=4 b=0 c=1"},
		{"no node is selected", Capacity{Type: CapacityCPU, NodeSelector: "pool=none"}, "a=0 b=0 c=0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := pools()
			if got := capacitiesOf(cluster.Region(test.capacity, nil)); got != test.want {
				t.Errorf("got %s, want %s", got, test.want)
			}
			if fault := cluster.Fault(test.capacity); fault != "" {
				t.Errorf("fault %q", fault)
			}
		})
	}
}

// Nodes without a zone or CPU are counted only if the capacity counts them.
func TestCapacityCountsNodesThatLackSomething(t *testing.T) {
	for _, test := range []struct {
		capacity              Capacity
		withoutZone, withoutC int
	}{
		{Capacity{Type: CapacityNodes}, 1, 0},
		{Capacity{Type: CapacityCPU}, 1, 1},
		{Capacity{Type: CapacityCPU, NodeSelector: "pool"}, 0, 0},
		{Capacity{Type: CapacityCPU, NodeSelector: "stray"}, 1, 1},
	} {
		region := pools().Region(test.capacity, nil)
		if region.NodesWithoutZone != test.withoutZone || region.NodesWithoutCapacity != test.withoutC {
			t.Errorf("%+v: %d without a zone and %d without capacity, want %d and %d", test.capacity,
				region.NodesWithoutZone, region.NodesWithoutCapacity, test.withoutZone, test.withoutC)
		}
	}
}

// byCores evaluates one expression: twice the CPU of each zone.
func byCores(expression string, zones []Zone) (map[string]float64, error) {
	if expression != "cores" {
		return nil, errors.New("it is unknown")
	}
	capacities := map[string]float64{}
	for _, zone := range zones {
		capacities[zone.Name] = 2 * zone.CPU
	}
	return capacities, nil
}

// An expression that fails is replaced by the number of nodes.
func TestCapacityByExpression(t *testing.T) {
	capacity := func(expression string) Capacity {
		return Capacity{Type: CapacityExpression, Expression: expression, NodeSelector: "pool=web"}
	}
	able := pools().With(Tools{Evaluate: byCores})
	for _, test := range []struct {
		cluster    *Cluster
		expression string
		want       string
		fault      string
	}{
		{able, "cores", "a=4 b=16 c=0", ""},
		{able, "bytes", "a=1 b=1 c=0", "capacity.expression: it is unknown; nodes are counted instead"},
		{pools(), "cores", "a=1 b=1 c=0", "capacity.expression: CEL expressions are not supported here; nodes are counted instead"},
	} {
		if got := capacitiesOf(test.cluster.Region(capacity(test.expression), nil)); got != test.want {
			t.Errorf("%s: got %s, want %s", test.expression, got, test.want)
		}
		if got := test.cluster.Fault(capacity(test.expression)); got != test.fault {
			t.Errorf("%s: fault %q, want %q", test.expression, got, test.fault)
		}
	}
}

// The counted nodes of a zone divide its share: by CPU if that is the capacity, and evenly otherwise.
func TestSharesOfNodes(t *testing.T) {
	nodes := []*corev1.Node{
		aNode("b-1", "b", "", "4"), aNode("a-2", "a", "", "1", "web"), aNode("a-1", "a", "", "3", "web"), controlPlaneNode("c-1", "c", "", "4", v1alpha1.LabelControlPlane),
	}
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
