package view_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// Each family tells traffic of pods by its own ranges.
func TestPods(t *testing.T) {
	both := []string{"10.1.0.5/24", "2001:db8:1::/64", "nonsense"}
	for _, test := range []struct {
		name       string
		flags      view.PodFlags
		node       corev1.NodeSpec
		four, six  string
		interfaces ruleset.Interfaces
	}{
		{name: "nothing", four: "[]", six: "[]"},
		{name: "the node", node: corev1.NodeSpec{PodCIDRs: both}, four: "[10.1.0.0/24]", six: "[2001:db8:1::/64]"},
		{name: "the node of one family", node: corev1.NodeSpec{PodCIDR: "10.1.0.0/24"}, four: "[10.1.0.0/24]", six: "[]"},
		{name: "all prefixes of the node", node: corev1.NodeSpec{PodCIDR: "10.1.0.0/24", PodCIDRs: both}, four: "[10.1.0.0/24]", six: "[2001:db8:1::/64]"},
		{
			name: "a flag for one family", node: corev1.NodeSpec{PodCIDRs: both},
			flags: view.PodFlags{ClusterCIDRs: []string{"10.0.0.1/8", "172.16.0.0/12"}}, four: "[10.0.0.0/8 172.16.0.0/12]", six: "[2001:db8:1::/64]",
		},
		{
			name: "a flag for the other family", node: corev1.NodeSpec{PodCIDRs: both},
			flags: view.PodFlags{ClusterCIDRs: []string{"fd00::/8"}}, four: "[10.1.0.0/24]", six: "[fd00::/8]",
		},
		{
			name: "the flag alone", node: corev1.NodeSpec{PodCIDRs: both},
			flags: view.PodFlags{Mode: "ClusterCIDR", ClusterCIDRs: []string{"10.0.0.0/8"}}, four: "[10.0.0.0/8]", six: "[]",
		},
		{name: "the node alone", node: corev1.NodeSpec{PodCIDRs: both}, flags: view.PodFlags{Mode: "NodeCIDR"}, four: "[10.1.0.0/24]", six: "[2001:db8:1::/64]"},
		{
			name: "a bridge", node: corev1.NodeSpec{PodCIDRs: both}, flags: view.PodFlags{Mode: "BridgeInterface", Bridge: "cni0"},
			four: "[]", six: "[]", interfaces: ruleset.Interfaces{Name: "cni0"},
		},
		{
			name: "interfaces", node: corev1.NodeSpec{PodCIDRs: both}, flags: view.PodFlags{Mode: "InterfaceNamePrefix", InterfacePrefix: "veth"},
			four: "[]", six: "[]", interfaces: ruleset.Interfaces{Name: "veth", Prefix: true},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			pods, wrong := test.flags.Pods()
			if wrong != nil {
				t.Fatal(wrong)
			}
			for family, want := range map[ruleset.Family]string{ruleset.IPv4: test.four, ruleset.IPv6: test.six} {
				c := ruleset.Config{Family: family}
				pods.Configure(&c, &corev1.Node{Spec: test.node})
				if got := fmt.Sprint(c.ClusterCIDRs); got != want || c.PodInterfaces != test.interfaces {
					t.Errorf("%s: prefixes %s, want %s; interfaces %+v, want %+v", family, got, want, c.PodInterfaces, test.interfaces)
				}
				if tells := want != "[]" || test.interfaces.Name != ""; c.TellsPods() != tells {
					t.Errorf("%s: TellsPods is %t", family, !tells)
				}
			}
			var c ruleset.Config
			if pods.Configure(&c, nil); len(test.flags.ClusterCIDRs) == 0 && len(c.ClusterCIDRs) > 0 {
				t.Errorf("without a node there are %s", c.ClusterCIDRs)
			}
		})
	}
}

func TestPodFlagsAreChecked(t *testing.T) {
	for want, flags := range map[string]view.PodFlags{
		`--cluster-cidr: "10.0.0.1" is not allowed; it must be a prefix such as 10.0.0.0/8`:                                                     {ClusterCIDRs: []string{"10.0.0.1"}},
		`--detect-local-mode: "bridge" is unknown; allowed are ClusterCIDR, NodeCIDR, BridgeInterface, InterfaceNamePrefix`:                     {Mode: "bridge"},
		"--cluster-cidr: it is needed with --detect-local-mode=ClusterCIDR":                                                                     {Mode: "ClusterCIDR"},
		"--pod-bridge-interface: it is needed with --detect-local-mode=BridgeInterface":                                                         {Mode: "BridgeInterface"},
		"--pod-interface-name-prefix: it is needed with --detect-local-mode=InterfaceNamePrefix":                                                {Mode: "InterfaceNamePrefix"},
		"--cluster-cidr: it is not allowed without --detect-local-mode=ClusterCIDR":                                                             {Mode: "NodeCIDR", ClusterCIDRs: []string{"10.0.0.0/8"}},
		"--pod-bridge-interface: it is not allowed without --detect-local-mode=BridgeInterface":                                                 {Bridge: "cni0"},
		"--pod-interface-name-prefix: it is not allowed without --detect-local-mode=InterfaceNamePrefix":                                        {Mode: "NodeCIDR", InterfacePrefix: "veth"},
		`--pod-bridge-interface: "sixteen-letters-" is not allowed; it must have at most 15 letters, digits and signs other than / : * " and \`: {Mode: "BridgeInterface", Bridge: "sixteen-letters-"},
		`--pod-interface-name-prefix: "veth*" is not allowed; it must have at most 15 letters, digits and signs other than / : * " and \`:       {Mode: "InterfaceNamePrefix", InterfacePrefix: "veth*"},
		`--pod-bridge-interface: "a b" is not allowed; it must have at most 15 letters, digits and signs other than / : * " and \`:              {Mode: "BridgeInterface", Bridge: "a b"},
	} {
		if _, wrong := flags.Pods(); wrong == nil || wrong.Error() != want {
			t.Errorf("%+v: the error is %v, want %s", flags, wrong, want)
		}
	}
}
