package translate

import (
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/api/v1alpha1"
)

func TestImpossible(t *testing.T) {
	for _, test := range []struct {
		written string
		want    []string
	}{
		{written: ""},
		{written: "same-zone=Prefer external=Local"},
		{written: "same-zone=Nearly mode=Nearly distribution=Nearly proxy=nearly"}, // no more than a warning
		{written: "same-node=Require same-zone=Prefer"},
		{written: "keys=topology.kubernetes.io/zone external=Cluster"},
		{written: "keys= external=Local"},                                // no keys
		{written: "keys=topology.kubernetes.io/zone,* same-zone=Prefer"}, // say the same
		{written: "keys=topology.kubernetes.io/zone same-zone=Require"},
		{written: "keys=topology.kubernetes.io/zone same-zone=Balanced"}, // switched off for a while
		{written: "keys=topology.kubernetes.io/zone same-zone=Balanced same-node=Prefer"},
		{written: "keys=topology.kubernetes.io/zone same-node=Balanced"},
		{written: "keys=topology.kubernetes.io/zone same-zone=Nearly"},
		{written: "keys=topology.kubernetes.io/zone mode=Auto gardener=true"},
		{
			"keys=topology.kubernetes.io/zone same-zone=Prefer",
			[]string{`annotation vicinity.dev/topology-keys: "topology.kubernetes.io/zone" contradicts annotation endpointslice.kubernetes.io/same-zone: Prefer, which means "topology.kubernetes.io/zone,*"; remove one of them`},
		},
		{
			"keys=rack,* same-node=Prefer same-region=Require external=Local",
			[]string{
				`annotation vicinity.dev/topology-keys: "rack,*" cannot be together with spec.externalTrafficPolicy: Local, which lets external traffic reach the endpoints of its node only; remove one of them`,
				`annotation vicinity.dev/topology-keys: "rack,*" contradicts annotations endpointslice.kubernetes.io/same-node: Prefer, endpointslice.kubernetes.io/same-region: Require, which means "kubernetes.io/hostname,topology.kubernetes.io/region"; remove one of them`,
			},
		},
		{
			"keys=*,rack external=Local same-zone=Prefer",
			[]string{`annotation vicinity.dev/topology-keys: topology keys: "*" is key 1 of 2; it matches everything and must be the last`},
		},
	} {
		t.Run(test.written, func(t *testing.T) {
			if got := Impossible(service(strings.Fields(test.written)...), nil); !slices.Equal(got, test.want) {
				t.Errorf("got\n%q\nwant\n%q", got, test.want)
			}
		})
	}
}

// A policy that a Service names is part of what is written on it; one that selects it is
// somebody else's, and has no effect where it cannot hold.
func TestImpossibleByPolicy(t *testing.T) {
	const fault = `annotation service.kubernetes.io/topology-mode: vicinity.dev/near: spec.keys of RoutingPolicy near, "rack,*", cannot be together with spec.externalTrafficPolicy: Local, which lets external traffic reach the endpoints of its node only; remove one of them`
	for _, test := range []struct {
		written string
		change  change
		want    []string
	}{
		{"mode=vicinity.dev/near external=Local", keys("rack", all), []string{fault}},
		{"mode=vicinity.dev/near external=Cluster", keys("rack", all), nil},
		{"mode=vicinity.dev/near external=Local", mode(v1alpha1.Prefer, v1alpha1.Zone), nil},
		{"mode=vicinity.dev/near external=Local", keys(all, "rack"), nil}, // which have no effect
		{"mode=vicinity.dev/nera external=Local", keys("rack", all), nil},
		{"external=Local", keys("rack", all), nil},
	} {
		t.Run(test.written, func(t *testing.T) {
			policies := []*v1alpha1.RoutingPolicy{policy("near", 0, web, test.change)}
			if got := Impossible(service(strings.Fields(test.written)...), policies); !slices.Equal(got, test.want) {
				t.Errorf("got\n%q\nwant\n%q", got, test.want)
			}
		})
	}
}
