package translate

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// pool makes a ready node of a zone with so many cores, GiB and pods, labelled
// pool=NAME.
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

// capacitiesOf are the zones' capacities as in "a=1 b=2".
func capacitiesOf(region allocate.Region) string {
	var words []string
	for _, zone := range region.Zones {
		words = append(words, fmt.Sprintf("%s=%g", zone.Name, zone.Capacity))
	}
	return strings.Join(words, " ")
}

// A cache lists nodes in any order. What is compared bit by bit must not depend on it.
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
		{"all fields", Capacity{Type: CapacityExpression, Expression: "zone.cpu + 100.0 * zone.nodes + zone.memory / 1073741824.0 * 1000.0 + zone.pods * 1000.0"}, "a=66206 b=88108 c=11101"},
		{"names", Capacity{Type: CapacityExpression, Expression: "zone.name == 'a' && zone.region == 'north' ? 5 : 7"}, "a=5 b=7 c=7"},
		{"unsigned", Capacity{Type: CapacityExpression, Expression: "3u"}, "a=3 b=3 c=3"},
		{"functions", Capacity{Type: CapacityExpression, Expression: "math.least(zone.cpu, 4.0)"}, "a=4 b=4 c=1"},
		{"of selected nodes", Capacity{Type: CapacityExpression, Expression: "zone.cpu + 1.0", NodeSelector: "pool=web"}, "a=3 b=9 c=0"},
		{"zero", Capacity{Type: CapacityExpression, Expression: "0.0"}, "a=0 b=0 c=0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := pools()
			for range 2 { // the second time from memory
				if got := capacitiesOf(cluster.Region(test.capacity, nil)); got != test.want {
					t.Errorf("got %s, want %s", got, test.want)
				}
				if fault := cluster.Fault(test.capacity); fault != "" {
					t.Errorf("fault %q", fault)
				}
			}
		})
	}
}

// Auto minds nodes that lack something, of those that count.
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

// An expression that fails where it is used is as if nodes were counted.
func TestCapacityFallsBackToNodes(t *testing.T) {
	for expression, want := range map[string]string{
		"0.0 - zone.cpu":                    `zone "a": the result is -6; it must be from 0 to 1e+15`,
		"0.0 / 0.0":                         `zone "a": the result is NaN; it must be from 0 to 1e+15`,
		"zone.cpu / 0.0":                    `zone "a": the result is +Inf; it must be from 0 to 1e+15`,
		"zone.cpu * 1e300":                  `zone "a": the result is 6e+300; it must be from 0 to 1e+15`,
		"zone.name == 'b' ? -1 : 1":         `zone "b": the result is -1; it must be from 0 to 1e+15`,
		"1 / (zone.name == 'c' ? 0 : 1)":    `zone "c": division by zero`,
		"zone.cpus":                         "column 5: undefined field 'cpus'",
		"zone.cpu * 2":                      "column 10: found no matching overload for '_*_' applied to '(double, int)'; fields of zone are decimal, so write 2.0 rather than 2",
		"zone.name":                         "it gives a string; it must give a number",
		"dyn(zone.cpu)":                     "it gives a dyn; it must give a number",
		"zone.cpu +":                        "column 11: Syntax error: ",
		"zone":                              "it gives a zone; it must give a number",
		"node.cpu":                          "column 1: undeclared reference to 'node' (in container '')",
		"":                                  "it is empty",
		strings.Repeat("1+", 600) + "1":     "it has 1201 characters; at most 1024 are allowed",
		"double(zone.name)":                 `zone "a": type conversion error`,
		nested("[1,2,3,4,5,6,7,8,9,10]", 4): "it may cost ",
	} {
		t.Run(expression[:min(len(expression), 40)], func(t *testing.T) {
			cluster := pools()
			capacity := Capacity{Type: CapacityExpression, Expression: expression}
			if got := capacitiesOf(cluster.Region(capacity, nil)); got != "a=2 b=1 c=1" {
				t.Errorf("got %s, want the number of nodes", got)
			}
			fault := cluster.Fault(capacity)
			if !strings.HasPrefix(fault, "capacity.expression: "+want) || !strings.HasSuffix(fault, "; nodes are counted instead") || strings.Contains(fault, "\n") {
				t.Errorf("fault %q\nwant %q", fault, want)
			}
		})
	}
}

// nested is an expression that goes through a list within itself so many times.
func nested(list string, depth int) string {
	body := "1"
	for i := range depth {
		body = fmt.Sprintf("size(%s.map(x%d, %s))", list, i, body)
	}
	return body
}

// What admission lets pass fails where it is used only for what zones are like.
func TestCheckExpression(t *testing.T) {
	for expression, fine := range map[string]bool{
		"zone.cpu + 2.0 * zone.nodes":  true,
		"1":                            true,
		"zone.name == 'a' ? 1.0 : 2.0": true,
		"double(zone.name)":            true, // for all that is known
		"zone.name.matches('^a.*') || zone.region.contains('north') ? 1 : 2": true, // names are short
		"zone.cpu + 2 * zone.nodes":  false,
		"zone":                       false,
		"true":                       false,
		"":                           false,
		"zone.cpu; zone.cpu":         false,
		nested("[1,2,3]", 3):         true,
		nested("[1,2,3,4,5,6,7]", 6): false,
	} {
		if err := CheckExpression(expression); (err == nil) != fine {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

// A cluster is shared by all that plan at the same time.
func TestCapacityIsSafeForConcurrentUse(t *testing.T) {
	cluster := pools()
	var wait sync.WaitGroup
	for i := range 16 {
		wait.Go(func() {
			capacity := Capacity{Type: CapacityExpression, Expression: fmt.Sprintf("%d.0 * zone.nodes", i%4)}
			want := fmt.Sprintf("a=%d b=%d c=%d", i%4*2, i%4, i%4)
			if got := capacitiesOf(cluster.Region(capacity, nil)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	wait.Wait()
}

func TestClusterPlaces(t *testing.T) {
	cluster := NewCluster([]*corev1.Node{
		aNode("b1", "b", "", "1"), aNode("a2", "a", "", "1"), aNode("a1", "a", "", "1"), aNode("x", "", "", "1"),
		ofMasters("m", "m", "", "1", v1alpha1.LabelControlPlane), silent(aNode("s", "s", "", "1")),
	})
	if got := strings.Join(cluster.Zones(), " "); got != "a b m s" {
		t.Errorf("zones %s, want those of all nodes", got)
	}
	if got := cluster.Labels("m")[corev1.LabelTopologyZone]; got != "m" {
		t.Errorf("node m has the zone %q", got)
	}
	if got := cluster.Labels("gone"); got != nil {
		t.Errorf("a node that is not there has labels: %v", got)
	}
}

func BenchmarkExpression(b *testing.B) {
	zones := []Zone{{Name: "a", CPU: 1, Nodes: 1}, {Name: "b", CPU: 2, Nodes: 2}, {Name: "c", CPU: 3, Nodes: 3}}
	for b.Loop() {
		if _, err := evaluate("zone.cpu + 2.0 * zone.nodes", zones); err != nil {
			b.Fatal(err)
		}
	}
}
