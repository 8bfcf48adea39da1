package inspect

import (
	"reflect"
	"testing"

	"vicinity.dev/vicinity/internal/routing/kubeproxy"
)

// The nodes of a zone that do not do alike are counted, so that no two lines say something
// different of one zone.
func TestServedByNode(t *testing.T) {
	own := map[string]int{"a": 1}
	f := &Family{Stock: []Stock{{Ready: 9, Zones: []StockZone{
		{Zone: "a", Nodes: 1, Mode: kubeproxy.SameNode, Uses: own},
		{Zone: "a", Nodes: 2, Mode: kubeproxy.SameZone, Uses: map[string]int{"a": 2}},
		{Zone: "a", Nodes: 3, Mode: kubeproxy.SameNode, Uses: own, Why: "another reason"},
		{Zone: "b", Nodes: 2, Mode: kubeproxy.SameZone, Uses: map[string]int{"b": 2}},
		{Zone: "c", Nodes: 1, Mode: kubeproxy.SameZone, Uses: map[string]int{"c": 2}},
		{Zone: "c", Nodes: 1, Mode: kubeproxy.SameZone, Uses: map[string]int{"c": 2}, Why: "another reason"},
	}}}}
	want := []Served{{[]string{"4 nodes of a"}, "1 own, of their node"}, {[]string{"2 nodes of a", "b", "c"}, "2 own"}}
	if got := new(Explanation).Served(f); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
}
