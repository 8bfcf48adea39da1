package view

import (
	"net/netip"
	"slices"
	"time"

	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Table returns the table of a family with the compiled Services only.
func Table(config ruleset.Config, compiled []compile.Family) *ruleset.Table {
	table := ruleset.NewTable(config)
	var onNode []netip.Addr
	for i := range compiled {
		f := &compiled[i]
		if f.Family != config.Family {
			continue
		}
		for j := range f.Ports {
			table.Set(f.Ports[j])
		}
		for _, e := range f.Endpoints {
			if e.OnNode {
				onNode = append(onNode, e.Address)
			}
		}
	}
	table.SetHairpin(onNode)
	table.Commit(time.Time{})
	return table
}

// Share identifies the part of a kernel's table that belongs to one Service.
type Share struct {
	// Table has the rules of that Service only.
	Table *ruleset.Table
	// Addresses has the cluster IPs of the Service, which no other Service has.
	Addresses []netip.Addr
	// Endpoints has the addresses of its endpoints.
	Endpoints []netip.Addr
}

// Of returns the part of a listing that belongs to the Service, to compare it with the table.
func (s *Share) Of(l ruleset.Listing) ruleset.Listing {
	want := s.Table.Want()
	part := ruleset.Listing{Family: l.Family, Exists: l.Exists, Flagged: l.Flagged}
	for _, chain := range l.Chains {
		if slices.ContainsFunc(want.Chains, func(w ruleset.ListedChain) bool { return w.Name == chain.Name }) {
			part.Chains = append(part.Chains, chain)
		}
	}
	fronts := map[ruleset.Front]bool{}
	for _, set := range want.Sets {
		for _, e := range set.Elements {
			if front, _, ok := l.Family.TakeFront(e.Key); ok {
				fronts[front] = true
			}
		}
	}
	for _, set := range l.Sets {
		if !slices.ContainsFunc(want.Sets, func(w ruleset.ListedSet) bool { return w.Name == set.Name }) {
			continue
		}
		kept := ruleset.ListedSet{Name: set.Name, Fingerprint: set.Fingerprint}
		for _, e := range set.Elements {
			if s.holds(l.Family, fronts, e.Key) {
				kept.Elements = append(kept.Elements, e)
			}
		}
		part.Sets = append(part.Sets, kept)
	}
	return part
}

// holds reports whether a key belongs to the Service: it begins with one of its addresses or fronts, or is a pair of one of
// its endpoints.
func (s *Share) holds(family ruleset.Family, fronts map[ruleset.Front]bool, key string) bool {
	address, rest, ok := family.TakeAddress(key)
	if !ok {
		return false
	}
	if rest == "" {
		return slices.Contains(s.Addresses, address)
	}
	if again, rest, ok := family.TakeAddress(rest); ok && rest == "" && again == address {
		return slices.Contains(s.Endpoints, address)
	}
	front, _, ok := family.TakeFront(key)
	return ok && (fronts[front] || slices.Contains(s.Addresses, address))
}
