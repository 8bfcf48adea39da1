package proxy

import (
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func TestIndex(t *testing.T) {
	x := newIndex()
	front := ruleset.Front{Address: netip.MustParseAddr("10.96.0.1"), Protocol: ruleset.TCP, Port: 80}
	one, two := netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.2.2")
	family := func(port, rank string, endpoints ...compile.Endpoint) []compile.Family {
		return []compile.Family{{
			Family: ruleset.IPv4, Endpoints: endpoints,
			Ports: []ruleset.ServicePort{{Name: port, Rank: rank, Fronts: []ruleset.FrontEnd{{Front: front}}}},
		}}
	}
	web, other := types.NamespacedName{Namespace: "shop", Name: "web"}, types.NamespacedName{Namespace: "shop", Name: "other"}
	is := func(when string, target netip.Addr, want accounting.Flow) {
		t.Helper()
		if got, found := x.resolve(front, target); got != want || found != (want.Service != "") {
			t.Errorf("%s: %+v, %t", when, got, found)
		}
	}
	is("nothing is known", one, accounting.Flow{})
	x.set(web, family("shop/web", "2", compile.Endpoint{Address: one, Zone: "a"}, compile.Endpoint{Address: two, Zone: "b"}), start)
	is("an endpoint", two, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "b"})
	is("an unknown endpoint", netip.MustParseAddr("10.1.9.9"), accounting.Flow{Namespace: "shop", Service: "web"})

	x.set(web, family("shop/web", "2", compile.Endpoint{Address: one, Zone: "a"}), start)
	is("an endpoint that went", two, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "b"})
	x.set(other, family("shop/other", "3"), start.Add(goneFor))
	is("an endpoint that went long ago", two, accounting.Flow{Namespace: "shop", Service: "web"})
	is("a front that two want", one, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "a"})

	x.set(other, family("shop/other", "1"), start.Add(goneFor))
	is("a front that went to the other", one, accounting.Flow{Namespace: "shop", Service: "other"})
	x.lose(other, []ruleset.Front{front})
	is("a front that the other lost", one, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "a"})
	x.set(other, family("shop/other", "1"), start.Add(goneFor))
	x.set(other, nil, start.Add(goneFor))
	is("a front that came back", one, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "a"})
	x.set(web, nil, start.Add(goneFor))
	is("a front that nobody wants", one, accounting.Flow{})
	x.set(web, nil, start.Add(3*goneFor))
	if len(x.fronts) != 0 || len(x.services) != 0 || len(x.gone) != 0 {
		t.Errorf("%v, %v, %v are left", x.fronts, x.services, x.gone)
	}

	var none *index
	none.lose(web, []ruleset.Front{front})
}

// A connection counts for the Service that the rules send it to: the one whose cluster IP
// the address is, however old another is that wants it.
func TestIndexGoesByWhatTheClusterGave(t *testing.T) {
	front := ruleset.Front{Address: netip.MustParseAddr("10.96.0.1"), Protocol: ruleset.TCP, Port: 80}
	of := func(port, rank string, end ruleset.FrontEnd) []compile.Family {
		end.Front = front
		return []compile.Family{{Ports: []ruleset.ServicePort{{Name: port, Rank: rank, Fronts: []ruleset.FrontEnd{end}}}}}
	}
	x := newIndex()
	for i, step := range []struct {
		name string
		end  ruleset.FrontEnd
		want string
	}{
		{"external", ruleset.FrontEnd{}, "external"},
		{"node-port", ruleset.FrontEnd{NodePort: true}, "node-port"},
		{"cluster-ip", ruleset.FrontEnd{ClusterIP: true}, "cluster-ip"},
		{"younger", ruleset.FrontEnd{}, "cluster-ip"},
	} {
		x.set(types.NamespacedName{Namespace: "shop", Name: step.name}, of("shop/"+step.name, fmt.Sprint(i), step.end), start)
		if got, _ := x.resolve(front, netip.Addr{}); got.Service != step.want {
			t.Errorf("with %s the front is that of %s, want %s", step.name, got.Service, step.want)
		}
	}
}

// However many endpoints come and go, only some are remembered, the last that went.
func TestIndexIsBounded(t *testing.T) {
	x := newIndex()
	front := ruleset.Front{Address: netip.MustParseAddr("10.96.0.1"), Protocol: ruleset.TCP, Port: 80}
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	address := func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}) }
	const many = 3 * mostGone
	for n := range many {
		x.set(web, []compile.Family{{
			Endpoints: []compile.Endpoint{{Address: address(n), Zone: "a"}},
			Ports:     []ruleset.ServicePort{{Name: "shop/web", Fronts: []ruleset.FrontEnd{{Front: front}}}},
		}}, start)
	}
	to := x.services[web]
	if len(x.gone) > mostGone+1 || len(to.former) > mostGone+1 {
		t.Errorf("%d and %d endpoints are remembered", len(x.gone), len(to.former))
	}
	for n, want := range map[int]string{many - mostGone: "a", 0: ""} {
		if got, _ := x.resolve(front, address(n)); got.DestinationZone != want {
			t.Errorf("endpoint %d was in zone %q, want %q", n, got.DestinationZone, want)
		}
	}
	x.set(web, nil, start)
	if len(x.services) != 0 || len(x.fronts) != 0 {
		t.Errorf("%v, %v are left", x.services, x.fronts)
	}
}
