package allocate

import (
	"cmp"
	"math"
	"slices"

	"vicinity.dev/vicinity/internal/topology"
)

// Node is a node of the cluster, a source of traffic.
type Node struct {
	Name, Zone string
	// Share is the part of all traffic that this node sends.
	Share float64
	// Domains are the node's domains of the keys of NodeTiers, "" where it has none.
	Domains []string
}

// Place is the place of an endpoint.
type Place struct {
	// Node is an index in NodeTiers.Nodes, negative if the node is unknown.
	Node int
	// Domains are the domains of the endpoint's node.
	Domains []string
}

// NodeTiers describe how nodes choose within a plan. Each uses the endpoints of its zone in the nearest of its domains
// that has any, or else all endpoints of its zone.
type NodeTiers struct {
	// Keys are the keys of domains, nearest first, without topology.Anywhere.
	Keys []string
	// Hard leaves nodes without an endpoint if none of their domains has any.
	Hard bool
	// Threshold is the overload that a domain must not cause, or else its nodes use a farther one. Zero is no
	// threshold. It does not apply to zones and regions, which the plan decides about.
	Threshold float64
	// Free lets nodes use endpoints of their domains that the plan does not give to their zones.
	Free bool
	// Nodes are in the order of names.
	Nodes []Node
	// Endpoints have the assignments of the plan; Places are their locations.
	Endpoints []Endpoint
	Places    []Place
	// Skipped are domains that were skipped before.
	Skipped []Skip
}

// Skip is a domain whose nodes do not prefer its endpoints, because they would overload them.
type Skip struct {
	Key, Domain string
	// Zone is the zone of the nodes, empty if they are in several.
	Zone string
	// Endpoints is how many the nodes would use, Share the traffic that they would send there, and Load the load of the
	// busiest, where 1 is the even share.
	Endpoints   int
	Share, Load float64
}

// same reports whether both are about the same domain.
func (s Skip) same(other Skip) bool { return s.Key == other.Key && s.Domain == other.Domain }

// NodePlan is the result of a plan with the choices of nodes.
type NodePlan struct {
	Figures Figures
	// InZone is the share of each zone's traffic that stays in it, by zone.
	InZone map[string]float64
	// Loads are the loads of the endpoints, in their order, relative to the even share.
	Loads []float64
	// Skips are in the order of keys and domains.
	Skips []Skip
}

// returnAt is the part of the threshold below which a skipped domain is used again. It keeps
// domains at the threshold from flapping with every change of other endpoints.
const returnAt = 0.75

// ReturnLoad returns the load below which a skipped domain is used again.
func ReturnLoad(threshold float64) float64 { return 1 + returnAt*threshold }

// Plan decides which domains are skipped, and measures the result.
//
// It goes from the widest kind of domain to the nearest. At each it lets all nodes use their
// domains, skips every domain that loads an endpoint to the threshold, and repeats until there is
// none. Each round skips a domain, so it ends. The order does not matter: the traffic of a skipped
// domain goes to wider ones, so loads elsewhere only grow, and a domain at the threshold stays
// there until it is skipped. In the end each endpoint is below the threshold, or gets no more than
// without this kind of domain. So if the plan keeps the threshold, the nodes do.
func (t *NodeTiers) Plan() NodePlan {
	p := newNodePlanner(t)
	for level := len(t.Keys) - 1; level >= 0; level-- {
		p.decide(level)
	}
	p.spread(-1)
	slices.SortFunc(p.skips, func(a, b Skip) int {
		return cmp.Or(cmp.Compare(slices.Index(t.Keys, a.Key), slices.Index(t.Keys, b.Key)), cmp.Compare(a.Domain, b.Domain))
	})
	made := NodePlan{Loads: p.loads, Skips: p.skips, InZone: make(map[string]float64, len(p.zones))}
	p.measure(&made)
	return made
}

// nodePlanner makes a NodePlan.
type nodePlanner struct {
	*NodeTiers
	zones  []nodeZone
	zoneOf []int // by node
	sets   [][]float64
	setOf  []int // by endpoint: its index in sets, which has the weights by zone
	homes  []int // by endpoint: its home zone, or -1
	levels []nodeLevel
	pools  []*pool // by node: the endpoints it uses, as decided so far
	loads  []float64
	added  []float64 // scratch: the loads that a domain adds
	skips  []Skip
}

// nodeZone is a zone with traffic.
type nodeZone struct {
	name string
	pool pool // the endpoints that the plan gives to it
	own  float64
}

// nodeLevel has the domains of one key that have endpoints.
type nodeLevel struct {
	domains []domain
	ofNode  []int // by node: index of its domain, or -1
	of      []int // by endpoint
}

type domain struct {
	name      string
	endpoints []int
	pools     []*pool // one for each zone that has nodes there
	skipped   bool
}

