package ruleset

import "net/netip"

// Live returns, for each front of a protocol, the sorted endpoints that connections may continue to, as of the last
// Commit. It omits fronts without such endpoints, because their connections cannot move, and fronts that another proxy
// may serve. An endpoint missing from the view counts as ended: a new connection is better than one without an answer.
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
