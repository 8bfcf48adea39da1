package view

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/proxy/nodenet"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// The values of kube-proxy's flag --detect-local-mode.
const (
	clusterCIDR         = "ClusterCIDR"
	nodeCIDR            = "NodeCIDR"
	bridgeInterface     = "BridgeInterface"
	interfaceNamePrefix = "InterfaceNamePrefix"
)

// The flags for how to tell traffic of pods.
const (
	FlagPodMode            = "detect-local-mode"
	FlagClusterCIDR        = "cluster-cidr"
	FlagPodBridge          = "pod-bridge-interface"
	FlagPodInterfacePrefix = "pod-interface-name-prefix"
)

// PodFlags has the values of these flags.
type PodFlags struct {
	Mode            string
	ClusterCIDRs    []string
	Bridge          string
	InterfacePrefix string
}

// FlagErrorf returns an error about the value of a flag.
func FlagErrorf(flag, format string, args ...any) error {
	return fmt.Errorf("--%s: %s", flag, fmt.Sprintf(format, args...))
}

// Pods identifies the traffic of pods. The zero value uses the ranges of the node's pods: traffic of
// other pods does not begin on the node.
type Pods struct {
	// clusterCIDRs has the ranges of pods. In a family without any, the ranges of the node's pods count, unless notByNode.
	clusterCIDRs []netip.Prefix
	notByNode    bool
	// interfaces, with a name, tells traffic of pods by its interface instead.
	interfaces ruleset.Interfaces
}

// Pods returns the settings of the flags, and an error if they contradict each other.
func (f PodFlags) Pods() (Pods, error) {
	_, prefixes, err := parsePrefixes(f.ClusterCIDRs, "a prefix such as 10.0.0.0/8")
	if err != nil {
		return Pods{}, FlagErrorf(FlagClusterCIDR, "%s", err)
	}
	pods := Pods{notByNode: f.Mode == clusterCIDR, clusterCIDRs: prefixes}
	modes := []string{clusterCIDR, nodeCIDR, bridgeInterface, interfaceNamePrefix}
	if f.Mode != "" && !slices.Contains(modes, f.Mode) {
		return Pods{}, FlagErrorf(FlagPodMode, "%q is unknown; allowed are %s", f.Mode, strings.Join(modes, ", "))
	}
	for _, of := range []struct {
		flag, mode string
		given      bool
	}{
		{FlagClusterCIDR, clusterCIDR, len(f.ClusterCIDRs) > 0},
		{FlagPodBridge, bridgeInterface, f.Bridge != ""},
		{FlagPodInterfacePrefix, interfaceNamePrefix, f.InterfacePrefix != ""},
	} {
		// Without a mode, prefixes are allowed, and no flag is required.
		switch wanted := f.Mode == of.mode; {
		case wanted && !of.given:
			return Pods{}, FlagErrorf(of.flag, "it is needed with --%s=%s", FlagPodMode, of.mode)
		case of.given && !wanted && (f.Mode != "" || of.mode != clusterCIDR):
			return Pods{}, FlagErrorf(of.flag, "it is not allowed without --%s=%s", FlagPodMode, of.mode)
		}
	}
	switch f.Mode {
	case bridgeInterface:
		pods.interfaces = ruleset.Interfaces{Name: f.Bridge}
		return pods, checkInterface(FlagPodBridge, f.Bridge)
	case interfaceNamePrefix:
		pods.interfaces = ruleset.Interfaces{Name: f.InterfacePrefix, Prefix: true}
		return pods, checkInterface(FlagPodInterfacePrefix, f.InterfacePrefix)
	}
	return pods, nil
}

const longestInterface = 15

// checkInterface refuses names that no interface has, or that nft cannot write.
func checkInterface(flag, name string) error {
	strange := func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`/:*"\`, r) }
	if len(name) > longestInterface || strings.ContainsFunc(name, strange) {
		return FlagErrorf(flag, "%q is not allowed; it must have at most %d letters, digits and signs other than / : * \" and \\", name, longestInterface)
	}
	return nil
}

// Configure configures how a table tells traffic of pods on a node, nil if unknown.
func (p *Pods) Configure(c *ruleset.Config, node *corev1.Node) {
	c.PodInterfaces, c.ClusterCIDRs = p.interfaces, ofFamily(c.Family, p.clusterCIDRs)
	if len(c.ClusterCIDRs) == 0 && node != nil && p.interfaces.Name == "" && !p.notByNode {
		c.ClusterCIDRs = ofFamily(c.Family, nodenet.PodPrefixes(node))
	}
}

func ofFamily(family ruleset.Family, all []netip.Prefix) []netip.Prefix {
	var mine []netip.Prefix
	for _, p := range all {
		if p.Addr().Is6() == (family == ruleset.IPv6) {
			mine = append(mine, p)
		}
	}
	return mine
}
