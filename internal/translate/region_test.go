package translate

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/topology"
)

// An endpoint is in the region of its zone where its node does not say it: for the plan, for
// nodes and for groups alike, whatever endpoint comes first and whether nodes are ready.
func TestRegionOfZone(t *testing.T) {
	node := func(name, zone, region string, ready corev1.ConditionStatus) *corev1.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.Zone: zone, topology.Region: region}}}
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
		return n
	}
	c := NewCluster([]*corev1.Node{
		node("a-1", "a", "east", corev1.ConditionTrue), node("a-2", "a", "by mistake", corev1.ConditionFalse), node("b-1", "b", "west", corev1.ConditionFalse),
		node("d-1", "d", "south", corev1.ConditionFalse), node("d-2", "d", "north", corev1.ConditionFalse), node("d-3", "d", "west", corev1.ConditionFalse),
		node("d-4", "d", "south", corev1.ConditionFalse), node("d-5", "d", "west", corev1.ConditionFalse),
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
