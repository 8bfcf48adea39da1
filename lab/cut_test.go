package lab

import (
	"testing"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// A node is cut off until each cut of it is healed, in any order.
func TestSilent(t *testing.T) {
	for _, test := range []struct {
		name string
		cuts fabric.Cuts
		want bool
	}{
		{"nothing cut", fabric.Cuts{}, false},
		{"the node", fabric.Cuts{Nodes: []string{"zone-a-1"}}, true},
		{"another node and zone", fabric.Cuts{Nodes: []string{"zone-a-2"}, Zones: map[string]fabric.Reach{"zone-b": fabric.Everything}}, false},
		{"the zone from zones", fabric.Cuts{Zones: map[string]fabric.Reach{"zone-a": fabric.OtherZones}}, false},
		{"the zone from all", fabric.Cuts{Zones: map[string]fabric.Reach{"zone-a": fabric.Everything}}, true},
		{"node and zone", fabric.Cuts{Nodes: []string{"zone-a-1"}, Zones: map[string]fabric.Reach{"zone-a": fabric.OtherZones}}, true},
	} {
		if got := isCutOff(shape.Node{Name: "zone-a-1", Zone: "zone-a"}, test.cuts); got != test.want {
			t.Errorf("with %s cut off the node is silent: %t", test.name, got)
		}
	}
}
