package names

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/nearest"
	"vicinity.dev/vicinity/internal/topology"
)

// Which of two endpoints with one address counts does not depend on the order in which slices came.
func TestAddressInTwoSlices(t *testing.T) {
	address := netip.MustParseAddr("10.0.0.1")
	in := func(zone string, notReady bool) []Endpoint {
		return []Endpoint{{IP: address, GroupEndpoint: v1alpha1.GroupEndpoint{Zone: zone, NotReady: notReady}}}
	}
	group := &v1alpha1.EndpointGroup{Spec: v1alpha1.EndpointGroupSpec{AddressType: corev1.IPv4Protocol, Tiers: []string{topology.Zone}}}
	for _, tt := range []struct {
		name   string
		slices map[string][]Endpoint
		want   string
	}{
		{"the ready one", map[string][]Endpoint{"s1": in("a", true), "s2": in("b", false), "s3": in("c", true)}, "b"},
		{"the first of two that are ready", map[string][]Endpoint{"s3": in("c", false), "s2": in("b", false), "s1": in("a", true)}, "b"},
	} {
		for range 20 { // as orders of maps differ
			s := NewService([]*v1alpha1.EndpointGroup{group}, tt.slices)
			for _, zone := range []string{"a", "b", "c"} {
				chosen := s.Endpoints[V4].Choose(nearest.Client{Zone: zone}, []netip.Addr{address})
				if got := chosen.Count == 1; got != (zone == tt.want) {
					t.Fatalf("%s: for a client in zone %s it is near: %t", tt.name, zone, got)
				}
			}
		}
	}
}

// Which of two zones that differ in case a name means does not depend on the order of groups.
func TestZonesThatDifferInCase(t *testing.T) {
	in := func(zones ...string) *v1alpha1.EndpointGroup {
		g := &v1alpha1.EndpointGroup{Spec: v1alpha1.EndpointGroupSpec{AddressType: corev1.IPv4Protocol}}
		for _, zone := range zones {
			g.Spec.Endpoints = append(g.Spec.Endpoints, v1alpha1.GroupEndpoint{Zone: zone})
		}
		return g
	}
	for _, groups := range [][]*v1alpha1.EndpointGroup{
		{in("zone-a"), in("ZONE-A"), in("Zone-B")},
		{in("ZONE-A", "Zone-B"), in("zone-a")},
	} {
		s := NewService(groups, nil)
		for name, want := range map[string]string{"zone-a": "zone-a", "zone-b": "Zone-B", "zone-c": "zone-c"} {
			if got := s.ClientIn(name).Zone; got != want {
				t.Errorf("%s is the zone %s, want %s", name, got, want)
			}
		}
	}
}
