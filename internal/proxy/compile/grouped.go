package compile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/topology"
)

// fullWeight is the weight of an endpoint that is used by the zone alone.
const fullWeight = ruleset.MostWeight

// grouped has the endpoints of a Service from the groups that the node receives.
type grouped struct {
	roll
	node     *Node
	groups   []*v1alpha1.EndpointGroup
	hasPorts []bool
	uses     []use
	// tiers are the different ones of the groups that the node uses. The node uses the
	// nearest endpoints of each.
	tiers []nodeTiers
	// nearest is scratch: the nearest rank with an endpoint, for each of tiers.
	nearest []int
	// anyReady says that an endpoint is ready somewhere.
	anyReady bool
	// hard says that the node must not use endpoints that no tier reaches.
	hard bool
	// view is the node's zone if some group is not for all zones, or else empty.
	view string
	// weighted says that not all weights are the same.
	weighted bool
}

// use is what the node does with a group.
type use struct {
	// tiers is an index of grouped.tiers, or unused.
	tiers  int
	weight int
}

// unused is for a group from which the node uses only endpoints on the node, for traffic
// that must stay there.
const unused = -1

// groupsOf are the groups of the Service, in the order of names.
func groupsOf(in Input) []*v1alpha1.EndpointGroup {
	list := make([]*v1alpha1.EndpointGroup, 0, len(in.Groups))
	for _, g := range in.Groups {
		if g == nil || g.Namespace != in.Service.Namespace || g.Spec.Service != in.Service.Name {
			continue
		}
		// A group for DNS may be left of a headless Service that had the same name.
		if _, headless := g.Labels[corev1.IsHeadlessService]; !headless {
			list = append(list, g)
		}
	}
	slices.SortFunc(list, func(a, b *v1alpha1.EndpointGroup) int { return strings.Compare(a.Name, b.Name) })
	return list
}

// newGrouped reads the groups of a family. It is nil if there are none.
func newGrouped(all []*v1alpha1.EndpointGroup, family ruleset.Family, node *Node, notes *[]string) *grouped {
	d := &grouped{roll: roll{family: family}, node: node}
	n := 0
	for _, g := range all {
		if string(g.Spec.AddressType) == familyName(family) {
			d.groups = append(d.groups, g)
			n += len(g.Spec.Endpoints)
		}
	}
	if len(d.groups) == 0 {
		return nil
	}
	d.rows = make([]row, 0, n)
	d.ports = make([]uint16, len(d.groups))
	d.hasPorts = make([]bool, len(d.groups))
	d.uses = make([]use, len(d.groups))
	for i, g := range d.groups {
		d.uses[i] = d.use(g, notes)
		for label := range g.Labels {
			if strings.HasPrefix(label, v1alpha1.LabelNotForPrefix) {
				d.view = node.Zone
			}
		}
		var strange ignored
		for j := range g.Spec.Ports {
			if _, _, ok := groupPort(&g.Spec.Ports[j]); ok {
				d.hasPorts[i] = true
			} else {
				strange.add(g.Spec.Ports[j].Name)
			}
		}
		strange.note(notes, "EndpointGroup", g.Name, "ports", "a protocol and number that a Service can have")
		d.readEndpoints(i, g, notes)
	}
	d.nearest = make([]int, len(d.tiers))
	d.close()
	return d
}

func (d *grouped) readEndpoints(i int, g *v1alpha1.EndpointGroup, notes *[]string) {
	var strange strangeEndpoints
	for j := range g.Spec.Endpoints {
		e := &g.Spec.Endpoints[j]
		var state uint64
		if e.Terminating {
			state |= terminating
		}
		if e.NotReady {
			state |= notReady
		}
		if e.NotServing {
			state |= notServing
		}
		if e.Node != "" && e.Node == d.node.Name {
			state |= onNode
		}
		if e.Zone != d.node.Zone {
			state |= away
		}
		rank := none
		if tiers := d.uses[i].tiers; tiers != unused {
			rank = d.tiers[tiers].rank(e)
		}
		state |= uint64(rank) << rankShift
		d.add(e.Address, state, i, j, &strange)
	}
	strange.note(notes, "EndpointGroup", g.Name, d.family)
}

// groupPort reads a port of a group.
func groupPort(p *v1alpha1.GroupPort) (key portKey, number uint16, ok bool) {
	key.name = p.Name
	if key.protocol, ok = protocolOf(p.Protocol); !ok {
		return key, 0, false
	}
	number, ok = portOf(p.Port)
	return key, number, ok
}

// use decides what the node does with a group: it uses it unless the group is not for its
// zone, or is there for local traffic only.
func (d *grouped) use(g *v1alpha1.EndpointGroup, notes *[]string) use {
	zone := d.node.Zone
	if zone != "" {
		if _, hidden := g.Labels[v1alpha1.LabelNotForPrefix+zone]; hidden {
			return use{tiers: unused}
		}
	}
	d.anyReady = d.anyReady || g.Spec.AnyReady
	d.hard = d.hard || topology.Tiers(g.Spec.Tiers).Hard()

	u := use{weight: fullWeight}
	named := slices.IndexFunc(g.Spec.Consumers, func(c v1alpha1.GroupConsumer) bool { return c.Zone == zone })
	switch {
	case zone == "":
		// Weights are by zone. A node without a zone uses all endpoints alike.
	case named >= 0:
		u.weight = d.weight(g, g.Spec.Consumers[named].Weight, notes)
	case g.Spec.LocalOnly && slices.ContainsFunc(g.Spec.Endpoints, func(e v1alpha1.GroupEndpoint) bool { return e.Zone == zone }):
		return use{tiers: unused}
	}
	d.weighted = d.weighted || u.weight != fullWeight
	u.tiers = slices.IndexFunc(d.tiers, func(t nodeTiers) bool { return slices.Equal(t.keys, g.Spec.Tiers) })
	if u.tiers < 0 {
		u.tiers = len(d.tiers)
		d.tiers = append(d.tiers, d.node.tiers(g.Spec.Tiers))
	}
	return u
}

