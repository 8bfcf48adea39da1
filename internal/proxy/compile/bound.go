package compile

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sort"

	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// A Service may ask for more than a node can hold: each of its ports has each of its
// addresses, and each of those all its endpoints. A bound has room for, in this order: all
// ports at the cluster IPs with half of their endpoints; addresses of load balancers; node
// ports; external IPs, the first ones first; more endpoints, the same share of those of each
// port; and what is known of endpoints that are not used. So an endpoint more does not cost
// an address. Where half of the endpoints are too many there are fewer, one of each port at
// least, and where those are too many ports are left out: those without endpoints, and then
// the last ones first.
//
// Endpoints that are left out on one node are others than those on another node. So what is
// left serves with the endpoints of now, and depends on nothing that was before.

// families compiles a Service in all its families.
func (c *compiler) families(halves []*half) Result {
	result := c.within(halves, &room{most: c.most})
	result.Elements = c.wanted(halves, nil)
	keep(halves, 0)
	result.Least = c.wanted(halves, &oneEndpoint)
	if c.most > 0 && result.Elements > c.most {
		result.Families = c.within(halves, c.reduce(halves)).Families
		if c.nodeBound && slices.ContainsFunc(halves, c.lacksAddress) {
			result.keepAway()
		}
	}
	return result
}

// within compiles a Service as far as there is room.
func (c *compiler) within(halves []*half, left *room) (result Result) {
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
	// share is what ports may have of their endpoints, nil for all, and what they know.
	share *share
	// scarce says that there is not enough for all ports: those without endpoints go first.
	scarce bool
}

// take takes elements if there is room for them, which it reports.
func (r *room) take(elements int) bool {
	if r.most > 0 && r.taken+elements > r.most {
		return false
	}
	r.taken += elements
	return true
}

// sizes are how many endpoints a port has.
type sizes struct {
	cluster, local, known int
	weighted              bool
}

func (s *supply) sizes() sizes {
	known := len(s.known.Serving) + len(s.known.Silent) + len(s.known.Fleeting)
	return sizes{cluster: len(s.cluster), local: len(s.local), known: known, weighted: s.weights != nil}
}

// cost is what a port takes in one family.
func (c *compiler) cost(a *addresses, port *servicePort, n sizes) int {
	sticky, guarded := c.affinity > 0, len(a.balancer) > 0 && len(a.sources) > 0
	clients := 0
	if sticky {
		clients = cmp.Or(c.options.MaxAffinityClients, ruleset.MostAffinityClients)
	}
	inside, outside, others, sources := n.cluster, n.cluster, len(a.external)+len(a.balancer), 0
	if c.policy.internal == ruleset.PoolLocal {
		inside = n.local
	}
	if c.policy.external == ruleset.PoolSplit {
		outside += n.local
	}
	if port.nodePort != 0 {
		others += len(a.nodes)
	}
	if guarded {
		sources = len(a.sources)
	}
	return ruleset.PortCost(clients, n.weighted, sources, n.known) + ruleset.FrontCost(inside, sticky, false) +
		others*ruleset.FrontCost(outside, sticky, guarded)
}

// wanted is what all ports take with the addresses that are kept and a share of their
// endpoints, nil for all.
func (c *compiler) wanted(halves []*half, s *share) int {
	sum := 0
	for _, h := range halves {
		sum += h.onNode()
		for i, n := range h.sizes {
			if s != nil {
				n = s.sizes(n)
			}
			sum += c.cost(&h.kept, &c.ports[i], n)
		}
	}
	return sum
}

// reduce picks the addresses that are kept, and the share of endpoints.
func (c *compiler) reduce(halves []*half) *room {
	endpoints, others := 0, 0
	for _, h := range halves {
		others += len(h.balancer) + len(h.nodes) + len(h.external)
		for _, n := range h.sizes {
			endpoints = max(endpoints, n.cluster, n.local)
		}
	}
	fits := func(addresses int, s *share) bool {
		keep(halves, addresses)
		return c.wanted(halves, s) <= c.most
	}
	half := &share{(endpoints + 1) / 2, endpoints}
	addresses := sort.Search(others, func(n int) bool { return !fits(n+1, half) })
	if fits(addresses, nil) {
		return &room{most: c.most}
	}
	left := sort.Search(endpoints, func(n int) bool { return !fits(addresses, &share{n + 1, endpoints}) })
	return &room{most: c.most, share: &share{max(left, 1), endpoints}, scarce: left < min(1, endpoints)}
}

// keep has a Service keep so many addresses beside its cluster IPs.
func keep(halves []*half, most int) {
	for _, h := range halves {
		h.kept = h.addresses
	}
	for _, list := range []func(*addresses) *[]netip.Addr{
		func(a *addresses) *[]netip.Addr { return &a.balancer },
		func(a *addresses) *[]netip.Addr { return &a.nodes },
		func(a *addresses) *[]netip.Addr { return &a.external },
	} {
		for _, h := range halves {
			kept := list(&h.kept)
			*kept = (*kept)[:min(most, len(*kept))]
			most -= len(*kept)
		}
	}
}

// cutsOff reports whether there is room for none of the addresses that load balancers send
// to, of those that there are. Where there is room for one, what comes to it is served, and
// by a bound that is the same on all nodes no other has more room. For what one node has left
// see lacksAddress.
func (c *compiler) cutsOff(h *half) bool {
	all, kept := c.balanced(h)
	return all > 0 && kept == 0
}

// lacksAddress reports whether there is no room for one of those addresses.
func (c *compiler) lacksAddress(h *half) bool {
	all, kept := c.balanced(h)
	return kept < all
}

// balanced counts the addresses that load balancers send to, and those of them that are kept.
func (c *compiler) balanced(h *half) (all, kept int) {
	all, kept = len(h.balancer), len(h.kept.balancer)
	if slices.ContainsFunc(c.ports, func(p servicePort) bool { return p.nodePort != 0 }) {
		all, kept = all+len(h.nodes), kept+len(h.kept.nodes)
	}
	return all, kept
}

// keepAway has load balancers send to other nodes, which may have room for all addresses.
// There is one health port for both families.
func (r *Result) keepAway() {
	for i := range r.Families {
		if told := r.Families[i].Health; told != nil {
			told.LocalEndpoints = 0
		}
	}
}

// share is so many endpoints of each port as it is for one that has the most.
type share struct{ left, most int }

// oneEndpoint is one of each port, however many these have.
var oneEndpoint = share{1, math.MaxInt32}

// of is the share of so many, rounded up, so that each port with endpoints has some.
func (s share) of(n int) int {
	if n == 0 {
		return 0
	}
	return (n*s.left + s.most - 1) / s.most
}

func (s share) sizes(n sizes) sizes {
	return sizes{cluster: s.of(n.cluster), local: s.of(n.local), weighted: n.weighted}
}

// cut leaves a port its share of endpoints on a node. It knows of no others, so that
// connections to these do not go on.
func (s share) cut(got supply, node string) supply {
	cluster := part(got.cluster, s.of(len(got.cluster)), node)
	got.weights = keptWeights(cluster, got.cluster, got.weights)
	got.cluster, got.local = cluster, part(got.local, s.of(len(got.local)), node)
	got.known = ruleset.Known{}
	return got
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
