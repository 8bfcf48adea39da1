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
	// DefaultLinger is long beside what a packet needs for two lookups, even where it is
	// put off between them.
	DefaultLinger = time.Second
)

// Config is what the whole table of a family goes by.
type Config struct {
	Family Family
	// MasqueradeMark is the bit of packet marks that says that the packet's connection
	// gets the node's address as its source, DefaultMasqueradeMark if zero.
	MasqueradeMark uint32
	// MasqueradeAll masquerades all connections to addresses of Services.
	MasqueradeAll bool
	// ClusterCIDRs are where the addresses of pods are from. Without those of its family
	// a table cannot tell pods: it masquerades no traffic to addresses of Services for
	// coming from elsewhere, and a pool Split keeps traffic of pods on the node.
	ClusterCIDRs []netip.Prefix
	// Linger is how long what the rules no longer lead to stays in the kernel for packets
	// that are on their way through them, DefaultLinger if zero.
	Linger time.Duration
}

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
	c.ClusterCIDRs = prefixes(c.Family, c.ClusterCIDRs)
	return c
}

// equal reports whether both make the same rules.
func (c Config) equal(other Config) bool {
	return c.Family == other.Family && c.MasqueradeMark == other.MasqueradeMark &&
		c.MasqueradeAll == other.MasqueradeAll && c.Linger == other.Linger &&
		slices.Equal(c.ClusterCIDRs, other.ClusterCIDRs)
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
