package groups

import (
	"cmp"
	"slices"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// group is a group that exists, or is to be made, with the endpoints that it has and is
// to have.
type group struct {
	object *v1alpha1.EndpointGroup // nil for a new one
	// marks and arrivals are those of the object.
	marks    marks
	arrivals map[string]time.Time
	// from is the share that the object says, and share the one that the group has from
	// now on. Both are nil if no endpoint has such ports.
	from, share *share
	// members are the endpoints of the object, each nil if the slices do not have it.
	members []*placement
	// arriving are endpoints that come into the group by this step, in the order of
	// addresses.
	arriving []*placement
	// belonging is the number of endpoints that are to be in the group, and kept that of
	// these and those that it only holds.
	belonging, kept int
	// usable is the number of members that proxies take for ready. Of these, live are
	// ready, and in the group as long as nothing is taken from it.
	usable, live int
	// dirty says that the group has to be written in any case.
	dirty bool
}

type placement struct {
	*sliceEndpoint
	// readIn is the group that the plan of the endpoint is read from, and since when it is
	// there if it came from another. also are other groups that have it.
	readIn *group
	since  time.Time
	also   []*group
	// in is the group that the endpoint belongs to from now on. arrives says that it goes
	// there from another by this step.
	in      *group
	arrives bool
}

// match decides which group has which endpoint, and which groups there are to be. It knows
// no time: what a group has beyond that is for hold to decide.
//
// Every endpoint belongs to one group, which has the endpoint's share. A planned endpoint
// stays where it is if its group has, or gets, its share. One that is not planned stays in
// any case. The others fill first the groups that are written in any case, then a group
// that takes all of them, and then new ones. Existing groups come first, in the order of
// names; some may have no endpoint left.
func match(w *want, existing []*v1alpha1.EndpointGroup) []*group {
	groups, places := read(w, existing)
	for _, g := range groups {
		g.share = g.target()
		g.dirty = g.dirty || g.share != g.from
	}
	homeless := settle(places)
	for _, g := range groups {
		g.count()
	}
	return append(groups, place(w, groups, homeless)...)
}

func read(w *want, existing []*v1alpha1.EndpointGroup) ([]*group, []placement) {
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

// samePods is the part that most of a group's endpoints are in by now, because the numbers
// of their ports have changed.
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

// shareOf is the share that a group has by what it says, which may be none of those that
// are wanted.
func (w *want) shareOf(g *group, t *part) *share {
	users := consumers{nowhere: g.marks.Nowhere, list: slices.DeleteFunc(slices.Clone(g.marks.planned(g.object)), func(c v1alpha1.GroupConsumer) bool {
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

// foundIn notes that a group has the endpoint. Groups come in the order of names.
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

// target is the share that a group has from now on: the one that it has as long as it is
// that of any planned endpoint, else the one of most.
func (g *group) target() *share {
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
	if best := most(votes); best != nil {
		return best
	}
	return g.from
}

// settle has the endpoints stay that can, and returns the others by their shares.
func settle(places []placement) map[*share][]*placement {
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

// staysIn is the group that has the endpoint already and is to have it, nil if there is
// none. It arrives there if the groups would not tell, when read now.
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

func (g *group) count() {
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

// keeps reports whether a member stays for now: it belongs to the group, or is held
// because it is ready.
func (g *group) keeps(i int) bool {
	p := g.members[i]
	return p != nil && (p.in == g || !p.NotReady && !g.object.Spec.Endpoints[i].NotReady)
}

// place finds groups for the endpoints that have none, and returns the new ones.
func place(w *want, groups []*group, homeless map[*share][]*placement) []*group {
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

// fill takes as many of the endpoints as the group has room for, by number and by what the
// API stores in one object, and returns the rest.
func (g *group) fill(waiting []*placement, size int) []*placement {
	left := maxBytes - g.bytes()
	n := 0
	for n < len(waiting) && g.belonging < size && g.kept < MaxSize {
		p := waiting[n]
		left -= bytesOf(&p.GroupEndpoint)
		if left < 0 && g.kept > 0 {
			break
		}
		p.in, p.arrives = g, p.planned && p.readIn != nil
		g.arriving = append(g.arriving, p)
		g.belonging++
		g.kept++
		n++
	}
	g.dirty = true
	return waiting[n:]
}

// maxBytes is how much a group is filled to at most. The API takes somewhat more than a
// megabyte, and beside an endpoint it keeps who wrote it.
const maxBytes = 900 << 10

func (g *group) bytes() int {
	n := 16 << 10 // zones, ports and labels
	if g.object != nil {
		for i := range g.object.Spec.Endpoints {
			n += bytesOf(&g.object.Spec.Endpoints[i])
		}
	}
	return n
}

func bytesOf(e *v1alpha1.GroupEndpoint) int {
	n := 3*len(e.Address) + len(e.Zone) + len(e.Node) + 200
	for key, value := range e.Domains {
		n += 2*len(key) + len(value) + 16
	}
	return n
}
