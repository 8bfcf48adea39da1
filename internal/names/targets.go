package names

import (
	"net/netip"
	"slices"

	"vicinity.dev/vicinity/internal/endpoint"
)

// Targets says which targets of SRV records a client uses, and which of their addresses.
type Targets struct {
	// Tier is the key that endpoints share with the client, empty without one.
	Tier string
	// All says that the client gets those of a family since nothing of it is meant for the client.
	All bool
	// Removed says that there are addresses that the client does not use.
	Removed bool

	uses map[netip.Addr]bool
	hard bool
}

// Targets chooses among the targets that have some addresses. A client uses a target if it uses
// an address of it. A target without a known address is like an endpoint anywhere: the client
// uses it unless tiers are hard.
func (s *Service) Targets(client endpoint.Client, addresses []netip.Addr) Targets {
	t := Targets{uses: make(map[netip.Addr]bool, len(addresses))}
	var families [2][]netip.Addr
	for _, address := range addresses {
		families[FamilyOf(address)] = append(families[FamilyOf(address)], address)
	}
	for family, addresses := range families {
		slices.SortFunc(addresses, netip.Addr.Compare)
		addresses = slices.Compact(addresses)
		endpoints := s.Endpoints[family]
		if endpoints == nil {
			for _, address := range addresses {
				t.uses[address] = true
			}
			continue
		}
		chosen := endpoints.Choose(client, addresses)
		if t.Tier == "" && len(addresses) > 0 {
			t.Tier = chosen.Tier
		}
		t.hard = t.hard || chosen.Hard
		t.All = t.All || chosen.All && len(addresses) > 0
		t.Removed = t.Removed || chosen.Count < len(addresses)
		for i, address := range addresses {
			t.uses[address] = chosen.Takes[i]
		}
	}
	return t
}

// Uses reports whether the client uses an address.
func (t *Targets) Uses(address netip.Addr) bool { return t.uses[address] }

// Takes reports whether the client uses the target that has these addresses.
func (t *Targets) Takes(addresses []netip.Addr) bool {
	if len(addresses) == 0 {
		return !t.hard
	}
	return slices.ContainsFunc(addresses, t.Uses)
}
