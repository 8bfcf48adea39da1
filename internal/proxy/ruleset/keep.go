package ruleset

// Keep stages that the fronts of a ServicePort stay as the kernel holds them until it is Set or
// Removed: the kernel refuses what is asked for, and an earlier run may have made others. Call
// Adopt before, and again before the ServicePort is Set or Removed. If the table is replaced, a
// ServicePort is made as by Set, unless the kernel is known to hold nothing for its fronts.
func (t *Table) Keep(sp ServicePort) {
	p, _ := newPort(t.config, sp) // what is left out is told by Set
	p.keeps = true
	t.staged[sp.Name] = p
}

// keep prepares a port whose fronts are to stay as they are held.
func (r *revision) keep(p *port) {
	if p.kept = nil; !r.remakes(p) {
		p.kept = make(map[Front]*entry, len(p.fronts))
	}
}

// remakes reports whether a port cannot keep its fronts, because the table that may hold them is
// deleted.
func (r *revision) remakes(p *port) bool {
	switch {
	case r.held == nil || !r.held.anew:
		return false
	case r.listing.Unread:
		return true
	case r.listing.Exists && !r.held.lost.sets[sets[setServices].Name]:
		return true // which fronts it holds something for is not known
	}
	for i := range p.fronts {
		if r.held.lost.entries[p.fronts[i].Front] != nil {
			return true
		}
	}
	return false
}

// keepFront keeps a front of a port that keeps its fronts. A front that another port took does not
// come back.
func (r *revision) keepFront(f frontRevision) {
	winner, taken := r.claims.winners[f.front]
	if before := r.ports[f.owner]; before != nil && (!taken || before != winner.port) {
		delete(before.kept, f.front)
	}
	if r.held == nil || !taken || winner.port.kept == nil {
		return
	}
	kept := *f.old
	for _, v := range kept.verdicts {
		if v.leadsToPart() && r.parts[v.Chain] == nil {
			return // no kernel holds such a front
		}
	}
	kept.counted, kept.clusterIP = true, winner.end().ClusterIP && r.addresses[f.front.Address]
	winner.port.kept[f.front] = &kept
}

// keptMemories are the names of the maps that clients of fronts that stay are looked up in.
func (r *revision) keptMemories() map[string]bool {
	names := make(map[string]bool)
	for _, change := range r.revised {
		if change.new == nil {
			continue
		}
		for _, kept := range change.new.kept {
			if p := r.parts[kept.verdicts[setServices].Chain]; p != nil && p.group != "" {
				for pool := range kept.slots {
					names[memoryName(pool, p.group)] = true
				}
			}
		}
	}
	return names
}

// unknown reports whether the rules of a part are not known in full, and so stay. Only kept fronts
// lead to it.
func (p *part) unknown() bool {
	switch p.kind {
	case drawPart:
		return p.memory != nil && p.memory.found != nil
	case rememberPart:
		return p.timeout == 0
	case sourcesPart:
		return p.sources == nil
	}
	return false
}
