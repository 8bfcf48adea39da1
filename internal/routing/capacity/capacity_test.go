package capacity

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// pool returns a ready node with size cores, GiB and pods, and with a label for its pool.
func pool(name, zone string, size int, of string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: "north", "pool": of,
		}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}},
			Allocatable: corev1.ResourceList{
				corev1.ResourceCPU:    resource.MustParse(fmt.Sprint(size)),
				corev1.ResourceMemory: resource.MustParse(fmt.Sprint(size, "Gi")),
				corev1.ResourcePods:   resource.MustParse(fmt.Sprint(10 * size)),
			},
		},
	}
}

func pools() *intent.Cluster {
	return NewCluster([]*corev1.Node{
		pool("a1", "a", 2, "web"), pool("a2", "a", 4, "batch"),
		pool("b1", "b", 8, "web"),
		pool("c1", "c", 1, "batch"),
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

func TestExpressions(t *testing.T) {
	for _, test := range []struct {
		name     string
		capacity intent.Capacity
		want     string
	}{
		{"all fields", intent.Capacity{Type: intent.CapacityExpression, Expression: "zone.cpu + 100.0 * zone.nodes + zone.memory / 1073741824.0 * 1000.0 + zone.pods * 1000.0"}, "a=66206 b=88108 c=11101"},
		{"names", intent.Capacity{Type: intent.CapacityExpression, Expression: "zone.name == 'a' && zone.region == 'north' ? 5 : 7"}, "a=5 b=7 c=7"},
		{"unsigned", intent.Capacity{Type: intent.CapacityExpression, Expression: "3u"}, "a=3 b=3 c=3"},
		{"functions", intent.Capacity{Type: intent.CapacityExpression, Expression: "math.least(zone.cpu, 4.0)"}, "a=4 b=4 c=1"},
		{"of selected nodes", intent.Capacity{Type: intent.CapacityExpression, Expression: "zone.cpu + 1.0", NodeSelector: "pool=web"}, "a=3 b=9 c=0"},
		{"zero", intent.Capacity{Type: intent.CapacityExpression, Expression: "0.0"}, "a=0 b=0 c=0"},
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

// An expression that fails is replaced by the number of nodes.
func TestFallsBackToNodes(t *testing.T) {
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
			capacity := intent.Capacity{Type: intent.CapacityExpression, Expression: expression}
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

// nested returns an expression with nested loops over a list, depth levels deep.
func nested(list string, depth int) string {
	body := "1"
	for i := range depth {
		body = fmt.Sprintf("size(%s.map(x%d, %s))", list, i, body)
	}
	return body
}

// An expression that passes Check fails only for some zones.
func TestCheck(t *testing.T) {
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
		if err := Check(expression); (err == nil) != fine {
			t.Errorf("%s: %v", expression, err)
		}
	}
}

func TestMemoryIsLimited(t *testing.T) {
	m := newMemory(3)
	for i := range 100 {
		computed := m.remember(i, func() any { return i })
		again := m.remember(i, func() any { return -1 })
		if computed != i || again != i || len(m.values) > 3 {
			t.Fatalf("%d values, of %d %v, then %v", len(m.values), i, computed, again)
		}
	}
}
