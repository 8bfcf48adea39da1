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
	// Elements are bounds of which zero stands for one that depends on the memory.
	Elements           view.Bounds
	MaxAffinityClients int
}

// Add declares the flags, which gives them their defaults.
func (f *Flags) Add(flags *pflag.FlagSet) {
	flags.BoolVar(&f.AllServices, "all-services", false, "serve Services without EndpointGroups too, by their EndpointSlices, instead of kube-proxy")
	flags.StringSliceVar(&f.NodePortAddresses, "nodeport-addresses", []string{"primary"}, "prefixes of the node's addresses that take NodePorts, or primary for those that the node's object names first")
	flags.StringSliceVar(&f.ExternalIPs, view.FlagExternalIPs, []string{view.AllExternalIPs}, "addresses that Services may claim by spec.externalIPs: all, none, or prefixes, in which addresses of nodes are allowed, too, also as those of load balancers. Cluster IPs of others and addresses of the API server and of pods are never allowed")
	flags.StringVar(&f.Pods.Mode, view.FlagPodMode, "", "how traffic of pods is told from other traffic, as kube-proxy does: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix; by default by --cluster-cidr, and by the prefixes of the node's own pods for IPv4 or IPv6 where that has none")
	flags.StringSliceVar(&f.Pods.ClusterCIDRs, view.FlagClusterCIDR, nil, "prefixes that pods get their addresses from; by default those of the node's own pods")
	flags.StringVar(&f.Pods.Bridge, view.FlagPodBridge, "", "bridge that traffic of pods comes in by, with --detect-local-mode=BridgeInterface")
	flags.StringVar(&f.Pods.InterfacePrefix, view.FlagPodInterfacePrefix, "", "what the names of interfaces begin with that traffic of pods comes in by, with --detect-local-mode=InterfaceNamePrefix")
	flags.BoolVar(&f.MasqueradeAll, "masquerade-all", false, "give all connections to addresses of Services the node's address as their source")
	flags.IntVar(&f.MasqueradeBit, "masquerade-bit", bits.TrailingZeros32(ruleset.DefaultMasqueradeMark), "bit of packet marks by which connections are chosen that get the node's address as their source, 0 to 31; nobody else may use it, and kube-proxy has 14")
	flags.IntVar(&f.Elements.Service, "max-service-elements", 0, "elements of the kernel's sets that the rules of one Service may take; what is beyond that is left out. 0 for half of --max-elements")
	flags.IntVar(&f.Elements.Total, "max-elements", 0, "elements of the kernel's sets that the rules of all Services may take; Services for which none are left wait. 0 for as many as three quarters of the memory have room for that the program may use, at 1024 bytes each, or 4194304 if that has no limit")
	flags.IntVar(&f.MaxAffinityClients, "max-affinity-clients", ruleset.MostAffinityClients, "clients that the node remembers for each port of a Service with session affinity, in each IP family and for endpoints on the node apart, 1 to 65535; those that come later are served without affinity until others expire. All are forgotten once when the value changes")
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
