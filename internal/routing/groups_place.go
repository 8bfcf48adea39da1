package routing

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// consumers are the zones that use a group, as groups write them.
type consumers struct {
	list []v1alpha1.GroupConsumer
	// nowhere says that endpoints whose zone is unknown are among them.
	nowhere bool
	key     string
}

func (c *consumers) has(zone string) bool {
	return slices.ContainsFunc(c.list, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone })
}

// bucketKey tells apart the groups that endpoints cannot share.
type bucketKey struct {
	part  string
	zones string
	// home is the zone of the endpoints, if it is none of those that use them.
	home string
}

// bucket is all groups that endpoints with the same consumers can share.
type bucket struct {
	key       bucketKey
	part      *part
	consumers *consumers
	// extra are zones that need the groups for want of another with the same port.
	extra []string
	// arriving are endpoints that no group has yet.
	arriving []*carried
}

// standing is a group that exists, or is about to.
type standing struct {
	group *v1alpha1.EndpointGroup // nil if it is about to
	marks marks
	at    map[string]time.Time // of arrivals
	part  *part                // nil if no endpoint has such ports
	bucket,
	// target is the bucket that it is in from now on.
	target *bucket
	// members are the endpoints of the group as the slices have them, nil for each
	// that has gone.
	members []*carried
	// settled is the number of endpoints that are to be in it, kept that of those
	// that are, with those that it only holds. usable are those that proxies take for
	// ready, and live the ones among them that are and stay.
	settled, kept, usable, live int
	arriving                    []*carried
	// dirty says that the group has to be written anyhow.
	dirty bool
}

// planZones finds the zones that the plan knows. One that it has no endpoint for,
// while others have some and nothing was asked for that forbids it, is not among them,
// so that its nodes see everything.
func (p *groupPlanner) planZones() {
	if p.decided == nil {
		return
	}
	served := map[string]bool{}
	for g := range p.decided.Plan.Groups {
		for _, c := range p.decided.Plan.Groups[g].Consumers {
			served[p.decided.Plan.Zones[c.Zone]] = true
		}
	}
	all := p.hard || len(served) == 0
	for _, zone := range p.decided.Region.Zones {
		if zone.Name != "" && (all || served[zone.Name]) {
			p.zones = append(p.zones, zone.Name)
		}
	}
	slices.Sort(p.zones)
}

func (p *groupPlanner) plans(zone string) bool {
	_, found := slices.BinarySearch(p.zones, zone)
	return found
}

// read finds out what the groups are about and which endpoints they have.
func (p *groupPlanner) read() {
	byKey := make(map[string]*part, len(p.parts))
	for _, t := range p.parts {
		byKey[t.key] = t
	}
	for _, s := range p.standing {
		s.marks = readMarks(s.group)
		s.at = s.marks.arrivals()
		s.members = make([]*carried, len(s.group.Spec.Endpoints))
		s.part = byKey[portsKey(s.group.Spec.Ports)]
		if s.part == nil {
			s.part = p.samePods(s.group)
			s.dirty = s.part != nil
		}
		if s.part == nil {
			s.dirty = len(s.group.Spec.Endpoints) > 0
			continue
		}
		planned := slices.DeleteFunc(slices.Clone(s.marks.planned(s.group)), func(c v1alpha1.GroupConsumer) bool {
			return !p.plans(c.Zone)
		})
		home := s.marks.Home
		if !p.plans(home) {
			home = ""
		}
		s.bucket = p.bucketOf(s.part, p.resolve(planned, s.marks.Nowhere), home)
		for i := range s.group.Spec.Endpoints {
			c := s.part.index[s.group.Spec.Endpoints[i].Address]
			s.members[i] = c
			if c != nil {
				c.found(s)
			}
		}
	}
}

// found notes that a group has the endpoint. Groups come in the order of names.
func (c *carried) found(s *standing) {
	at := s.at[c.Address]
	switch {
	case c.readIn == nil:
		c.readIn, c.since = s, at
	case at.After(c.since):
		c.also = append(c.also, c.readIn)
		c.readIn, c.since = s, at
	default:
		c.also = append(c.also, s)
	}
}

// samePods is the part that most of a group's endpoints are in by now, because the
// numbers of their ports have changed.
func (p *groupPlanner) samePods(group *v1alpha1.EndpointGroup) *part {
	var best *part
	most := 0
	for _, t := range p.parts {
		n := 0
		for i := range group.Spec.Endpoints {
			if t.index[group.Spec.Endpoints[i].Address] != nil {
				n++
			}
		}
		if n > most {
			best, most = t, n
		}
	}
	return best
}

