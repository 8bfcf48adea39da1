package ruleset

import "net/netip"

// Live returns, by front of a protocol, the endpoints that connections may go on to, sorted, as of
// the last Commit. Fronts without any are left out, because their connections have nowhere else to
// go, and so are those that another proxy may serve. An endpoint that left the view counts as
// ended: a connection that begins anew is better than one that nobody answers.
func (t *Table) Live(protocol Protocol) map[Front][]netip.AddrPort {
	live := make(map[Front][]netip.AddrPort)
	alive := make(map[*port][]netip.AddrPort)
	for front, winner := range t.claims.winners {
		if front.Protocol != protocol || winner.end().Empty == Ignore {
			continue
		}
		p := winner.port
		if _, known := alive[p]; !known {
			alive[p] = p.alive()
		}
		if len(alive[p]) > 0 {
			live[front] = alive[p]
		}
	}
	return live
}
