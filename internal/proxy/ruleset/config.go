package ruleset

import (
	"net/netip"
	"slices"
	"time"
)

// The defaults of Config.
const (
	// DefaultMasqueradeMark is a bit that kube-proxy does not use.
	DefaultMasqueradeMark = 0x2000
	// MostAffinityClients is the size that the kernel gives a map of clients by itself.
	MostAffinityClients = 65535
	// DefaultLinger is long beside what a packet needs for two lookups, even where it is
	// put off between them.
	DefaultLinger = time.Second
)

// Config is what the whole table of a family goes by.
type Config struct {
	Family Family
	// MasqueradeMark is the bit of packet marks by which a connection gets the node's address as
	// its source, DefaultMasqueradeMark if zero.
	MasqueradeMark uint32
	MasqueradeAll  bool // all connections to addresses of Services
	// ClusterCIDRs contain the addresses of pods. A table without any of its family and without
	// PodInterfaces cannot tell pods: it masquerades nothing for coming from outside, and a
	// PoolSplit keeps traffic of pods on the node.
	ClusterCIDRs []netip.Prefix
	// PodInterfaces receive traffic of pods. With a name, ClusterCIDRs do not count.
	PodInterfaces Interfaces
	// ServiceRanges contain cluster IPs. New connections to addresses there that no Service has
	// are dropped.
	ServiceRanges []netip.Prefix
	// MaxAffinityClients is how many clients each map of a port with affinity remembers,
	// MostAffinityClients if zero. The size is in the name of a map, since it cannot change: with
	// another size the clients of an adopted table are forgotten. Configure does not change it.
	MaxAffinityClients int
	// Linger is how long chains and slots that are out of use stay in the kernel for packets on
	// their way, DefaultLinger if zero.
	Linger time.Duration
}

// Interfaces are network interfaces of the node.
type Interfaces struct {
	// Name is that of the only one, or with Prefix what the names of all begin with.
	Name   string
	Prefix bool
}

// TellsPods reports whether traffic of pods is told from other traffic.
func (c Config) TellsPods() bool { return len(c.normal().fromPods(false)) > 0 }

// normal fills in the defaults, and keeps the prefixes of the family alone, sorted.
func (c Config) normal() Config {
	if c.Family != IPv6 {
		c.Family = IPv4
	}
	if c.MasqueradeMark == 0 {
		c.MasqueradeMark = DefaultMasqueradeMark
	}
	if c.Linger <= 0 {
		c.Linger = DefaultLinger
	}
	if c.MaxAffinityClients <= 0 || c.MaxAffinityClients > MostAffinityClients {
		c.MaxAffinityClients = MostAffinityClients
	}
	c.ClusterCIDRs = prefixes(c.Family, c.ClusterCIDRs)
	c.ServiceRanges = prefixes(c.Family, c.ServiceRanges)
	if c.PodInterfaces.Name == "" {
		c.PodInterfaces = Interfaces{}
	} else {
		c.ClusterCIDRs = nil
	}
	return c
}

func (c Config) equal(other Config) bool {
	return c.Family == other.Family && c.MasqueradeMark == other.MasqueradeMark &&
		c.MasqueradeAll == other.MasqueradeAll && c.Linger == other.Linger &&
		slices.Equal(c.ServiceRanges, other.ServiceRanges) && c.samePods(other)
}

func (c Config) samePods(other Config) bool {
	return c.PodInterfaces == other.PodInterfaces && slices.Equal(c.ClusterCIDRs, other.ClusterCIDRs)
}

// fromPods are what traffic of pods matches one of, or else, with not, what all other
// traffic matches all of. There are none if nothing tells pods.
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

// prefixes are those of the family, sorted, each once and without the bits that do not
// count.
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

// holds reports whether an address is one of the family that packets can have.
func (f Family) holds(a netip.Addr) bool {
	if f == IPv6 {
		return a.Is6() && !a.Is4In6() && a.Zone() == ""
	}
	return a.Is4()
}
