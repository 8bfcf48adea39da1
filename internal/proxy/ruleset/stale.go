package ruleset

import (
	"net/netip"
	"slices"
	"time"
)

// recheck repeats the requests of a Commit: packets on their way may open stale connections and add clients, until their
// chains and slots are deleted.
type recheck struct {
	stale      []Stale
	losses     []loss
	until, due time.Time // when the linger time ends, and when to check
}

// alive returns the endpoints whose connections may continue.
func (p *port) alive() []netip.AddrPort {
	if p.kept == nil {
		return distinct(p.pools[0], p.pools[1], p.known.Serving)
	}
	all := slices.Concat(p.pools[0], p.pools[1], p.known.Serving)
	for _, kept := range p.kept {
		all = append(all, slices.Concat(kept.slots[:]...)...)
	}
	return distinct(all)
}

// findEnded finds the ended endpoints of a port. While no other endpoint serves, their connections stay.
func (r *revision) findEnded(change portRevision) {
	p, old := change.new, change.old
	var had, seen, ended []netip.AddrPort
	switch {
	case p.kept != nil:
		// The rules stay, and so do the connections.
		if old != nil {
			p.late = old.late
		}
		return
	case old == nil:
	case r.held == nil && p.sameEndpoints(old):
		p.late = old.late
		return
	case old.kept != nil:
		ended = old.late // its other endpoints are in the kernel's slots
	default:
		had, ended = old.alive(), old.late
	}
	if r.held != nil {
		for i := range p.fronts {
			seen = append(seen, slices.Concat(r.fronts[r.seen[p.fronts[i].Front]].old.slots[:]...)...)
		}
	}
	alive := p.alive()
	view := old != nil && old.known.View == p.known.View
	for _, target := range subtract(distinct(had, seen), alive) {
		// An endpoint that leaves the view may still serve, if it is fleeting.
		staying := view && contains(had, target) && !contains(old.known.Fleeting, target)
		if p.known.View == "" || staying || contains(p.known.Silent, target) {
			ended = append(slices.Clip(ended), target)
		}
	}
	if ended = subtract(ended, alive); len(alive) == 0 {
		p.late = ended
	} else {
		r.ended[p] = ended
	}
}

// findDrained finds the endpoints of a port that are newly drained. A new table counts all: an earlier process may have ended
// before its connections did.
func (r *revision) findDrained(change portRevision) {
	drained := change.new.known.Drained
	if change.old != nil {
		drained = subtract(drained, change.old.known.Drained)
	}
	if len(drained) > 0 {
		r.drained[change.new] = drained
	}
}

func (p *port) sameEndpoints(other *port) bool {
	return slices.Equal(p.pools[0], other.pools[0]) && slices.Equal(p.pools[1], other.pools[1]) &&
		p.known.View == other.known.View && slices.Equal(p.known.Serving, other.known.Serving) &&
		slices.Equal(p.known.Silent, other.known.Silent)
}

// findStale finds the connections to a front that must end. Connections to a front without a port stay: another proxy may
// serve it.
func (r *revision) findStale(f frontRevision, wanted *entry) {
	winner, taken := r.claims.winners[f.front]
	if !taken {
		return
	}
	if wanted.served() && !f.old.complete() && wanted.gains(f.old) {
		r.untranslated = append(r.untranslated, Stale{Front: f.front, Target: f.front.own()})
	}
	ended := r.ended[winner.port]
	if f.owner != "" && f.owner != winner.port.name {
		// The endpoints of the previous port may serve, but no longer this front.
		if alive := winner.port.alive(); len(alive) > 0 {
			ended = subtract(slices.Concat(f.old.slots[:]...), alive)
		}
	}
	drained := r.drained[winner.port]
	for _, target := range subtract(ended, drained) {
		r.stale = append(r.stale, Stale{Front: f.front, Target: target})
	}
	for _, target := range drained {
		r.stale = append(r.stale, Stale{Front: f.front, Target: target, Drained: true})
	}
}

// repeatRequests repeats the requests that still hold.
func (r *revision) repeatRequests(rechecks []*recheck) {
	var stale []Stale
	for _, l := range rechecks {
		stale = append(stale, l.stale...)
		for _, lost := range l.losses {
			r.forgetAgain(lost)
		}
	}
	r.stale = append(r.stale, r.stillStale(stale)...)
}

// stillStale returns the connections that must still end and that this Commit has not found.
func (r *revision) stillStale(all []Stale) []Stale {
	found := make(map[Stale]bool, len(r.stale))
	for _, s := range r.stale {
		found[s] = true
	}
	var still []Stale
	isStale := r.staleNow()
	for _, s := range all {
		if !found[s] && isStale(s) {
			found[s] = true
			still = append(still, s)
		}
	}
	return still
}

// StillStale removes, in place, connections of an earlier Commit that may continue: the endpoint serves again, or no port
// has the front. Fronts of the other family stay.
func (t *Table) StillStale(all []Stale) []Stale {
	isStale := t.staleNow()
	return slices.DeleteFunc(all, func(s Stale) bool { return t.config.Family.holds(s.Front.Address) && !isStale(s) })
}

// staleNow returns a function that reports whether once stale connections are still stale after the last Commit.
func (t *Table) staleNow() func(Stale) bool {
	alive := make(map[*port][]netip.AddrPort)
	return func(s Stale) bool {
		winner, taken := t.claims.winners[s.Front]
		if !taken || winner.port.kept != nil {
			return false
		}
		p := winner.port
		if _, known := alive[p]; !known {
			alive[p] = p.alive()
		}
		return !contains(alive[p], s.Target)
	}
}
