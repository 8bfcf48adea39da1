package ruleset

// Keep stages that the fronts of a ServicePort keep their kernel rules until Set or Remove: the kernel refuses the current
// rules, and may have those of an earlier process. Call Adopt before, and again before Set or Remove. If the table is
// replaced, the ServicePort is made as by Set, unless the kernel is known to have nothing for its fronts.
func (t *Table) Keep(sp ServicePort) {
	sp.Known.Drained = nil // until new connections go elsewhere
	p := newPort(t.config, sp)
	p.keeps = true
	t.staged[sp.Name] = p
}

// keep prepares a port whose fronts keep their kernel rules.
func (r *revision) keep(p *port) {
	if p.kept = nil; !r.mustRemake(p) {
		p.kept = make(map[Front]*entry, len(p.fronts))
	}
}

// mustRemake reports whether a port cannot keep its fronts, because the transaction deletes the table that may have them.
func (r *revision) mustRemake(p *port) bool {
	switch {
	case r.held == nil || !r.held.replaceTable:
		return false
	case r.listing.Unread:
		return true
	case r.listing.Exists && !r.held.lost.sets[sets[setServices].Name]:
		return true // it is unknown which fronts the table has
	}
	for i := range p.fronts {
		if r.held.lost.entries[p.fronts[i].Front] != nil {
			return true
		}
	}
	return false
}

// keepFront keeps the kernel's entry of a front, if its port keeps its fronts. A front that another port took does not come
// back.
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
			return // no kernel has such a front
		}
	}
	kept.counted, kept.clusterIP = true, winner.end().ClusterIP && r.addresses[f.front.Address]
	winner.port.kept[f.front] = &kept
}

// keptMemories returns the names of the maps of clients that kept fronts use.
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

// unknown reports whether the rules of a part are not fully known, so that they stay. Only kept fronts lead to such parts.
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
