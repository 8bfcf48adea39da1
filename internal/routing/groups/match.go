package groups

import (
	"cmp"
	"slices"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// group is an existing or new group, with its present and future endpoints.
type group struct {
	object *v1alpha1.EndpointGroup // nil for a new one
	// marks and arrivals are read from the object.
	marks    marks
	arrivals map[string]time.Time
	// from is the share of the object, and share the one from now on. Both are nil if no endpoint has such ports.
	from, share *share
	// members are the endpoints of the object, each nil if the slices do not have it.
	members []*placement
	// arriving are endpoints that enter the group by this step, in the order of addresses.
	arriving []*placement
	// belonging counts the endpoints that belong to the group from now on, and kept also the endpoints that it only
	// holds.
	belonging, kept int
	// usable counts members that proxies take for ready. live counts those of them that are ready and stay as long as
	// nothing is taken from the group.
	usable, live int
	// dirty says that the group is written in any case.
	dirty bool
}

type placement struct {
	*sliceEndpoint
	// readIn is the group that has the endpoint according to the last plan. since is when it came there from another
	// group. also are other groups that have it.
	readIn *group
	since  time.Time
	also   []*group
	// in is the group of the endpoint from now on. arrives says that it comes there from another one by this step.
	in      *group
	arrives bool
}

// match decides which group has which endpoint, and which groups there will be. It does not look at time: hold decides
// how long other groups keep an endpoint.
//
// Every endpoint belongs to one group, which has the endpoint's share. A planned endpoint stays where it is if its
// group has, or gets, its share. An unplanned endpoint stays in any case. The others first fill groups that are written
// in any case, then one group that has room for all of them, and then new groups. Existing groups come first, in the
// order of names; some may end up empty.
func match(w *want, existing []*v1alpha1.EndpointGroup) []*group {
	groups, places := readGroups(w, existing)
	for _, g := range groups {
		g.share = g.targetShare()
		g.dirty = g.dirty || g.share != g.from
	}
	homeless := settlePlacements(places)
	for _, g := range groups {
		g.countMembers()
	}
	return append(groups, placeHomeless(w, groups, homeless)...)
}

func readGroups(w *want, existing []*v1alpha1.EndpointGroup) ([]*group, []placement) {
	places := make([]placement, w.endpoints)
	parts := make(map[string]*part, len(w.parts))
	for _, t := range w.parts {
		parts[t.key] = t
		for _, e := range t.endpoints {
			places[e.number].sliceEndpoint = e
		}
	}
	groups := make([]*group, 0, len(existing))
	for _, object := range existing {
		groups = append(groups, &group{object: object, marks: readMarks(object)})
	}
	slices.SortFunc(groups, func(a, b *group) int { return cmp.Compare(a.object.Name, b.object.Name) })
	for _, g := range groups {
		endpoints := g.object.Spec.Endpoints
		g.arrivals = g.marks.arrivals()
		g.members = make([]*placement, len(endpoints))
		t := parts[portsKey(g.object.Spec.Ports)]
		if t == nil {
			if t = w.samePods(g.object); t == nil {
				continue
			}
			g.dirty = true
		}
		g.from = w.shareOf(g, t)
		for i := range endpoints {
			if e := t.byAddress[endpoints[i].Address]; e != nil {
				g.members[i] = &places[e.number]
				g.members[i].foundIn(g)
			}
		}
	}
	return groups, places
}

// samePods returns the part with most of the group's endpoints, for a group whose ports have new numbers.
func (w *want) samePods(object *v1alpha1.EndpointGroup) *part {
	var best *part
	most := 0
	for _, t := range w.parts {
		n := 0
		for i := range object.Spec.Endpoints {
			if t.byAddress[object.Spec.Endpoints[i].Address] != nil {
				n++
			}
		}
		if n > most {
			best, most = t, n
		}
	}
	return best
}

// shareOf returns the share of the existing group, which need not be a wanted one.
func (w *want) shareOf(g *group, t *part) *share {
	users := consumers{nowhere: g.marks.Nowhere, list: slices.DeleteFunc(slices.Clone(g.marks.plannedConsumers(g.object)), func(c v1alpha1.GroupConsumer) bool {
		return !w.plans(c.Zone)
	})}
	sortConsumers(users.list)
	key := shareKey{part: t.key, consumers: users.key()}
	if w.plans(g.marks.Home) {
		key.home = g.marks.Home
	}
	if i, found := slices.BinarySearchFunc(w.shares, key, func(s *share, key shareKey) int { return s.key.compare(key) }); found {
		return w.shares[i]
	}
	return &share{key: key, part: t, consumers: users}
}

// foundIn notes that a group has the endpoint. It is called in the order of group names.
func (p *placement) foundIn(g *group) {
	at := g.arrivals[p.Address]
	switch {
	case p.readIn == nil:
		p.readIn, p.since = g, at
	case at.After(p.since):
		p.also = append(p.also, p.readIn)
		p.readIn, p.since = g, at
	default:
		p.also = append(p.also, g)
	}
}

// targetShare returns the share of a group from now on: its present one if any planned endpoint has it, or else the one
// that most of them have.
func (g *group) targetShare() *share {
	var votes map[*share]int
	for _, p := range g.members {
		if p == nil || !p.planned || p.readIn != g {
			continue
		}
		if p.share == g.from {
			return g.from
		}
		if votes == nil {
			votes = map[*share]int{}
		}
		votes[p.share]++
	}
	if best := mostFrequent(votes); best != nil {
		return best
	}
	return g.from
}

// settlePlacements keeps endpoints in their groups where possible, and returns the others by their shares.
func settlePlacements(places []placement) map[*share][]*placement {
	homeless := map[*share][]*placement{}
	for i := range places {
		p := &places[i]
		p.in, p.arrives = p.staysIn()
		if p.in == nil {
			homeless[p.share] = append(homeless[p.share], p)
			continue
		}
		p.in.belonging++
		p.in.dirty = p.in.dirty || p.arrives
	}
	return homeless
}

// staysIn returns the existing group in which the endpoint stays, nil if there is none. The endpoint arrives there if the
// existing groups do not show that it belongs there.
func (p *placement) staysIn() (g *group, arrives bool) {
	switch {
	case p.readIn == nil:
		return nil, false
	case !p.planned:
		return p.readIn, false
	case p.readIn.share == p.share:
		return p.readIn, len(p.also) > 0 && p.since.IsZero()
	}
	for _, g := range p.also {
		if g.share == p.share {
			return g, true
		}
	}
	return nil, false
}

func (g *group) countMembers() {
	for i, p := range g.members {
		e := &g.object.Spec.Endpoints[i]
		if !e.NotReady {
			g.usable++
		}
		if !g.keeps(i) {
			g.dirty = true
			continue
		}
		g.kept++
		if !e.NotReady && !p.NotReady {
			g.live++
		}
		g.dirty = g.dirty || !sameState(e, &p.GroupEndpoint)
	}
}

// keeps reports whether a member stays for now: it belongs to the group, or is held because it is ready.
func (g *group) keeps(i int) bool {
	p := g.members[i]
	return p != nil && (p.in == g || !p.NotReady && !g.object.Spec.Endpoints[i].NotReady)
}

// placeHomeless finds groups for homeless endpoints, and returns the new ones.
func placeHomeless(w *want, groups []*group, homeless map[*share][]*placement) []*group {
	var created []*group
	for _, s := range w.shares {
		waiting := homeless[s]
		if len(waiting) == 0 {
			continue
		}
		slices.SortFunc(waiting, func(a, b *placement) int { return cmp.Compare(a.Address, b.Address) })
		fullest := slices.DeleteFunc(slices.Clone(groups), func(g *group) bool { return g.share != s })
		slices.SortStableFunc(fullest, func(a, b *group) int { return cmp.Compare(b.belonging, a.belonging) })
		for _, g := range fullest {
			if g.dirty {
				waiting = g.fill(waiting, w.size)
			}
		}
		for len(waiting) > 0 {
			i := slices.IndexFunc(fullest, func(g *group) bool {
				return !g.dirty && w.size-g.belonging >= len(waiting) && MaxSize-g.kept >= len(waiting)
			})
			switch empty := slices.IndexFunc(groups, func(g *group) bool { return g.kept+g.belonging == 0 }); {
			case i >= 0:
				waiting = fullest[i].fill(waiting, w.size)
			case empty >= 0:
				groups[empty].share = s
				waiting = groups[empty].fill(waiting, w.size)
			default:
				g := &group{share: s}
				created = append(created, g)
				waiting = g.fill(waiting, w.size)
			}
		}
	}
	return created
}

// fill adds endpoints up to the limits of the group, and returns the rest.
func (g *group) fill(waiting []*placement, size int) []*placement {
	n := 0
	for n < len(waiting) && g.belonging < size && g.kept < MaxSize {
		p := waiting[n]
		p.in, p.arrives = g, p.planned && p.readIn != nil
		g.arriving = append(g.arriving, p)
		g.belonging++
		g.kept++
		n++
	}
	g.dirty = true
	return waiting[n:]
}
