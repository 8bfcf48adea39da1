package ruleset

import (
	"net/netip"
	"slices"
	"time"
)

// The defaults of Config.
const (
	// DefaultMasqueradeMark is a bit that kube-proxy leaves free.
	DefaultMasqueradeMark = 0x2000
	// MostAffinityClients is the kernel's default size of a map of clients.
	MostAffinityClients = 65535
	// Linger is how long unused chains and slots stay in the kernel, for packets that are being processed. It is much longer
	// than a packet needs for two lookups, even if it is delayed between them.
	Linger = time.Second
)

// Config configures the table of a family.
type Config struct {
	Family Family
	// MasqueradeMark marks packets to masquerade, DefaultMasqueradeMark if zero.
	MasqueradeMark uint32
	MasqueradeAll  bool // all connections to addresses of Services
	// ClusterCIDRs contain the addresses of pods. Without any of the family, and without PodInterfaces, the table cannot
	// tell traffic of pods: it does not masquerade outside traffic, and a PoolSplit keeps traffic of pods on the node.
	ClusterCIDRs []netip.Prefix
	// PodInterfaces receive traffic of pods. With a name, fromPods ignores ClusterCIDRs.
	PodInterfaces Interfaces
	// ServiceRanges contain cluster IPs. New connections to unassigned addresses in them are dropped.
	ServiceRanges []netip.Prefix
	// MaxAffinityClients is the size of each map of clients, MostAffinityClients if zero. The size of a map cannot change,
	// so its name contains it: with another size the clients of an adopted table are forgotten. Configure does not change
	// it.
	MaxAffinityClients int
}

// Interfaces are network interfaces of the node.
type Interfaces struct {
	// Name is the name of one interface or, with Prefix, the prefix of the names of all.
	Name   string
	Prefix bool
}

// TellsPods reports whether the rules can tell traffic of pods from other traffic.
func (c Config) TellsPods() bool { return len(c.normalized().fromPods(false)) > 0 }

// normalized sets the defaults, and keeps only the sorted prefixes of the family.
func (c Config) normalized() Config {
	if c.Family != IPv6 {
		c.Family = IPv4
	}
	if c.MasqueradeMark == 0 {
		c.MasqueradeMark = DefaultMasqueradeMark
	}
	if c.MaxAffinityClients <= 0 || c.MaxAffinityClients > MostAffinityClients {
		c.MaxAffinityClients = MostAffinityClients
	}
	c.ClusterCIDRs = prefixes(c.Family, c.ClusterCIDRs)
	c.ServiceRanges = prefixes(c.Family, c.ServiceRanges)
	return c
}

// fromPods returns statements: traffic of pods matches one of them or, with not, other traffic matches all of them. There
// are none if the table cannot tell traffic of pods.
func (c Config) fromPods(not bool) []Statement {
	if c.PodInterfaces.Name != "" {
		return []Statement{FromInterface{Interfaces: c.PodInterfaces, Not: not}}
	}
	var all []Statement
	for _, p := range c.ClusterCIDRs {
		all = append(all, InPrefix{Value: SourceAddress, Prefix: p, Not: not})
	}
	return all
}

// prefixes returns the masked prefixes of the family, sorted, each once.
func prefixes(family Family, all []netip.Prefix) []netip.Prefix {
	var mine []netip.Prefix
	for _, p := range all {
		if p.IsValid() && family.holds(p.Addr()) {
			mine = append(mine, p.Masked())
		}
	}
	slices.SortFunc(mine, netip.Prefix.Compare)
	return slices.Compact(mine)
}

// holds reports whether packets of the family can have an address.
func (f Family) holds(a netip.Addr) bool {
	if f == IPv6 {
		return a.Is6() && !a.Is4In6() && a.Zone() == ""
	}
	return a.Is4()
}
