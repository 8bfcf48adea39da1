// Package netset holds sets of IP addresses as minimal lists of prefixes, and the text form in which
// vicinity-controller publishes them.
package netset

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Set is a set of addresses. The zero value is empty.
type Set struct {
	// prefixes are sorted, disjoint and as few as possible.
	prefixes []netip.Prefix
}

// New returns the set of all addresses of some prefixes. IPv4 addresses in IPv6 notation count as IPv4 addresses.
// Invalid prefixes are ignored.
func New(prefixes []netip.Prefix) Set {
	sorted := make([]netip.Prefix, 0, len(prefixes))
	for _, p := range prefixes {
		if p = normal(p); p.IsValid() {
			sorted = append(sorted, p)
		}
	}
	slices.SortFunc(sorted, netip.Prefix.Compare)
	var s Set
	for _, p := range sorted {
		s.add(p)
	}
	return s
}

// normal returns a prefix without the bits beyond its length.
func normal(p netip.Prefix) netip.Prefix {
	const mapped = 96
	if p.Addr().Is4In6() {
		if p.Bits() < mapped {
			return netip.Prefix{}
		}
		p = netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-mapped)
	}
	return p.Masked()
}

// add adds a prefix that sorts after those of the set. It joins two halves of a prefix as long as it can.
func (s *Set) add(p netip.Prefix) {
	for n := len(s.prefixes); n > 0; n = len(s.prefixes) {
		last := s.prefixes[n-1]
		if last.Overlaps(p) {
			return // the shorter one sorts first
		}
		if p.Bits() == 0 || last.Bits() != p.Bits() {
			break
		}
		both, err := p.Addr().Prefix(p.Bits() - 1)
		if err != nil || !both.Contains(last.Addr()) {
			break
		}
		s.prefixes, p = s.prefixes[:n-1], both
	}
	s.prefixes = append(s.prefixes, p)
}

// Of returns the set of some addresses.
func Of(all ...netip.Addr) Set {
	prefixes := make([]netip.Prefix, 0, len(all))
	for _, a := range all {
		if a = a.Unmap().WithZone(""); a.IsValid() {
			prefixes = append(prefixes, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return New(prefixes)
}

// Union returns the addresses of either set.
func (s Set) Union(other Set) Set {
	if len(other.prefixes) == 0 {
		return s
	}
	return New(slices.Concat(s.prefixes, other.prefixes))
}

// Contains reports whether an address is in the set.
func (s Set) Contains(a netip.Addr) bool { return s.Prefix(a).IsValid() }

// Prefix returns the prefix of the set with an address, invalid if there is none.
func (s Set) Prefix(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	i, found := slices.BinarySearchFunc(s.prefixes, a, func(p netip.Prefix, a netip.Addr) int { return p.Addr().Compare(a) })
	if !found {
		i--
	}
	if i < 0 || !s.prefixes[i].Contains(a) {
		return netip.Prefix{}
	}
	return s.prefixes[i]
}

// Prefixes returns the prefixes of the set, sorted. They must not be changed.
func (s Set) Prefixes() []netip.Prefix { return s.prefixes }

// Equal reports whether two sets have the same addresses.
func (s Set) Equal(other Set) bool { return slices.Equal(s.prefixes, other.prefixes) }

// String returns a line for each prefix, or for the address if it has only one.
func (s Set) String() string {
	var b strings.Builder
	for _, p := range s.prefixes {
		b.WriteString(text(p))
		b.WriteByte('\n')
	}
	return b.String()
}

func text(p netip.Prefix) string {
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}

// Truncate returns the text of the set, or of as many prefixes as fit into so many bytes, and the number of prefixes
// left out.
func (s Set) Truncate(most int) (lines string, left int) {
	size := 0
	for i, p := range s.prefixes {
		if size += len(text(p)) + 1; size > most {
			return Set{s.prefixes[:i]}.String(), len(s.prefixes) - i
		}
	}
	return s.String(), 0
}

// Parse reads the text of a set. The error names the first line that is neither an address nor a prefix. The set has
// all others.
func Parse(lines string) (Set, error) {
	var prefixes []netip.Prefix
	var wrong error
	for line := range strings.Lines(lines) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		if a, err := netip.ParseAddr(line); err == nil {
			prefixes = append(prefixes, netip.PrefixFrom(a.WithZone(""), a.BitLen()))
			continue
		}
		p, err := netip.ParsePrefix(line)
		if err == nil {
			prefixes = append(prefixes, p)
		} else if wrong == nil {
			wrong = fmt.Errorf("%q is neither an address nor a prefix", line)
		}
	}
	return New(prefixes), wrong
}
