package allocate

import (
	"slices"
	"strings"
)

// Plan divides the endpoints of a region into groups. A zone's number is its index in Zones, which
// is in the order of names.
type Plan struct {
	Zones  []string
	Groups []Group
	// AtHome reports that each group has all endpoints of one home zone, which uses it. Only the
	// weights of consumers change.
	AtHome bool
}

// Group is a number of endpoints with the zones that consume them. A zone spreads
// its traffic evenly over the endpoints of all groups that it consumes, each
// endpoint counted with the zone's weight in the group.
type Group struct {
	// Members say how many endpoints come from each home zone, in the order of
	// zones and without zeros.
	Members []Member
	// Consumers are in the order of zones.
	Consumers []Consumer
}

// Member is the part of a group's endpoints that is at home in one zone.
type Member struct {
	Zone, Endpoints int
}

// Consumer is a zone that uses a group.
type Consumer struct {
	Zone int
	// Weight is 1 unless the algorithm is Weighted.
	Weight float64
}

// Size returns the number of endpoints of the group.
func (g Group) Size() int {
	size := 0
	for _, m := range g.Members {
		size += m.Endpoints
	}
	return size
}

// Consumes reports whether the zone uses the group.
func (g Group) Consumes(zone int) bool {
	return slices.ContainsFunc(g.Consumers, func(c Consumer) bool { return c.Zone == zone })
}

// ConsumerSet returns the set of zones that use group g.
func (p Plan) ConsumerSet(g int) ConsumerSet {
	var b strings.Builder
	for _, c := range p.Groups[g].Consumers {
		writeConsumer(&b, p.Zones[c.Zone], c.Weight)
	}
	return ConsumerSet{b.String()}
}

// Clone returns a copy that stays valid after the Planner's next call.
func (p Plan) Clone() Plan {
	clone := Plan{Zones: slices.Clone(p.Zones), Groups: slices.Clone(p.Groups), AtHome: p.AtHome}
	for i := range clone.Groups {
		g := &clone.Groups[i]
		g.Members, g.Consumers = slices.Clone(g.Members), slices.Clone(g.Consumers)
	}
	return clone
}

// hasWeights reports whether a zone uses endpoints with a weight other than 1.
func (p Plan) hasWeights() bool {
	return slices.ContainsFunc(p.Groups, func(g Group) bool {
		return slices.ContainsFunc(g.Consumers, func(c Consumer) bool { return c.Weight != 1 })
	})
}

// Slices returns the number of EndpointSlices that hold the plan's groups. Each slice has endpoints
// of one group only, at most perSlice of them.
func (p Plan) Slices(perSlice int) int {
	n := 0
	for i := range p.Groups {
		n += (p.Groups[i].Size() + perSlice - 1) / perSlice
	}
	return n
}

// builder makes plans and reuses its memory.
type builder struct {
	groups    []Group
	members   []Member
	consumers []Consumer
	ends      []groupEnd
	atHome    bool // see Plan
}

// groupEnd is the end of a group in the pools. The pools may move while they grow, so plan takes
// slices of them last.
type groupEnd struct{ members, consumers int }

func (b *builder) reset() {
	b.groups, b.members, b.consumers, b.ends, b.atHome = b.groups[:0], b.members[:0], b.consumers[:0], b.ends[:0], false
}

// member adds endpoints of a home zone to the current group. Zones must come in order.
func (b *builder) member(zone, endpoints int) {
	if endpoints > 0 {
		b.members = append(b.members, Member{zone, endpoints})
	}
}

// consumer adds a zone that uses the current group. Zones must come in order.
func (b *builder) consumer(zone int, weight float64) {
	b.consumers = append(b.consumers, Consumer{zone, weight})
}

// close ends the current group. It drops a group without endpoints.
func (b *builder) close() {
	last := groupEnd{}
	if n := len(b.ends); n > 0 {
		last = b.ends[n-1]
	}
	if len(b.members) == last.members {
		b.consumers = b.consumers[:last.consumers]
		return
	}
	b.ends = append(b.ends, groupEnd{len(b.members), len(b.consumers)})
}

// merge joins groups that have the same consumers.
func (b *builder) merge() {
	plan := b.plan(nil).Clone()
	b.reset()
	done := make([]bool, len(plan.Groups))
	for g := range plan.Groups {
		if done[g] {
			continue
		}
		members := plan.Groups[g].Members
		for i := g + 1; i < len(plan.Groups); i++ {
			if !done[i] && slices.Equal(plan.Groups[i].Consumers, plan.Groups[g].Consumers) {
				members, done[i] = append(members, plan.Groups[i].Members...), true
			}
		}
		b.members = append(b.members, members...)
		b.consumers = append(b.consumers, plan.Groups[g].Consumers...)
		b.close()
	}
}

// plan returns the plan of all groups so far. The caller may add more and call it again.
func (b *builder) plan(zones []string) Plan {
	b.groups = slices.Grow(b.groups[:0], len(b.ends))[:len(b.ends)]
	start := groupEnd{}
	for i, end := range b.ends {
		g := &b.groups[i]
		g.Members = b.members[start.members:end.members:end.members]
		g.Consumers = b.consumers[start.consumers:end.consumers:end.consumers]
		start = end
	}
	return Plan{Zones: zones, Groups: b.groups, AtHome: b.atHome}
}