// weight is the weight of a group for the node's zone, full if the group has none.
func (d *grouped) weight(g *v1alpha1.EndpointGroup, given int32, notes *[]string) int {
	switch {
	case given == 0:
		return fullWeight
	case given < 0 || given > fullWeight:
		*notes = append(*notes, fmt.Sprintf("EndpointGroup %s: weight %d of zone %s counts as %d; it must be 1 to %d",
			g.Name, given, d.node.Zone, fullWeight, fullWeight))
		return fullWeight
	}
	return int(given)
}

func (d *grouped) at(r row) *v1alpha1.GroupEndpoint {
	return &d.groups[r.object()].Spec.Endpoints[r.index()]
}

func (d *grouped) endpoints() Endpoints {
	return d.places(func(r row) string { return d.at(r).Zone })
}

func (d *grouped) localReady() int { return d.roll.localReady(d.hasPorts) }

// supply takes the nearest endpoints that the node's zone may use for traffic that may go
// anywhere, and all on the node for traffic that stays there.
func (d *grouped) supply(port portKey, n need) supply {
	for i, g := range d.groups {
		d.ports[i] = 0
		for j := range g.Spec.Ports {
			if key, number, ok := groupPort(&g.Spec.Ports[j]); ok && key == port {
				d.ports[i] = number
				break
			}
		}
	}
	var seen census
	d.visit(func(run []row, _ uint16) { seen.see(run[0]) })
	got := seen.supply(need{local: n.local}, 0)
	got.exists = got.exists || d.anyReady
	if n.cluster {
		// Terminating endpoints are used if no ready one may be. There may be ready ones
		// elsewhere, but until the controller gives the zone some, or if tiers are hard,
		// the alternative is to refuse.
		if seen.ready > 0 {
			d.cluster(&got, false, seen.ready)
		}
		if len(got.cluster) == 0 && seen.leaving > 0 {
			d.cluster(&got, true, seen.leaving)
		}
		got.beyond = d.hard && got.exists && len(got.cluster) == 0
	}
	if n.local {
		d.visit(func(run []row, number uint16) {
			if seen.local(run[0]) {
				got.local = append(got.local, d.target(run[0], number))
			}
		})
	}
	d.known(&got, d.view)
	return got
}

// cluster finds the endpoints for traffic that may go anywhere, at most so many.
func (d *grouped) cluster(got *supply, lastResort bool, most int) {
	if d.findNearest() {
		most = 0
		d.visit(func(run []row, _ uint16) {
			if run[0].taking(lastResort) {
				most += d.approach(run)
			}
		})
	}
	if most > 0 {
		got.cluster = make([]netip.AddrPort, 0, most)
	}
	got.weights = nil
	if d.weighted {
		got.weights = make([]uint32, 0, most)
	}
	d.visit(func(run []row, number uint16) {
		if !run[0].taking(lastResort) {
			return
		}
		weight := d.weightOf(run)
		if weight == 0 {
			return
		}
		got.cluster = append(got.cluster, d.target(run[0], number))
		if d.weighted {
			got.weights = append(got.weights, uint32(weight))
		}
	})
	if n := len(got.weights); n > 0 && slices.Max(got.weights) == slices.Min(got.weights) {
		got.weights = nil
	}
}

// findNearest resets the nearest ranks. It reports whether approach has to find them.
func (d *grouped) findNearest() bool {
	constrained := false
	for i := range d.tiers {
		d.nearest[i] = 0
		if len(d.tiers[i].keys) > 0 {
			d.nearest[i], constrained = none-1, true
		}
	}
	return constrained
}

// approach notes the rank of an endpoint. It returns how many endpoints it adds at most to
// those of the nearest ranks.
func (d *grouped) approach(run []row) int {
	more := 0
	for _, r := range run {
		rank := r.rank()
		if rank == none || !d.same(r, run[0]) {
			continue
		}
		if tiers := d.uses[r.object()].tiers; rank <= d.nearest[tiers] {
			d.nearest[tiers], more = rank, 1
		}
	}
	return more
}

// weightOf is the weight of an endpoint: the greatest of its groups, and zero if the node
// does not use it.
func (d *grouped) weightOf(run []row) int {
	weight := 0
	for _, r := range run {
		u, rank := d.uses[r.object()], r.rank()
		if rank != none && rank == d.nearest[u.tiers] && u.weight > weight && d.same(r, run[0]) {
			weight = u.weight
		}
	}
	return weight
}

// same reports whether two rows of one address are about the same endpoint. An address that
// passes to another pod is in the groups of both for a while.
func (d *grouped) same(a, b row) bool {
	return a == b || d.at(a).Node == d.at(b).Node
}
