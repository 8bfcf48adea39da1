package intent

import (
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// aNode makes a ready node. An empty zone, region or CPU is left out.
func aNode(name, zone, region, cpu string, labels ...string) *corev1.Node {
	n := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
			{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse},
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue},
		}},
	}
	if zone != "" {
		n.Labels["topology.kubernetes.io/zone"] = zone
	}
	if region != "" {
		n.Labels["topology.kubernetes.io/region"] = region
	}
	if cpu != "" {
		n.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
	for _, label := range labels {
		n.Labels[label] = ""
	}
	return n
}

// tainted keeps pods off the node.
func tainted(n *corev1.Node, effect corev1.TaintEffect, keys ...string) *corev1.Node {
	for _, key := range keys {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
	}
	return n
}

// controlPlaneNode returns a node of the control plane that takes no other pods.
func controlPlaneNode(name, zone, region, cpu, label string) *corev1.Node {
	return tainted(aNode(name, zone, region, cpu, label), corev1.TaintEffectNoSchedule, label)
}

func notReady(n *corev1.Node, status corev1.ConditionStatus) *corev1.Node {
	n.Status.Conditions[1].Status = status
	return n
}

func silent(n *corev1.Node) *corev1.Node {
	n.Status.Conditions = nil
	return n
}

func TestClusterRegion(t *testing.T) {
	nodes := []*corev1.Node{
		aNode("b1", "b", "north", "3920m"),
		aNode("a1", "a", "north", "2"),
		aNode("a2", "a", "", "1500m"),
		notReady(aNode("a3", "a", "north", "8"), corev1.ConditionFalse),
		notReady(aNode("a4", "a", "north", "8"), corev1.ConditionUnknown),
		silent(aNode("a5", "a", "north", "8")),
		controlPlaneNode("m1", "a", "north", "8", "node-role.kubernetes.io/control-plane"),
		controlPlaneNode("m2", "m", "south", "8", "node-role.kubernetes.io/master"),
		aNode("x2", "", "", "4"),
		aNode("x1", "", "north", ""),
		aNode("c1", "c", "", ""),
	}
	before := make([]*corev1.Node, len(nodes))
	for i := range nodes {
		before[i] = nodes[i].DeepCopy()
	}
	endpoints := []Endpoint{{Zone: "a"}, {Zone: "m", Node: "m2"}, {Zone: ""}, {Zone: "a"}, {Zone: "gone", Node: "a1"}}
	for capacity, want := range map[CapacityType]allocate.Region{
		CapacityNodes: {
			Zones: []allocate.Zone{
				{Endpoints: 1},
				{Name: "a", Region: "north", Capacity: 2, Endpoints: 2},
				{Name: "b", Region: "north", Capacity: 1},
				{Name: "c", Capacity: 1},
				{Name: "gone", Endpoints: 1},
				{Name: "m", Region: "south", Endpoints: 1},
			},
			NodesWithoutZone: 2,
		},
		CapacityCPU: {
			Zones: []allocate.Zone{
				{Endpoints: 1},
				{Name: "a", Region: "north", Capacity: 3.5, Endpoints: 2},
				{Name: "b", Region: "north", Capacity: 3.92},
				{Name: "c"},
				{Name: "gone", Endpoints: 1},
				{Name: "m", Region: "south", Endpoints: 1},
			},
			NodesWithoutZone: 2, NodesWithoutCapacity: 2,
		},
	} {
		cluster := NewCluster(nodes)
		if got := cluster.Region(Capacity{Type: capacity}, endpoints); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%+v\nwant\n%+v", capacity, got, want)
		}
		if cluster.Counted != 6 {
			t.Errorf("%d nodes counted, want 6", cluster.Counted)
		}
	}
	if !reflect.DeepEqual(nodes, before) {
		t.Error("the nodes are changed")
	}
}

