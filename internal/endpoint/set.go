package endpoint

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

// Set has the endpoints of a Service in one address family, by address. It is immutable.
type Set struct {
	groups []*v1alpha1.EndpointGroup // in the order of names
	// divided says that some zone does not see some group, so zones have different endpoints.
	divided bool
	// entries are the entries of groups. Those of an address follow one another.
	entries []entry
	known   map[netip.Addr]span
	// others are endpoints of slices that are in no group.
	others map[netip.Addr]*v1alpha1.GroupEndpoint
}

type entry struct{ group, index int32 }

type span struct{ first, end int32 }

// NewSet reads the groups of a Service of one family. Endpoints of slices count if no group has their address yet.
// Neither may be changed later. Without a group of the family it returns nil: then nothing is chosen.
func NewSet(family corev1.IPFamily, groups []*v1alpha1.EndpointGroup, sliced map[netip.Addr]*v1alpha1.GroupEndpoint) *Set {
	s := &Set{known: map[netip.Addr]span{}, others: map[netip.Addr]*v1alpha1.GroupEndpoint{}}
	for _, g := range groups {
		if g.Spec.AddressType == family {
			s.groups = append(s.groups, g)
		}
	}
	if len(s.groups) == 0 {
		return nil
	}
	slices.SortFunc(s.groups, func(a, b *v1alpha1.EndpointGroup) int { return strings.Compare(a.Name, b.Name) })
	type row struct {
		address netip.Addr
		entry
	}
	var rows []row
	for i, g := range s.groups {
		s.divided = s.divided || g.Spec.LocalOnly
		for label := range g.Labels {
			s.divided = s.divided || strings.HasPrefix(label, v1alpha1.LabelNotForPrefix)
		}
		for j := range g.Spec.Endpoints {
			if address, err := netip.ParseAddr(g.Spec.Endpoints[j].Address); err == nil {
				rows = append(rows, row{address.Unmap(), entry{int32(i), int32(j)}})
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(a.address.Compare(b.address), cmp.Compare(StateInGroup(s.at(a.entry)), StateInGroup(s.at(b.entry))))
	})
	s.entries = make([]entry, 0, len(rows))
	for i := 0; i < len(rows); {
		address, counts := rows[i].address, s.at(rows[i].entry)
		first := len(s.entries)
		for ; i < len(rows) && rows[i].address == address; i++ {
			if Same(s.at(rows[i].entry), counts) {
				s.entries = append(s.entries, rows[i].entry)
			}
		}
		s.known[address] = span{int32(first), int32(len(s.entries))}
	}
	for address, e := range sliced {
		if _, known := s.known[address]; !known {
			s.others[address] = e
		}
	}
	return s
}

func (s *Set) at(e entry) *v1alpha1.GroupEndpoint {
	return &s.groups[e.group].Spec.Endpoints[e.index]
}

// Knows reports whether a group has an address.
func (s *Set) Knows(address netip.Addr) bool {
	_, known := s.known[address]
	return known
}

// Chosen is the choice of a client among some addresses.
type Chosen struct {
	// Takes says which addresses the client uses.
	Takes []bool
	// Count is the number of used addresses.
	Count int
	// Tier is the tier that reaches them, empty without tiers. While tiers of a Service change, it is one of several.
	Tier string
	// Hard says that the tiers are hard: the client gets no endpoint beyond them.
	Hard bool
	// All says that none of the addresses is for the client's zone, so the client gets all.
	All bool
}

// Chooser chooses endpoints for one client after another with the same memory. It serves one goroutine. The zero value
// is ready.
type Chooser struct {
	choice Choice
	// uses are the client's uses of the groups, and newcomer its use of endpoints in no group.
	uses       []Use
	newcomer   Use
	candidates []candidate
}

type candidate struct {
	at   int
	use  Use
	rank Rank
}

// Choose chooses among some addresses of usable endpoints. An address in no group and no slice counts as an endpoint
// without a node and zone. With hard tiers it may choose none; otherwise it chooses all if none is left.
func (c *Chooser) Choose(s *Set, client Client, addresses []netip.Addr) Chosen {
	visible := c.read(s, client)
	chosen := Chosen{Takes: make([]bool, len(addresses)), Hard: c.choice.Hard()}
	if !visible {
		chosen.Hard = topology.Tiers(s.groups[0].Spec.Tiers).Hard()
	}
	c.candidates = c.candidates[:0]
	for i, address := range addresses {
		c.add(s, i, address)
	}
	if c.choice.Begin() {
		for i := range c.candidates {
			c.choice.Consider(c.candidates[i].use, c.candidates[i].rank)
		}
	}
	for i := range c.candidates {
		one := &c.candidates[i]
		if !chosen.Takes[one.at] && c.choice.Takes(one.use, one.rank) {
			chosen.Takes[one.at] = true
			chosen.Count++
		}
	}
	if chosen.Count > 0 {
		chosen.Tier = c.choice.tier()
	} else if !chosen.Hard {
		chosen.All, chosen.Count = true, len(addresses)
		for i := range chosen.Takes {
			chosen.Takes[i] = true
		}
	}
	return chosen
}

// Choose chooses with a new Chooser.
func (s *Set) Choose(client Client, addresses []netip.Addr) Chosen {
	return new(Chooser).Choose(s, client, addresses)
}

// read reads all groups for a client. It reports whether the client sees any.
func (c *Chooser) read(s *Set, client Client) (visible bool) {
	c.choice = Choice{client: client, tiers: c.choice.tiers[:0]}
	c.uses, c.newcomer = c.uses[:0], Use{}
	for _, g := range s.groups {
		u := c.choice.Read(g)
		c.uses, visible = append(c.uses, u), visible || u.Visible
		if !c.newcomer.Used() {
			c.newcomer = u
		}
	}
	if !c.newcomer.Used() {
		c.newcomer.tiers = c.choice.withTiers(s.groups[0].Spec.Tiers)
	}
	return visible
}

func (c *Chooser) add(s *Set, at int, address netip.Addr) {
	if in, ok := s.known[address]; ok {
		for _, e := range s.entries[in.first:in.end] {
			if u := c.uses[e.group]; u.Used() {
				c.candidates = append(c.candidates, candidate{at, u, c.choice.Rank(u, s.at(e))})
			}
		}
		return
	}
	e, zone := s.others[address], c.choice.client.Zone
	switch {
	case e == nil:
		e = &v1alpha1.GroupEndpoint{}
	case s.divided && zone != "" && e.Zone != "" && e.Zone != zone:
		// Until it is in the plan, an endpoint is for its own zone.
		return
	}
	c.candidates = append(c.candidates, candidate{at, c.newcomer, c.choice.Rank(c.newcomer, e)})
}

func (c *Choice) tier() string {
	for i := range c.tiers {
		if t := &c.tiers[i]; len(t.keys) > 0 && t.nearest < Rank(len(t.keys)) {
			return t.keys[t.nearest]
		}
	}
	return ""
}
