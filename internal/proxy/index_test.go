package proxy

import (
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
	one, two := netip.MustParseAddr("10.1.1.1"), netip.MustParseAddr("10.1.2.2")
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	is := func(when string, target netip.Addr, want accounting.Flow) {
		t.Helper()
		if got, found := x.resolve(web, target); got != want || found != (want.Service != "") {
			t.Errorf("%s: got %+v, %t, want %+v", when, got, found, want)
		}
	}
	is("an empty index", one, accounting.Flow{})
	x.set(web, []compile.Family{{Endpoints: compile.Endpoints{{Address: one, Zone: "a"}, {Address: two, Zone: "b"}}}})
	is("an endpoint", two, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "b"})
	is("an unknown endpoint", netip.MustParseAddr("10.1.9.9"), accounting.Flow{Namespace: "shop", Service: "web"})

	x.set(web, []compile.Family{{Endpoints: compile.Endpoints{{Address: one, Zone: "a"}}}})
	is("a removed endpoint", two, accounting.Flow{Namespace: "shop", Service: "web", DestinationZone: "b"})
	now.SetTime(start.Add(2 * removedKept))
	is("an endpoint that was removed long ago", two, accounting.Flow{Namespace: "shop", Service: "web"})
	x.set(web, nil)
	is("a removed Service", one, accounting.Flow{})
}

// A connection counts for the Service that has its front in the rules.
func TestConnectionsCountForTheOwnerOfTheirFront(t *testing.T) {
	w := newWorld(t)
	w.index = newIndex(w.clock)
	claimant := aService("claimant", "10.96.0.2")
	claimant.Spec.ExternalIPs = []string{"203.0.113.1"}
	w.put(claimant, aGroup("claimant", "claimant-1", "10.1.1.2"))
	w.right("at first")
	for address, want := range map[string]string{"10.96.0.2": "claimant", "203.0.113.1": "claimant", "203.0.113.2": ""} {
		front := ruleset.Front{Address: netip.MustParseAddr(address), Protocol: ruleset.TCP, Port: 80}
		if got, counts := w.resolve(front, netip.MustParseAddr("10.1.1.2")); got.Service != want || counts != (want != "") {
			t.Errorf("connections to %s count for %q, want %q", address, got.Service, want)
		}
	}
}

// The index keeps at most maxRemoved removed endpoints and drops the oldest.
func TestIndexBoundsRemovedEndpoints(t *testing.T) {
	x := newIndex(clocktesting.NewFakePassiveClock(start))
	web := types.NamespacedName{Namespace: "shop", Name: "web"}
	var endpoints compile.Endpoints
	for address := netip.MustParseAddr("10.1.0.0"); len(endpoints) <= maxRemoved; address = address.Next() {
		endpoints = append(endpoints, compile.Endpoint{Address: address, Zone: "a"})
	}
	x.set(web, []compile.Family{{Endpoints: endpoints}})
	x.set(web, []compile.Family{{}})
	if n := len(x.removed.Keys()); n != maxRemoved {
		t.Errorf("%d removed endpoints are known, want %d", n, maxRemoved)
	}
	for i, want := range map[int]string{0: "", 1: "a", maxRemoved: "a"} {
		if got, _ := x.resolve(web, endpoints[i].Address); got.DestinationZone != want {
			t.Errorf("removed endpoint %d has zone %q, want %q", i, got.DestinationZone, want)
		}
	}
}
