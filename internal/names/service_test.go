package names

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// If two zones differ only in case, their choice for a name does not depend on the order of groups.
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

// An address that moves from a terminating pod to a pod that is not ready is not ready.
func TestReadyAddresses(t *testing.T) {
	is, isNot := true, false
	leaving := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &is, Terminating: &is}}
	starting := discoveryv1.Endpoint{Addresses: []string{"10.0.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &isNot}}
	ready := discoveryv1.Endpoint{Addresses: []string{"10.0.0.2"}, Conditions: discoveryv1.EndpointConditions{Ready: &is}}
	for _, order := range [][]discoveryv1.Endpoint{{leaving, starting, ready}, {ready, starting, leaving}} {
		endpoints, malformed := EndpointsOf(&discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Endpoints: order})
		s := NewService([]*v1alpha1.EndpointGroup{{}}, map[string][]Endpoint{"web": endpoints})
		if got := s.Ready[V4]; malformed > 0 || len(got) != 1 || got[0].String() != "10.0.0.2" {
			t.Errorf("ready are %v, and %d addresses cannot be read", got, malformed)
		}
	}
}
