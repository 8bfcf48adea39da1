package ruleset

import "slices"

// Blamed returns the sorted names of the pending ServicePorts that need a change of the last Commit: its element or, if
// the element is negative, its chain or set. Changes for all ports blame none.
func (t *Table) Blamed(c Change, element int) []string {
	needs := func(*port) bool { return false }
	switch {
	case c.Kind == AddElements && element >= 0 && element < len(c.Elements):
		needs = t.needsElement(c.Set, c.Elements[element].Key)
	case c.Kind == AddSet:
		needs = t.needsPart(c.Set.Name)
	case c.Kind == AddChain, c.Kind == ReplaceRules:
		needs = t.needsPart(c.Chain.Name)
	}
	var names []string
	for name := range t.pending {
		if p := t.ports[name]; p != nil && needs(p) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

func (t *Table) needsElement(set *Set, key string) func(*port) bool {
	if set.Name == sets[setHairpin].Name {
		return func(*port) bool { return false }
	}
	if set.Name == sets[setClusterIPs].Name {
		return func(p *port) bool {
			return slices.ContainsFunc(p.fronts, func(end FrontEnd) bool { return end.ClusterIP && addressKey(end.Address) == key })
		}
	}
	front, _, ok := t.config.Family.TakeFront(key)
	winner, taken := t.claims.winners[front]
	return func(p *port) bool { return ok && taken && winner.port == p }
}

func (t *Table) needsPart(name string) func(*port) bool {
	leads := map[string]bool{name: true} // whether a part leads to the named one
	var leadsThere func(string) bool
	leadsThere = func(from string) bool {
		known, seen := leads[from]
		if seen {
			return known
		}
		if p := t.parts[from]; p != nil {
			known = slices.ContainsFunc(p.leadsTo(), leadsThere)
		}
		leads[from] = known
		return known
	}
	if t.parts[name] == nil {
		return func(*port) bool { return false }
	}
	return func(p *port) bool {
		return slices.ContainsFunc(p.fronts, func(end FrontEnd) bool {
			if t.claims.winners[end.Front].port != p {
				return false
			}
			for _, v := range p.entry(&end).verdicts {
				if v.leadsToPart() && leadsThere(v.Chain) {
					return true
				}
			}
			return false
		})
	}
}