// pool has the endpoints that a node chooses from: the endpoints of its zone in a domain, or everywhere.
type pool struct {
	zone          int
	level, domain int // none if level is negative
	width         float64
	traffic       float64
}

func newNodePlanner(t *NodeTiers) *nodePlanner {
	p := &nodePlanner{NodeTiers: t, loads: make([]float64, len(t.Endpoints)), added: make([]float64, len(t.Endpoints))}
	p.findZones()
	p.findSets()
	for level := range t.Keys {
		p.findDomains(level)
	}
	p.pools = make([]*pool, len(t.Nodes))
	for i, zone := range p.zoneOf {
		if zone >= 0 && !t.Hard && p.zones[zone].pool.width > 0 {
			p.pools[i] = &p.zones[zone].pool
		}
	}
	return p
}

func (p *nodePlanner) findZones() {
	index := map[string]int{}
	p.zoneOf = make([]int, len(p.Nodes))
	for i := range p.Nodes {
		n := &p.Nodes[i]
		p.zoneOf[i] = -1
		if n.Share <= 0 {
			continue
		}
		at, found := index[n.Zone]
		if !found {
			at = len(p.zones)
			index[n.Zone] = at
			p.zones = append(p.zones, nodeZone{name: n.Zone, pool: pool{zone: at, level: -1}})
		}
		p.zoneOf[i] = at
	}
	p.homes = make([]int, len(p.Endpoints))
	for j := range p.Endpoints {
		at, found := index[p.Endpoints[j].Zone]
		if !found {
			at = -1
		}
		p.homes[j] = at
	}
}

// findSets computes the weights of endpoints by zone. Few sets of weights differ.
func (p *nodePlanner) findSets() {
	index := map[ConsumerSet]int{}
	p.setOf = make([]int, len(p.Endpoints))
	for j := range p.Endpoints {
		set := p.Endpoints[j].Assigned
		at, found := index[set]
		if !found {
			at = len(p.sets)
			index[set] = at
			weights := make([]float64, len(p.zones))
			for z := range p.zones {
				weights[z] = set.Weight(p.zones[z].name)
			}
			p.sets = append(p.sets, weights)
		}
		p.setOf[j] = at
		for z, weight := range p.sets[at] {
			p.zones[z].pool.width += weight
			if p.homes[j] == z {
				p.zones[z].own += weight
			}
		}
	}
}

func (p *nodePlanner) findDomains(level int) {
	l := nodeLevel{ofNode: make([]int, len(p.Nodes)), of: make([]int, len(p.Endpoints))}
	index := map[string]int{}
	for j := range p.Places {
		name := p.Places[j].Domains[level]
		l.of[j] = -1
		if name == "" {
			continue
		}
		at, found := index[name]
		if !found {
			at = len(l.domains)
			index[name] = at
			l.domains = append(l.domains, domain{name: name})
		}
		l.of[j] = at
		l.domains[at].endpoints = append(l.domains[at].endpoints, j)
	}
	for i := range p.Nodes {
		at, found := index[p.Nodes[i].Domains[level]]
		if !found {
			at = -1
		}
		l.ofNode[i] = at
	}
	p.levels = append(p.levels, l)
}

func (p *nodePlanner) weight(endpoint, zone int) float64 { return p.sets[p.setOf[endpoint]][zone] }

// weightIn returns the weight of an endpoint in a pool that has it.
func (p *nodePlanner) weightIn(pool *pool, endpoint int) float64 {
	if p.Free && pool.level >= 0 {
		return 1
	}
	return p.weight(endpoint, pool.zone)
}

// poolOf returns the endpoints that a node uses in its domain, nil for none.
func (p *nodePlanner) poolOf(level, node int) *pool {
	at, zone := p.levels[level].ofNode[node], p.zoneOf[node]
	if at < 0 || zone < 0 {
		return nil
	}
	d := &p.levels[level].domains[at]
	i := slices.IndexFunc(d.pools, func(known *pool) bool { return known.zone == zone })
	if i < 0 {
		i = len(d.pools)
		made := &pool{zone: zone, level: level, domain: at}
		for _, j := range d.endpoints {
			made.width += p.weightIn(made, j)
		}
		d.pools = append(d.pools, made)
	}
	if d.pools[i].width == 0 {
		return nil
	}
	return d.pools[i]
}

// decide lets nodes use their domains of one key, and skips some.
func (p *nodePlanner) decide(level int) {
	before := slices.Clone(p.pools)
	for i := range p.pools {
		if pool := p.poolOf(level, i); pool != nil {
			p.pools[i] = pool
		}
	}
	if p.Threshold == 0 || p.Keys[level] == topology.Zone || p.Keys[level] == topology.Region {
		return
	}
	domains := p.levels[level].domains
	for skipped := true; skipped; {
		p.spread(level)
		skipped = false
		for at := range domains {
			if d := &domains[at]; !d.skipped && p.overloads(level, d) {
				d.skipped, skipped = true, true
			}
		}
		for i := range p.pools {
			if at := p.levels[level].ofNode[i]; at >= 0 && domains[at].skipped {
				p.pools[i] = before[i]
			}
		}
	}
}