// resolve is the one value for a list of consumers.
func (p *groupPlanner) resolve(list []v1alpha1.GroupConsumer, nowhere bool) *consumers {
	list = slices.Clone(list)
	slices.SortFunc(list, func(a, b v1alpha1.GroupConsumer) int { return cmp.Compare(a.Zone, b.Zone) })
	var b strings.Builder
	for _, c := range list {
		b.WriteString(c.Zone + "\x00" + strconv.Itoa(int(c.Weight)) + "\x00")
	}
	b.WriteString(strconv.FormatBool(nowhere))
	key := b.String()
	if known := p.resolved[key]; known != nil {
		return known
	}
	p.resolved[key] = &consumers{list: list, nowhere: nowhere, key: key}
	return p.resolved[key]
}

// planned are the consumers that the plan has for a set, with their weights as
// thousandths.
func (p *groupPlanner) planned(set allocate.ConsumerSet) *consumers {
	if known := p.sets[set]; known != nil {
		return known
	}
	if len(p.sets) == 0 {
		for g := range p.decided.Plan.Groups {
			var list []v1alpha1.GroupConsumer
			nowhere := false
			for _, c := range p.decided.Plan.Groups[g].Consumers {
				zone := p.decided.Plan.Zones[c.Zone]
				if zone == "" {
					nowhere = true
					continue
				}
				list = append(list, v1alpha1.GroupConsumer{Zone: zone, Weight: thousandths(c.Weight)})
			}
			p.sets[p.decided.Plan.ConsumerSet(g)] = p.resolve(list, nowhere)
		}
	}
	if p.sets[set] == nil { // a plan that was made for others
		var list []v1alpha1.GroupConsumer
		for _, zone := range set.Zones() {
			if zone != "" {
				list = append(list, v1alpha1.GroupConsumer{Zone: zone, Weight: fullWeight})
			}
		}
		p.sets[set] = p.resolve(list, slices.Contains(set.Zones(), ""))
	}
	return p.sets[set]
}

// thousandths is a weight as groups carry it: no consumer has none.
func thousandths(weight float64) int32 {
	return min(max(int32(math.Round(weight*fullWeight)), 1), fullWeight)
}

func (p *groupPlanner) bucketOf(t *part, c *consumers, home string) *bucket {
	key := bucketKey{t.key, c.key, home}
	known := p.buckets[key]
	if known == nil {
		known = &bucket{key: key, part: t, consumers: c}
		p.buckets[key] = known
		p.order = append(p.order, known)
	}
	return known
}

// want finds the bucket of each endpoint that is ready.
func (p *groupPlanner) want() {
	if p.decided == nil {
		return
	}
	type wish struct {
		set  allocate.ConsumerSet
		home string
	}
	for _, t := range p.parts {
		known := map[wish]*bucket{}
		for _, c := range t.endpoints {
			if c.NotReady {
				continue
			}
			set, found := p.decided.Assigned[c.Address]
			if !found {
				continue
			}
			w := wish{set, c.Zone}
			if known[w] == nil {
				users, home := p.planned(set), ""
				if p.plans(c.Zone) && !users.has(c.Zone) {
					home = c.Zone
				}
				known[w] = p.bucketOf(t, users, home)
			}
			c.wants = known[w]
		}
	}
}

// target decides which bucket each group is in from now on. It stays in the one that
// it is in as long as any of its endpoints should, and else goes where most of them
// should be.
func (p *groupPlanner) target() {
	votes := map[*standing]map[*bucket]int{}
	for _, t := range p.parts {
		for _, c := range t.endpoints {
			s := c.readIn
			if c.wants == nil || s == nil || s.target != nil {
				continue
			}
			if c.wants == s.bucket {
				s.target = s.bucket
				continue
			}
			if votes[s] == nil {
				votes[s] = map[*bucket]int{}
			}
			votes[s][c.wants]++
		}
	}
	for _, s := range p.standing {
		if s.part == nil || s.target != nil {
			continue
		}
		s.target = s.bucket
		most := 0
		for _, b := range p.order {
			if n := votes[s][b]; n > most {
				s.target, most = b, n
			}
		}
		s.dirty = s.dirty || s.target != s.bucket
	}
}

// settle decides which endpoints stay where they are. The others wait in the bucket
// that they want.
func (p *groupPlanner) settle() {
	for _, t := range p.parts {
		for _, c := range t.endpoints {
			p.settleOne(c)
			if c.in != nil {
				c.in.settled++
			}
		}
	}
	for _, s := range p.standing {
		for i, c := range s.members {
			e := &s.group.Spec.Endpoints[i]
			if !e.NotReady {
				s.usable++
			}
			if !s.keeps(c, e) {
				s.dirty = true
				continue
			}
			s.kept++
			if !e.NotReady && !c.NotReady {
				s.live++
			}
			s.dirty = s.dirty || c.changed(e)
		}
	}
}

// keeps reports whether an endpoint of the group stays there for now: it is one of
// the group's own, or held because it is ready.
func (s *standing) keeps(c *carried, e *v1alpha1.GroupEndpoint) bool {
	return c != nil && (c.in == s || !c.NotReady && !e.NotReady)
}

