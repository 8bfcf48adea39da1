package intent

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

func TestZoneOf(t *testing.T) {
	cluster := NewCluster([]*corev1.Node{aNode("a1", "a", "", "1"), aNode("none", "", "", "1")})
	for _, test := range []struct{ node, zone, want string }{
		{"a1", "a", "a"},
		{"a1", "b", "a"},
		{"a1", "", "a"},
		{"a1", "rack 7/a", "a"},
		{"none", "b", "b"},
		{"gone", "b", "b"},
		{"", "b", "b"},
		{"gone", "", ""},
		{"", "", ""},
		{"", "rack 7/a", ""},
		{"gone", "-b", ""},
		{"", strings.Repeat("z", 63), strings.Repeat("z", 63)},
		{"", strings.Repeat("z", 64), ""},
	} {
		e := anEndpoint("10.0.0.1", test.node, test.zone, nil)
		if got := cluster.ZoneOf(&e); got != test.want {
			t.Errorf("on %q in %q: %q, want %q", test.node, test.zone, got, test.want)
		}
	}
}

func TestImpossibleZones(t *testing.T) {
	cluster := NewCluster([]*corev1.Node{aNode("a1", "a", "", "1")})
	eps := []*discoveryv1.EndpointSlice{
		aSlice("x", "IPv4", anEndpoint("10.0.0.1", "", "no zone", nil), anEndpoint("10.0.0.2", "a1", "elsewhere?", nil), anEndpoint("10.0.0.3", "", "b", nil)),
		aSlice("y", "IPv4", anEndpoint("10.0.0.4", "", "no zone", nil), anEndpoint("10.0.0.5", "gone", "/", nil), anEndpoint("10.0.0.6", "", "", nil)),
	}
	if got, want := cluster.ImpossibleZones(eps), []string{"/", "no zone"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
