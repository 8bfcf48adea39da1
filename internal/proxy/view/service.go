package view

import (
	"net/netip"
	"slices"
	"time"

	"vicinity.dev/vicinity/internal/proxy/compile"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// Omission is what no rule can be made of, of a port of a Service.
type Omission struct {
	Port string
	Err  error
}

// Table is the table of a family with what was compiled of some Services, and no others.
func Table(config ruleset.Config, compiled []compile.Family) (*ruleset.Table, []Omission) {
	table := ruleset.NewTable(config)
	var omissions []Omission
	var onNode []netip.Addr
	for i := range compiled {
		f := &compiled[i]
		if f.Family != config.Family {
			continue
		}
		for j := range f.Ports {
			if err := table.Set(f.Ports[j]); err != nil {
				omissions = append(omissions, Omission{f.Ports[j].Name, err})
			}
		}
		for _, e := range f.Endpoints {
			if e.OnNode {
				onNode = append(onNode, e.Address)
			}
		}
	}
	table.SetHairpin(onNode)
	table.Commit(time.Time{})
	return table, omissions
}

// Share says what of a kernel's table is about one Service.
type Share struct {
	// Table has the rules of that Service alone.
	Table *ruleset.Table
	// Addresses are those that no other Service has: its cluster IPs. All that is at one
	// of them is about the Service.
	Addresses []netip.Addr
	// Endpoints are the addresses of its endpoints.
	Endpoints []netip.Addr
}

// Of is a listing without what is about other Services, so that it can be compared with
// the table.
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

// holds reports whether a key is about the Service: an address of it, one of its
// endpoints with itself, or one of its fronts with what follows.
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
