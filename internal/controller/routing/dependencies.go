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

// nodeDependencies are what of the nodes a Service's decision depends on. Services with
// the same dependencies see the same cluster.
type nodeDependencies struct {
	needs    needs
	capacity translate.Capacity // if needs are shares
	keys     string             // labels of nodes whose domains matter, joined
	nodes    bool               // what share each node has, and its domains
}

// needs are the parts of the cluster that a decision looks at, each with the one before.
type needs string

const (
	zones  needs = "zones"  // which zones there are, in which regions
	shares needs = "shares" // and what share of the capacity each has
	faults needs = "faults" // and how many nodes lack a zone or capacity
)

// nodeDependenciesOf are those of a decision.
func nodeDependenciesOf(d *routing.Decision) nodeDependencies {
	request := &d.Request
	var n nodeDependencies
	if d.Delivery == allocate.DeliveryNone || request.OwnZone {
		return n
	}
	n.needs = zones
	if bound := request.Intent.Bound; bound != nil {
		n.needs, n.capacity = shares, request.Capacity
		if bound.Algorithm == allocate.Auto {
			n.needs = faults
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
	n.keys = strings.Join(keys, ",")
	n.nodes = n.needs != zones && (n.keys != "" || slices.Contains(request.Intent.Tiers, topology.Hostname))
	return n
}

// fingerprint stands for what is seen of a cluster.
type fingerprint uint64

// seed is the process's own: fingerprints are not kept.
var seed = maphash.MakeSeed()

// of is the fingerprint of a cluster.
func (n nodeDependencies) of(cluster *translate.Cluster) fingerprint {
	if n == (nodeDependencies{}) {
		return 0
	}
	var h maphash.Hash
	h.SetSeed(seed)
	region := cluster.Region(n.capacity, nil)
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
		if n.needs != zones && total > 0 {
			maphash.WriteComparable(&h, math.Float64bits(zone.Capacity/total))
		}
	}
	if n.needs == faults {
		maphash.WriteComparable(&h, [2]int{region.NodesWithoutZone, region.NodesWithoutCapacity})
	}
	if n.nodes {
		for _, node := range cluster.Nodes(n.capacity, []string{topology.Hostname}) {
			text(node.Name, node.Zone, node.Domains[0])
			maphash.WriteComparable(&h, math.Float64bits(node.Share))
		}
	}
	if n.keys != "" {
		for key := range strings.SplitSeq(n.keys, ",") {
			domains := cluster.Domains(key)
			for _, value := range slices.Sorted(maps.Keys(domains)) {
				text(value)
				text(domains[value]...)
			}
		}
	}
	return fingerprint(h.Sum64())
}