// In a small cluster, pods run on nodes of the control plane, too. A taint keeps pods away, not the label. Kubernetes' own
// heuristic uses the label.
func TestClusterCountsControlPlaneThatTakesPods(t *testing.T) {
	const label, formerly = "node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"
	noSchedule, noExecute := corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute
	nodes := []*corev1.Node{
		aNode("server", "a", "north", "4", label),
		aNode("agent", "a", "north", "2"),
		aNode("server-b", "b", "north", "4", label, formerly),
		tainted(aNode("preferred", "c", "north", "1", label), corev1.TaintEffectPreferNoSchedule, label),
		tainted(aNode("other", "c", "north", "2", label), noSchedule, "example.com/gpu"),
		tainted(aNode("cut", "d", "north", "8", label), noSchedule, label),
		tainted(aNode("older", "e", "north", "8", formerly), noExecute, formerly),
		tainted(aNode("both", "f", "north", "8", label), noExecute, formerly),
		tainted(aNode("addons", "h", "north", "8", label), noExecute, "CriticalAddonsOnly"),
		tainted(aNode("etcd", "h", "north", "8", label), noSchedule, "node-role.kubernetes.io/etcd"),
		tainted(aNode("etcd-alone", "h", "north", "8", "node-role.kubernetes.io/etcd"), noExecute, "node-role.kubernetes.io/etcd"),
		tainted(aNode("worker", "g", "north", "1"), noSchedule, label), // not of the control plane
	}
	cluster := NewCluster(nodes)
	zone := func(name string, capacity float64) allocate.Zone {
		return allocate.Zone{Name: name, Region: "north", Capacity: capacity}
	}
	for _, test := range []struct {
		capacity Capacity
		want     []allocate.Zone
	}{
		{Capacity{}, []allocate.Zone{zone("a", 2), zone("b", 1), zone("c", 2), zone("g", 1)}},
		{Capacity{Type: CapacityCPU}, []allocate.Zone{zone("a", 6), zone("b", 4), zone("c", 3), zone("g", 1)}},
		{AutoCapacity(), []allocate.Zone{zone("a", 2), zone("g", 1)}},
	} {
		if got := cluster.Region(test.capacity, nil).Zones; !slices.Equal(got, test.want) {
			t.Errorf("%+v: got %+v, want %+v", test.capacity, got, test.want)
		}
	}
	got := cluster.Region(AutoCapacity(), []Endpoint{{Zone: "b", Node: "server-b"}}).Zones
	if want := (allocate.Zone{Name: "b", Region: "north", Endpoints: 1}); len(got) != 3 || got[1] != want {
		t.Errorf("with an endpoint on the control plane: %+v, want %+v among them", got, want)
	}
	if warnings := cluster.Warnings(); cluster.Counted != 6 || len(warnings) > 0 {
		t.Errorf("%d nodes count, want 6; warnings %q", cluster.Counted, warnings)
	}
}

// An endpoint whose node has no region is in the region of its zone. The order of endpoints and the readiness of nodes do
// not matter.
func TestRegionOfZone(t *testing.T) {
	down := func(name, zone, region string) *corev1.Node {
		return notReady(aNode(name, zone, region, ""), corev1.ConditionFalse)
	}
	c := NewCluster([]*corev1.Node{
		aNode("a-1", "a", "east", ""), down("a-2", "a", "by mistake"), down("b-1", "b", "west"),
		down("d-1", "d", "south"), down("d-2", "d", "north"), down("d-3", "d", "west"),
		down("d-4", "d", "south"), down("d-5", "d", "west"),
	})
	for zone, want := range map[string]string{"a": "east", "b": "west", "c": "", "d": "north", "": ""} {
		if got := c.RegionOf(zone); got != want {
			t.Errorf("zone %q: region %q, want %q", zone, got, want)
		}
	}
	endpoints := []Endpoint{{Zone: "a"}, {Zone: "b"}, {Zone: "a", Node: "gone"}, {Zone: "b", Node: "b-1"}, {Zone: "c"}}
	var places, groups []string
	for i, place := range c.Places(Capacity{Type: CapacityNodes}, []string{topology.Hostname, topology.Region}, endpoints) {
		places = append(places, place.Domains[1])
		groups = append(groups, c.DomainOf(endpoints[i].Node, endpoints[i].Zone, topology.Region))
	}
	want := []string{"east", "west", "east", "west", ""}
	if !slices.Equal(places, want) || !slices.Equal(groups, want) {
		t.Errorf("places are in %q, groups say %q, want %q", places, groups, want)
	}
	for _, zone := range c.Region(Capacity{Type: CapacityNodes}, endpoints).Zones {
		if zone.Region != c.RegionOf(zone.Name) {
			t.Errorf("the plan has zone %s in region %q", zone.Name, zone.Region)
		}
	}
}
