// Package proxyflags declares the flags of vicinity-proxy that the rules of a node depend on:
// for the proxy, and for the command that explains what the proxy of a node does.
package proxyflags

import (
	"math/bits"

	"github.com/spf13/pflag"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

const mostMasqueradeBit = 31

// Flags are the values of the flags.
type Flags struct {
	AllServices       bool
	NodePortAddresses []string
	ExternalIPs       []string
	Pods              view.PodFlags
	MasqueradeAll     bool
	MasqueradeBit     int
	// Elements are bounds. Zero stands for a bound that depends on the memory.
	Elements           view.Bounds
	MaxAffinityClients int
}

// Add declares the flags, which gives them their defaults.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.AllServices, "all-services", false, "replace kube-proxy: serve Services without EndpointGroups too")
	flags.StringSliceVar(&f.NodePortAddresses, "nodeport-addresses", []string{"primary"}, "prefixes of node addresses that take NodePorts, or primary for the Node's first of each IP family")
	flags.StringSliceVar(&f.ExternalIPs, view.FlagExternalIPs, []string{view.AllExternalIPs}, "addresses that Services may claim by spec.externalIPs: all, none, or prefixes")
	flags.StringVar(&f.Pods.Mode, view.FlagPodMode, "", "how to recognize traffic of pods: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	flags.StringSliceVar(&f.Pods.ClusterCIDRs, view.FlagClusterCIDR, nil, "prefixes of the pods' addresses (default the pod CIDRs of the node)")
	flags.StringVar(&f.Pods.Bridge, view.FlagPodBridge, "", "bridge by which traffic of pods arrives, with BridgeInterface")
	flags.StringVar(&f.Pods.InterfacePrefix, view.FlagPodInterfacePrefix, "", "prefix of the interfaces by which traffic of pods arrives, with InterfaceNamePrefix")
	flags.BoolVar(&f.MasqueradeAll, "masquerade-all", false, "masquerade all connections to addresses of Services")
	flags.IntVar(&f.MasqueradeBit, "masquerade-bit", bits.TrailingZeros32(ruleset.DefaultMasqueradeMark), "bit of the packet mark for masquerading, 0 to 31, that no other program uses; kube-proxy uses 14")
	flags.IntVar(&f.Elements.Service, "max-service-elements", 0, "elements of kernel sets that one Service may take; 0 for half of --max-elements")
	flags.IntVar(&f.Elements.Total, "max-elements", 0, "elements of kernel sets that all Services may take; 0 for a share of the memory limit, or 4194304 without one")
	flags.IntVar(&f.MaxAffinityClients, "max-affinity-clients", ruleset.MostAffinityClients, "clients that the node remembers for each Service port with session affinity, 1 to 65535")
}

// Settings returns what the flags say, or an error about the first of them that makes no sense. view.BoundsWithin
// fills in the bounds that they leave open.
func (f *Flags) Settings() (view.Settings, error) {
	wrong := func(flag, format string, args ...any) (view.Settings, error) {
		return view.Settings{}, view.FlagErrorf(flag, format, args...)
	}
	switch {
	case f.MasqueradeBit < 0 || f.MasqueradeBit > mostMasqueradeBit:
		return wrong("masquerade-bit", "%d is not allowed; it must be from 0 to %d", f.MasqueradeBit, mostMasqueradeBit)
	case f.Elements.Total < 0:
		return wrong("max-elements", "%d is not allowed; it must be 0 or more", f.Elements.Total)
	case f.Elements.Service < 0 || f.Elements.Total > 0 && f.Elements.Service > f.Elements.Total:
		return wrong("max-service-elements", "%d is not allowed; it must be 0 or more, and not more than --max-elements", f.Elements.Service)
	case f.MaxAffinityClients < 1 || f.MaxAffinityClients > ruleset.MostAffinityClients:
		return wrong("max-affinity-clients", "%d is not allowed; it must be from 1 to %d", f.MaxAffinityClients, ruleset.MostAffinityClients)
	}
	s := view.Settings{
		AllServices: f.AllServices, MasqueradeAll: f.MasqueradeAll, MasqueradeMark: 1 << f.MasqueradeBit, MaxAffinityClients: f.MaxAffinityClients,
		Elements: f.Elements,
	}
	var err error
	if s.NodePorts, err = view.ParseNodePorts(f.NodePortAddresses); err != nil {
		return wrong("nodeport-addresses", "%s", err)
	}
	if s.ExternalIPs, err = view.ParseExternalIPs(f.ExternalIPs); err != nil {
		return wrong(view.FlagExternalIPs, "%s", err)
	}
	s.Pods, err = f.Pods.Pods()
	return s, err
}