// spread computes the loads of the endpoints, without the domains of one level if it is given.
func (p *nodePlanner) spread(without int) {
	for z := range p.zones {
		p.zones[z].pool.traffic = 0
	}
	for l := range p.levels {
		for at := range p.levels[l].domains {
			for _, pool := range p.levels[l].domains[at].pools {
				pool.traffic = 0
			}
		}
	}
	for i, pool := range p.pools {
		if pool != nil {
			pool.traffic += p.Nodes[i].Share
		}
	}
	base := make([]float64, len(p.sets))
	for s, weights := range p.sets {
		for z, weight := range weights {
			if pool := &p.zones[z].pool; weight > 0 {
				base[s] += pool.traffic * weight / pool.width
			}
		}
	}
	even := float64(len(p.Endpoints))
	for j := range p.loads {
		p.loads[j] = base[p.setOf[j]] * even
	}
	for l := range p.levels {
		if l == without {
			continue
		}
		for at := range p.levels[l].domains {
			p.add(&p.levels[l].domains[at], p.loads)
		}
	}
}

// add adds the traffic that the nodes of a domain send to its endpoints to loads.
func (p *nodePlanner) add(d *domain, loads []float64) {
	for _, pool := range d.pools {
		if pool.traffic == 0 {
			continue
		}
		each := pool.traffic / pool.width * float64(len(p.Endpoints))
		for _, j := range d.endpoints {
			loads[j] += each * p.weightIn(pool, j)
		}
	}
}

// overloads reports whether a domain loads one of its endpoints to the threshold. It records such a
// domain in skips.
func (p *nodePlanner) overloads(level int, d *domain) bool {
	skip := Skip{Key: p.Keys[level], Domain: d.name}
	zones := 0
	for _, pool := range d.pools {
		if pool.traffic > 0 {
			skip.Zone = p.zones[pool.zone].name
			skip.Share += pool.traffic
			zones++
		}
	}
	switch {
	case zones == 0:
		return false
	case zones > 1:
		skip.Zone = ""
	}
	for _, j := range d.endpoints {
		p.added[j] = 0
	}
	p.add(d, p.added)
	for _, j := range d.endpoints {
		if p.added[j] > 0 {
			skip.Endpoints++
			skip.Load = max(skip.Load, p.loads[j]+p.added[j])
		}
	}
	limit := 1 + p.Threshold
	if slices.ContainsFunc(p.Skipped, skip.same) {
		limit = ReturnLoad(p.Threshold)
	}
	if skip.Load < limit-tolerance {
		return false
	}
	p.skips = append(p.skips, skip)
	return true
}

// measure computes the figures from the final loads.
func (p *nodePlanner) measure(made *NodePlan) {
	figures := &made.Figures
	for _, load := range p.loads {
		figures.Overload = max(figures.Overload, load-1)
		figures.Deviation += math.Abs(load-1) / float64(len(p.loads))
	}
	reached := make([]bool, len(p.zones))
	traffic, own := make([]float64, len(p.zones)), make([]float64, len(p.zones))
	for i, pool := range p.pools {
		if zone := p.zoneOf[i]; zone >= 0 {
			traffic[zone] += p.Nodes[i].Share
			reached[zone] = reached[zone] || pool != nil
		}
	}
	for z := range p.zones {
		zone := &p.zones[z]
		if !reached[z] {
			figures.Unreached++
		}
		if zone.pool.traffic > 0 {
			own[z] += zone.pool.traffic * zone.own / zone.pool.width
		}
	}
	for l := range p.levels {
		for at := range p.levels[l].domains {
			d := &p.levels[l].domains[at]
			for _, pool := range d.pools {
				if pool.traffic == 0 {
					continue
				}
				for _, j := range d.endpoints {
					if p.homes[j] == pool.zone {
						own[pool.zone] += pool.traffic * p.weightIn(pool, j) / pool.width
					}
				}
			}
		}
	}
	for z := range p.zones {
		figures.InZone += own[z]
		made.InZone[p.zones[z].name] = own[z] / traffic[z]
	}
	for j := range p.Places {
		i := p.Places[j].Node
		if i < 0 || p.pools[i] == nil {
			continue
		}
		if pool := p.pools[i]; pool.level < 0 || p.levels[pool.level].of[j] == pool.domain {
			figures.SameNode += p.Nodes[i].Share * p.weightIn(pool, j) / pool.width
		}
	}
}
