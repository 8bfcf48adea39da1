package ruleset

import "net/netip"

// Live are the endpoints that connections to fronts of a protocol may go on to, sorted, as of
// the last Commit: those that new ones go to, and those that serve. A front without any is
// left out: its connections have nowhere to go instead. So is one of which another proxy may
// serve connections too, that some of whose endpoints are not known: those may serve.
//
// What the node is not shown for another reason is not among them: that an endpoint went
// cannot be told from that it is out of view, and a connection that begins anew at another
// endpoint is better than one that nobody answers.
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
