package ruleset

import (
	"cmp"
	"net/netip"
	"slices"
)

// claim is a port's claim to one of its fronts.
type claim struct {
	port  *port
	index int // of the front
}

func (c claim) end() *FrontEnd { return &c.port.fronts[c.index] }

// claims decides which port gets each front.
type claims struct {
	winners map[Front]claim
	// contested has all claims to the fronts that several ports claim.
	contested map[Front][]claim
}

func newClaims() claims {
	return claims{winners: make(map[Front]claim), contested: make(map[Front][]claim)}
}

func (c *claims) add(p *port) {
	for i := range p.fronts {
		mine := claim{p, i}
		front := mine.end().Front
		winner, taken := c.winners[front]
		if !taken {
			c.winners[front] = mine
			continue
		}
		all := c.contested[front]
		if all == nil {
			all = []claim{winner}
		}
		c.contest(front, append(all, mine))
	}
}

func (c *claims) remove(p *port) {
	for i := range p.fronts {
		front := p.fronts[i].Front
		all, contested := c.contested[front]
		if !contested {
			delete(c.winners, front)
			continue
		}
		c.contest(front, slices.DeleteFunc(all, func(other claim) bool { return other.port == p }))
	}
}

func (c *claims) contest(front Front, all []claim) {
	c.winners[front] = slices.MinFunc(all, compareClaims)
	if len(all) == 1 {
		delete(c.contested, front)
		return
	}
	c.contested[front] = all
}

// Precedence orders claims to a front: cluster IPs, then NodePorts, then all others.
func (f *FrontEnd) Precedence() int {
	switch {
	case f.ClusterIP:
		return 0
	case f.NodePort:
		return 1
	default:
		return 2
	}
}

// compareClaims puts the winning claim first. Addresses and ports that the cluster assigned beat older claims.
func compareClaims(a, b claim) int {
	return cmp.Or(cmp.Compare(a.end().Precedence(), b.end().Precedence()), cmp.Compare(a.port.rank, b.port.rank), cmp.Compare(a.port.name, b.port.name))
}

// entry returns the wanted entry of a front, nothing if no port claims it.
func (c *claims) entry(front Front) *entry {
	winner, ok := c.winners[front]
	if !ok {
		return nothing
	}
	return winner.port.entry(winner.end())
}

func (c *claims) disputes() []Dispute {
	var disputes []Dispute
	for front, all := range c.contested {
		winner := c.winners[front]
		for _, other := range all {
			if other != winner {
				disputes = append(disputes, Dispute{Front: front, Winner: winner.port.name, Loser: other.port.name})
			}
		}
	}
	slices.SortFunc(disputes, func(a, b Dispute) int {
		return cmp.Or(a.Front.Compare(b.Front), cmp.Compare(a.Loser, b.Loser))
	})
	return disputes
}

// Compare orders fronts by address, protocol and port.
func (f Front) Compare(other Front) int {
	return cmp.Or(f.Address.Compare(other.Address), cmp.Compare(f.Protocol, other.Protocol), cmp.Compare(f.Port, other.Port))
}

func (f Front) own() netip.AddrPort { return netip.AddrPortFrom(f.Address, f.Port) }

// String returns the front as in 10.96.0.10:53/udp.
func (f Front) String() string { return f.own().String() + "/" + f.Protocol.String() }
