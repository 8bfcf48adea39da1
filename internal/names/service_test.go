package names

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

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
