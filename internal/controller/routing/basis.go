package routing

import (
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

// basis is what of the nodes a Service's decision depends on. Services with the same
// basis see the same cluster.
type basis struct {
	needs    needs
	capacity translate.Capacity // if needs are shares
	keys     string             // labels of nodes whose domains matter, joined
	proxies  bool               // whether they go by hints
	nodes    bool               // what share each node has, and its domains
}

// needs are the parts of the cluster that a decision looks at.
type needs string

// The needs, each with what the one before it has.
const (
	nothing needs = ""
	zones   needs = "zones"  // which zones there are, in which regions
	shares  needs = "shares" // and what share of the capacity each has
	faults  needs = "faults" // and how many nodes lack a zone or capacity
)

// basisOf is the basis of a decision.
func basisOf(d *routing.Decision) basis {
	request := &d.Request
	b := basis{proxies: d.Hinted().Delivery == routing.DeliveryHints}
	if d.Delivery == routing.DeliveryNone || request.OwnZone {
		return b
	}
	b.needs = zones
	if bound := request.Intent.Bound; bound != nil {
		b.needs, b.capacity = shares, request.Capacity
		if bound.Algorithm == allocate.Auto {
			b.needs = faults
		}
	}
	var keys []string
	for _, key := range request.Intent.Tiers {
		switch key {
		case topology.Hostname, topology.Zone, topology.Region, topology.Anywhere:
		default:
			keys = append(keys, key)
		}
	}
	b.keys = strings.Join(keys, ",")
	b.nodes = b.needs != zones && (b.keys != "" || slices.Contains(request.Intent.Tiers, topology.Hostname))
	return b
}

// fingerprint stands for what a basis sees of a cluster.
type fingerprint uint64

// seed is the process's own: fingerprints are not kept.
var seed = maphash.MakeSeed()

// of is the fingerprint of a cluster.
func (b basis) of(cluster *translate.Cluster) fingerprint {
	if b == (basis{}) {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(seed)
	if b.proxies {
		maphash.WriteComparable(&h, cluster.Proxies().Kinds())
	}
	if b.needs == nothing {
		return fingerprint(h.Sum64())
	}
	region := cluster.Region(b.capacity, nil)
	total := 0.0
	for _, zone := range region.Zones {
		total += zone.Capacity
	}
	text := func(words ...string) {
		for _, word := range words {
			maphash.WriteComparable(&h, word)
		}
	}
	for _, zone := range region.Zones {
		text(zone.Name, zone.Region)
		if b.needs != zones && total > 0 {
			maphash.WriteComparable(&h, math.Float64bits(zone.Capacity/total))
		}
	}
	if b.needs == faults {
		maphash.WriteComparable(&h, [2]int{region.NodesWithoutZone, region.NodesWithoutCapacity})
	}
	if b.nodes {
		for _, node := range cluster.Nodes(b.capacity, []string{topology.Hostname}) {
			text(node.Name, node.Zone, node.Domains[0])
			maphash.WriteComparable(&h, math.Float64bits(node.Share))
		}
	}
	if b.keys != "" {
		for key := range strings.SplitSeq(b.keys, ",") {
			domains := cluster.Domains(key)
			for _, value := range slices.Sorted(maps.Keys(domains)) {
				text(value)
				text(domains[value]...)
			}
		}
	}
	return fingerprint(h.Sum64())
}
