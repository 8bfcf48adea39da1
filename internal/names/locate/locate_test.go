package locate

import (
	"net/netip"
	"reflect"
	"testing"
)

func addrs(texts ...string) []netip.Addr {
	var all []netip.Addr
	for _, text := range texts {
		all = append(all, netip.MustParseAddr(text))
	}
	return all
}

func zone(name string) map[string]string {
	return map[string]string{"topology.kubernetes.io/zone": name}
}

// PodLocators of one node share one copy of its labels, even before the node is listed: there may be many thousands of
// pods.
func TestPodLocatorsShareLabels(t *testing.T) {
	x := New()
	x.SetPod("default", "p1", Pod{IPs: addrs("10.0.0.1"), Node: "n1", Labels: zone("a")})
	x.SetPod("default", "p2", Pod{IPs: addrs("10.0.0.2"), Node: "n1", Labels: zone("a")})
	one, _ := x.Lookup(netip.MustParseAddr("10.0.0.1"))
	other, _ := x.Lookup(netip.MustParseAddr("10.0.0.2"))
	if reflect.ValueOf(one.Labels).Pointer() != reflect.ValueOf(other.Labels).Pointer() {
		t.Error("each pod has labels of its own")
	}
}
