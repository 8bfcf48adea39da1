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

// A Service may need more elements than a node can hold: ports times addresses times endpoints. Under a bound, these
// are kept in this order:
//
//  1. all ports at the cluster IPs, with half of their endpoints;
//  2. addresses of load balancers, node ports, and external IPs in their order;
//  3. more endpoints, the same share of each port;
//  4. known endpoints that new connections do not use.
//
// If half of the endpoints are too many, each port keeps fewer, at least one. If that is too much, ports are left out:
// first ports without endpoints, then the last ones.
//
// Each node leaves out other endpoints, and always the same ones: the choice depends only on the present endpoints.

func (c *compiler) families(halves []*half) Result {
	result := c.within(halves, &room{most: c.most})
	result.Elements = c.neededElements(halves, nil)
	keep(halves, 0)
	result.Least = c.neededElements(halves, &oneEndpoint)
	if c.most > 0 && result.Elements > c.most {
		result.Families = c.within(halves, c.reduce(halves)).Families
		if c.nodeBound && slices.ContainsFunc(halves, c.lacksAddress) {
			result.avoid()
		}
	}
	return result
}

func (c *compiler) within(halves []*half, left *room) (result Result) {
	for _, h := range halves {
		if f := c.family(h, left); len(f.Ports) > 0 {
			result.Families = append(result.Families, f)
		}
	}
	return result
}

// room bounds the elements of the rules.
type room struct {
	// most is the bound, zero for none.
	most, taken int
	// share is the part of its endpoints that each port keeps, nil for all.
	share *share
	// scarce means that not all ports fit. Ports without endpoints are left out first.
	scarce bool
}

// take reserves elements, and reports whether they fit.
func (r *room) take(elements int) bool {
	if r.most > 0 && r.taken+elements > r.most {
		return false
	}
	r.taken += elements
	return true
}

type sizes struct {
	cluster, local, known int
	weighted              bool
}

func (s *supply) sizes() sizes {
	known := len(s.known.Serving) + len(s.known.Silent) + len(s.known.Fleeting)
	return sizes{cluster: len(s.cluster), local: len(s.local), known: known, weighted: s.weights != nil}
}

func (c *compiler) cost(a *addresses, port *servicePort, n sizes) int {
	sticky, guarded := c.affinity > 0, len(a.balancer) > 0 && a.sources != nil
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
		sources = max(1, len(a.sources))
	}
	return ruleset.PortCost(clients, n.weighted, sources, n.known) + ruleset.FrontCost(inside, sticky, false) +
		others*ruleset.FrontCost(outside, sticky, guarded)
}

// neededElements returns how many elements all ports need with the kept addresses and a share of their endpoints, nil
// for all.
func (c *compiler) neededElements(halves []*half, s *share) int {
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

// reduce finds how many addresses and which share of endpoints fit into the bound.
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
		return c.neededElements(halves, s) <= c.most
	}
	half := &share{(endpoints + 1) / 2, endpoints}
	addresses := sort.Search(others, func(n int) bool { return !fits(n+1, half) })
	if fits(addresses, nil) {
		return &room{most: c.most}
	}
	left := sort.Search(endpoints, func(n int) bool { return !fits(addresses, &share{n + 1, endpoints}) })
	return &room{most: c.most, share: &share{max(left, 1), endpoints}, scarce: left < min(1, endpoints)}
}

// keep limits the number of addresses besides the cluster IPs.
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

func (c *compiler) cutsOff(h *half) bool {
	all, kept := c.balanced(h)
	return all > 0 && kept == 0
}

func (c *compiler) lacksAddress(h *half) bool {
	all, kept := c.balanced(h)
	return kept < all
}

// balanced counts the addresses that load balancers send to, and the kept ones among them.
func (c *compiler) balanced(h *half) (all, kept int) {
	all, kept = len(h.balancer), len(h.kept.balancer)
	if slices.ContainsFunc(c.ports, func(p servicePort) bool { return p.nodePort != 0 }) {
		all, kept = all+len(h.nodes), kept+len(h.kept.nodes)
	}
	return all, kept
}

// avoid makes load balancers use other nodes, which may have room. Both families share one health port.
func (r *Result) avoid() {
	for i := range r.Families {
		r.Families[i].avoid()
	}
}

func (f *Family) avoid() {
	f.Reached = 0
	if f.Health != nil {
		f.Health.LocalEndpoints = 0
	}
}

// share is a part of the endpoints of each port: left of most.
type share struct{ left, most int }

var oneEndpoint = share{1, math.MaxInt32}

// of returns the share of n, rounded up, so that each port with endpoints keeps one.
func (s share) of(n int) int {
	if n == 0 {
		return 0
	}
	return (n*s.left + s.most - 1) / s.most
}

func (s share) sizes(n sizes) sizes {
	return sizes{cluster: s.of(n.cluster), local: s.of(n.local), weighted: n.weighted}
}

// cut reduces a port to its share of endpoints. Connections to the others end.
func (s share) cut(got supply, node string) supply {
	cluster := part(got.cluster, s.of(len(got.cluster)), node)
	got.weights = keptWeights(cluster, got.cluster, got.weights)
	got.cluster, got.local = cluster, part(got.local, s.of(len(got.local)), node)
	got.known = ruleset.Known{Drained: got.known.Drained}
	return got
}

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

// part picks some of the targets, in an order that is stable on each node and differs between nodes.
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