func (p *groupPlanner) settleOne(c *carried) {
	switch {
	case c.wants == nil && c.readIn != nil:
		c.in = c.readIn
	case c.wants == nil:
		b := p.guess(c)
		b.arriving = append(b.arriving, c)
	case c.readIn != nil && c.readIn.target == c.wants:
		c.in = c.readIn
		// Whoever reads the groups must find the same one.
		c.arrives = len(c.also) > 0 && c.since.IsZero()
	default:
		for _, s := range c.also {
			if s.target == c.wants && c.in == nil {
				c.in, c.arrives = s, true
			}
		}
		if c.in == nil {
			c.wants.arriving = append(c.wants.arriving, c)
		}
	}
	if c.arrives {
		c.in.dirty = true
	}
}

// changed reports whether a group's endpoint is not as it should be, but for domains.
func (c *carried) changed(e *v1alpha1.GroupEndpoint) bool {
	return e.Zone != c.Zone || e.Node != c.Node || e.NotReady != c.NotReady || e.NotServing != c.NotServing || e.Terminating != c.Terminating
}

// guess is where an endpoint that never was ready will probably be: with most of those
// that are at home in the same zone, and else alone with its zone.
func (p *groupPlanner) guess(c *carried) *bucket {
	counts := map[*bucket]int{}
	for _, other := range c.part.endpoints {
		if other.wants != nil && other.Zone == c.Zone {
			counts[other.wants]++
		}
	}
	var best *bucket
	for _, b := range p.order {
		if counts[b] > 0 && (best == nil || counts[b] > counts[best]) {
			best = b
		}
	}
	if best != nil {
		return best
	}
	var zone []v1alpha1.GroupConsumer
	if p.plans(c.Zone) {
		zone = []v1alpha1.GroupConsumer{{Zone: c.Zone, Weight: fullWeight}}
	}
	return p.bucketOf(c.part, p.resolve(zone, false), "")
}

// place finds groups for the endpoints that have none: first in groups that are
// written anyhow, then in the fullest that takes all the rest, and else in new ones.
func (p *groupPlanner) place() {
	members := map[*bucket][]*standing{}
	for _, s := range p.standing {
		if s.target != nil {
			members[s.target] = append(members[s.target], s)
		}
	}
	slices.SortStableFunc(p.order, func(a, b *bucket) int {
		return cmp.Or(cmp.Compare(a.key.part, b.key.part), cmp.Compare(a.key.zones, b.key.zones), cmp.Compare(a.key.home, b.key.home))
	})
	for _, b := range p.order {
		if len(b.arriving) == 0 {
			continue
		}
		slices.SortFunc(b.arriving, func(x, y *carried) int { return cmp.Compare(x.Address, y.Address) })
		// One that had nothing left may be another bucket's by now.
		fullest := slices.DeleteFunc(members[b], func(s *standing) bool { return s.target != b })
		slices.SortStableFunc(fullest, func(x, y *standing) int { return cmp.Compare(y.settled, x.settled) })
		for _, s := range fullest {
			if s.dirty {
				p.fill(s, b)
			}
		}
		for len(b.arriving) > 0 {
			if s := p.roomFor(fullest, b); s != nil {
				p.fill(s, b)
				continue
			}
			p.fill(p.another(b), b)
		}
	}
}

// roomFor is the fullest group that takes all that arrive.
func (p *groupPlanner) roomFor(fullest []*standing, b *bucket) *standing {
	for _, s := range fullest {
		if !s.dirty && p.size-s.settled >= len(b.arriving) && MaxGroupSize-s.kept >= len(b.arriving) {
			return s
		}
	}
	return nil
}

// another is a group that has nothing left, or else a new one.
func (p *groupPlanner) another(b *bucket) *standing {
	for _, s := range p.standing {
		if s.kept == 0 && s.settled == 0 {
			s.part, s.target, s.dirty = b.part, b, true
			return s
		}
	}
	s := &standing{part: b.part, bucket: b, target: b, dirty: true}
	p.created = append(p.created, s)
	return s
}

// fill moves endpoints of the bucket into a group, as many as it takes: by number,
// and by what the API stores in one object.
func (p *groupPlanner) fill(s *standing, b *bucket) {
	left := maxGroupBytes - s.bytes()
	n := 0
	for n < len(b.arriving) && s.settled < p.size && s.kept < MaxGroupSize {
		c := b.arriving[n]
		left -= p.bytesOf(c)
		if left < 0 && s.kept > 0 {
			break
		}
		c.in, c.arrives = s, c.wants != nil && c.readIn != nil
		s.arriving = append(s.arriving, c)
		s.settled++
		s.kept++
		n++
	}
	b.arriving = b.arriving[n:]
	s.dirty = true
}
