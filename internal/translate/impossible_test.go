package translate

import (
	"slices"
	"strings"
	"testing"
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
			if got := Impossible(service(strings.Fields(test.written)...)); !slices.Equal(got, test.want) {
				t.Errorf("got\n%q\nwant\n%q", got, test.want)
			}
		})
	}
}
