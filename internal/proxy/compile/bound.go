package compile

import (
	"encoding/binary"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"slices"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// A Service may ask for more than a node can hold: each of its ports has each of its
// addresses, and each of those all its endpoints. A bound is kept by leaving out, in this
// order: external IPs, the last ones first; node ports; addresses of load balancers; and,
// where the cluster IPs alone are too many, the same share of the endpoints of each port.
// Endpoints that are left out on one node are others than those on another node. So what is
// left serves with the endpoints of now, and depends on nothing that was before.

// families compiles a Service in all its families.
func (c *compiler) families(halves []*half) Result {
	all := &room{most: c.most}
	result := c.within(halves, all)
	if !all.fits() {
		result = c.within(halves, c.reduce(halves))
	}
	result.Elements = all.taken
	return result
}

// within compiles a Service as far as there is room.
func (c *compiler) within(halves []*half, left *room) Result {
	var result Result
	for _, h := range halves {
		left.take(h.onNode())
	}
	for _, h := range halves {
		if f := c.family(h, left); len(f.Ports) > 0 {
			result.Families = append(result.Families, f)
		}
	}
	return result
}

// room is what the rules may take of the kernel.
type room struct {
	// most is the bound, none if it is zero.
	most, taken int
	// Of wanted elements of fronts and chains, ports may take so many as are shared. Zero is
	// all.
	shared, wanted int
}

// take takes elements, and reports whether there was room for all that were taken.
func (r *room) take(elements int) bool {
	r.taken += elements
	return r.fits()
}

func (r *room) fits() bool { return r.most == 0 || r.taken <= r.most }

// scarce reports whether ports get a share only.
func (r *room) scarce() bool { return r.wanted > 0 }

// needs are the elements that ports need in one family.
type needs struct {
	// ports are those of chains, inside those of the cluster IP, and sources those that tell
	// who may connect to load balancers.
	ports, inside, sources int
	// outside are those of all other addresses, and each of one of them at most.
	outside, each int
}

func (n needs) all() int { return n.ports + n.inside + n.sources + n.outside }

func (n *needs) add(other needs) {
	n.ports += other.ports
	n.inside += other.inside
	n.sources += other.sources
	n.outside += other.outside
	n.each += other.each
}

// needsOf are those of one port with its endpoints.
func (c *compiler) needsOf(h *half, port *servicePort, got supply) needs {
	sticky, weighted, guarded := c.affinity > 0, got.weights != nil, len(h.balancer) > 0 && len(h.sources) > 0
	inside, outside := len(got.cluster), len(got.cluster)
	if c.policy.internal == ruleset.PoolLocal {
		inside = len(got.local)
	}
	if c.policy.external == ruleset.PoolSplit {
		outside += len(got.local)
	}
	others := len(h.external) + len(h.balancer)
	if port.nodePort != 0 {
		others += len(h.nodes)
	}
	known := len(got.known.Serving) + len(got.known.Silent) + len(got.known.Fleeting)
	n := needs{
		ports: ruleset.PortCost(sticky, weighted, 0, known), inside: ruleset.FrontCost(inside, sticky, false),
		each: ruleset.FrontCost(outside, sticky, guarded),
	}
	n.outside = others * n.each
	if guarded {
		n.sources = ruleset.PortCost(sticky, weighted, len(h.sources), known) - n.ports
	}
	return n
}

// reduce leaves out addresses until what is needed is not more than the bound, and says
// what ports may take then.
func (c *compiler) reduce(halves []*half) *room {
	fixed, inside := 0, 0
	for _, h := range halves {
		fixed += h.onNode()
		inside += h.needs.ports + h.needs.inside
	}
	left := c.most - fixed - inside
	if left < 0 {
		for _, h := range halves {
			h.keep(0)
		}
		return &room{most: c.most, shared: max(0, c.most-fixed), wanted: inside}
	}
	nodePorts := slices.ContainsFunc(c.ports, func(p servicePort) bool { return p.nodePort != 0 })
	for _, h := range halves {
		if !nodePorts {
			h.nodes = nil
		}
		if available := left - h.needs.sources; available >= 0 && h.needs.each > 0 {
			kept := h.keep(available / h.needs.each)
			left = available - kept*h.needs.each
		} else {
			h.keep(0)
		}
	}
	return &room{most: c.most}
}

// keep keeps so many addresses beside the cluster IP, and returns how many these are.
func (a *addresses) keep(most int) (kept int) {
	for _, list := range []*[]netip.Addr{&a.balancer, &a.nodes, &a.external} {
		n := min(most-kept, len(*list))
		*list = (*list)[:n]
		kept += n
	}
	return kept
}

// cut leaves a port the endpoints that it has room for in its share, and what it knows of no
// other, so that connections to these do not go on. It is false if there is room for none.
func (c *compiler) cut(h *half, port *servicePort, got supply, left *room) (supply, bool) {
	wanted := c.needsOf(h, port, got).all()
	got.known = ruleset.Known{}
	share := int(float64(wanted) * float64(left.shared) / float64(left.wanted))
	pool := &got.cluster
	if c.policy.internal == ruleset.PoolLocal {
		pool = &got.local
	}
	slots := max(0, len(*pool)-(c.needsOf(h, port, got).all()-share))
	before := *pool
	*pool = part(before, slots, c.options.Node.Name)
	if pool == &got.cluster {
		got.weights = keptWeights(*pool, before, got.weights)
	}
	return got, len(*pool) > 0 || len(before) == 0
}

// keptWeights are the weights of those targets that are left of all, in their order.
func keptWeights(left, all []netip.AddrPort, weights []uint32) []uint32 {
	if weights == nil {
		return nil
	}
	kept := make([]uint32, 0, len(left))
	for i, target := range all {
		if len(kept) < len(left) && target == left[len(kept)] {
			kept = append(kept, weights[i])
		}
	}
	return kept
}

// part picks so many of some targets, by an order that is another on each node and the same
// at all times.
func part(targets []netip.AddrPort, most int, node string) []netip.AddrPort {
	if most >= len(targets) {
		return targets
	}
	seed := fnv.New64a()
	_, _ = seed.Write([]byte(node))
	own := seed.Sum64()
	places := make([]uint64, len(targets))
	for i, target := range targets {
		address := target.Addr().As16()
		low := binary.BigEndian.Uint64(address[8:]) ^ uint64(target.Port())<<48
		places[i] = rand.NewPCG(own^binary.BigEndian.Uint64(address[:8]), low).Uint64()
	}
	sorted := slices.Sorted(slices.Values(places))
	kept := make([]netip.AddrPort, 0, most)
	for i, target := range targets {
		if len(kept) < most && places[i] < sorted[most] {
			kept = append(kept, target)
		}
	}
	return kept
}
