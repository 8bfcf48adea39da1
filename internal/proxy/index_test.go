package proxy

import (
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"vicinity.dev/vicinity/internal/proxy/accounting"
	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

func TestIndex(t *testing.T) {
	now := clocktesting.NewFakePassiveClock(start)
	x := newIndex(now)
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
			t.Errorf("%s: got %+v, %t, want %+v", when, got, found, want)
		}
	}
	is("an empty index", one, accounting.Flow{})
	x.set(web, family("shop/web", "2", compile.Endpoint{Address: one, Zone: "a"}, compile.Endpoint{Address: two, Zone: "b"}))
	is("an endpoint", two, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "b"})
	is("an unknown endpoint", netip.MustParseAddr("10.1.9.9"), accounting.Flow{Namespace: "shop", Service: "web"})

	x.set(web, family("shop/web", "2", compile.Endpoint{Address: one, Zone: "a"}))
	is("a removed endpoint", two, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "b"})
	now.SetTime(start.Add(2 * removedKept))
	x.set(other, family("shop/other", "3"))
	is("an endpoint that was removed long ago", two, accounting.Flow{Namespace: "shop", Service: "web"})
	is("a front that two Services claim", one, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "a"})

	x.set(other, family("shop/other", "1"))
	is("a front of another Service with a lower rank", one, accounting.Flow{Namespace: "shop", Service: "other"})
	x.removeFronts(other, []ruleset.Front{front})
	is("a front that the other Service lost", one, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "a"})
	x.set(other, family("shop/other", "1"))
	x.set(other, nil)
	is("a front of a removed Service", one, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "a"})
	x.set(web, nil)
	is("a front without a Service", one, accounting.Flow{})
	x.set(web, nil)
	if len(x.fronts) != 0 || len(x.services) != 0 {
		t.Errorf("after the removal of all Services, the index has fronts %v and Services %v", x.fronts, x.services)
	}

	var none *index
	none.removeFronts(web, []ruleset.Front{front})
}

// The index keeps at most maxRemoved removed endpoints and drops the oldest.
func TestIndexBoundsRemovedEndpoints(t *testing.T) {
	x := newIndex(clocktesting.NewFakePassiveClock(start))
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	ports := []ruleset.ServicePort{{Name: "shop/web", Fronts: []ruleset.FrontEnd{{}}}}
	var endpoints compile.Endpoints
	for address := netip.MustParseAddr("10.1.0.0"); len(endpoints) <= maxRemoved; address = address.Next() {
		endpoints = append(endpoints, compile.Endpoint{Address: address, Zone: "a"})
	}
	x.set(web, []compile.Family{{Ports: ports, Endpoints: endpoints}})
	x.set(web, []compile.Family{{Ports: ports}})
	if n := len(x.removed.Keys()); n != maxRemoved {
		t.Errorf("%d removed endpoints are known, want %d", n, maxRemoved)
	}
	for i, want := range map[int]string{0: "", 1: "a", maxRemoved: "a"} {
		if got, _ := x.resolve(ruleset.Front{}, endpoints[i].Address); got.DestinationZone != want {
			t.Errorf("removed endpoint %d has zone %q, want %q", i, got.DestinationZone, want)
		}
	}
}

// A cluster IP wins over an external IP and a NodePort of an older Service, as in the rules.
func TestIndexPrefersClusterIPs(t *testing.T) {
	front := ruleset.Front{Address: netip.MustParseAddr("10.96.0.1"), Protocol: ruleset.TCP, Port: 80}
	of := func(port, rank string, end ruleset.FrontEnd) []compile.Family {
		end.Front = front
		return []compile.Family{{Ports: []ruleset.ServicePort{{Name: port, Rank: rank, Fronts: []ruleset.FrontEnd{end}}}}}
	}
	x := newIndex(clocktesting.NewFakePassiveClock(start))
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
		x.set(types.NamespacedName{Namespace: "shop", Name: step.name}, of("shop/"+step.name, fmt.Sprint(i), step.end))
		if got, _ := x.resolve(front, netip.Addr{}); got.Service != step.want {
			t.Errorf("with %s: the front belongs to %s, want %s", step.name, got.Service, step.want)
		}
	}
}
