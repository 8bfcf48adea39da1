package inspect

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// Places are the regions, zones and nodes of a cluster. Percentages are from 0 to 100.
type Places struct {
	Regions  []RegionPlace `json:"regions"`
	Nodes    []NodePlace   `json:"nodes"`
	Warnings []string      `json:"warnings,omitempty"`
}

// RegionPlace is a region with its zones. It has no name if nodes lack the label.
type RegionPlace struct {
	Region string      `json:"region"`
	Zones  []ZonePlace `json:"zones"`
}

// ZonePlace is a zone with numbers of its nodes. It has no name if nodes lack the label.
type ZonePlace struct {
	Zone   string `json:"zone"`
	Region string `json:"region"`
	Nodes  int    `json:"nodes"`
	Ready  int    `json:"ready"`
	// Counted is the number of nodes that count for the zone's traffic.
	Counted int `json:"counted"`
	// Traffic is the expected share of all traffic by number of nodes, and CPU that by allocatable CPU.
	Traffic float64 `json:"traffic"`
	CPU     float64 `json:"cpu"`
	// Proxies counts nodes with a vicinity-proxy that renews its Lease, and Failing those whose packets do not come
	// through its rules.
	Proxies int `json:"proxies"`
	Failing int `json:"failing"`
	// IgnoreHints counts nodes whose kube-proxy is known to ignore hints for zones.
	IgnoreHints int `json:"ignoreHints"`
}

// ProxyState says whether a node has a vicinity-proxy.
type ProxyState string

// The states of a node's vicinity-proxy.
const (
	ProxyLives   ProxyState = "lives"   // it renews its Lease
	ProxySilent  ProxyState = "silent"  // it has a Lease and does not renew it
	ProxyNone    ProxyState = "none"    // it has no Lease
	ProxyUnknown ProxyState = "unknown" // Leases may not be read
)

// NodePlace is a node.
type NodePlace struct {
	Node   string `json:"node"`
	Zone   string `json:"zone"`
	Region string `json:"region"`
	Ready  bool   `json:"ready"`
	// Since is when it became not ready.
	Since *time.Time `json:"notReadySince,omitempty"`
	// Cordoned says that the node gets no new pods.
	Cordoned bool `json:"cordoned,omitempty"`
	// Counts says that it counts for the traffic of its zone, and Traffic is its share of all.
	Counts  bool       `json:"counts"`
	Traffic float64    `json:"traffic"`
	CPU     float64    `json:"cpu"` // cores that are allocatable
	Proxy   ProxyState `json:"proxy"`
	// Failure is why packets do not come through the rules of the node's vicinity-proxy.
	Failure string `json:"failure,omitempty"`
	// Hints says which hints its kube-proxy is known to ignore, empty if none.
	Hints string `json:"hints,omitempty"`
}

// PlacesOf returns the places of nodes and their proxies. The cluster is that of the nodes. Proxies are in the order of
// nodes, nil if Leases may not be read.
func PlacesOf(cluster *intent.Cluster, nodes []*corev1.Node, proxies []NodeProxy, now time.Time) Places {
	p := Places{Regions: []RegionPlace{}, Nodes: make([]NodePlace, 0, len(nodes)), Warnings: cluster.Warnings()}
	shares := map[string]float64{}
	for _, node := range cluster.Nodes(intent.Capacity{}, nil) {
		shares[node.Name] = node.Share
	}
	ignored := map[string]string{}
	known := cluster.Proxies()
	for _, of := range []struct {
		what  string
		nodes []string
	}{{"hints for nodes", known.WithoutNodeHints}, {"all hints", known.Windows}} {
		for _, name := range of.nodes {
			ignored[name] = of.what
		}
	}
	zones := map[string]*ZonePlace{}
	for i, node := range nodes {
		labels := cluster.Labels(node.Name)
		n := NodePlace{
			Node: node.Name, Zone: labels[topology.Zone], Region: labels[topology.Region], Ready: true, Cordoned: node.Spec.Unschedulable,
			Traffic: percent(shares[node.Name]), Counts: shares[node.Name] > 0,
			CPU: plaintext.Rounded(node.Status.Allocatable.Cpu().AsApproximateFloat64()), Proxy: ProxyUnknown, Hints: ignored[node.Name],
		}
		if since, _ := handover.Readiness(node); !since.IsZero() {
			n.Ready, n.Since = false, &since
		}
		if proxies != nil {
			n.Proxy, n.Failure = proxies[i].state(now), proxies[i].Failure
		}
		z := zones[n.Zone]
		if z == nil {
			z = &ZonePlace{Zone: n.Zone, Region: n.Region}
			zones[n.Zone] = z
		}
		z.count(&n)
		p.Nodes = append(p.Nodes, n)
	}
	p.share(cluster, zones)
	for _, z := range zones {
		at := slices.IndexFunc(p.Regions, func(r RegionPlace) bool { return r.Region == z.Region })
		if at < 0 {
			at = len(p.Regions)
			p.Regions = append(p.Regions, RegionPlace{Region: z.Region})
		}
		p.Regions[at].Zones = append(p.Regions[at].Zones, *z)
	}
	slices.SortFunc(p.Regions, func(a, b RegionPlace) int { return strings.Compare(a.Region, b.Region) })
	for i := range p.Regions {
		slices.SortFunc(p.Regions[i].Zones, func(a, b ZonePlace) int { return strings.Compare(a.Zone, b.Zone) })
	}
	return p
}

func (p *NodeProxy) state(now time.Time) ProxyState {
	switch {
	case p.Seen.IsZero():
		return ProxyNone
	case p.Lives(now):
		return ProxyLives
	}
	return ProxySilent
}

func (z *ZonePlace) count(n *NodePlace) {
	z.Nodes++
	if n.Ready {
		z.Ready++
	}
	if n.Counts {
		z.Counted++
	}
	if n.Proxy == ProxyLives {
		z.Proxies++
		if n.Failure != "" {
			z.Failing++
		}
	}
	if n.Hints != "" {
		z.IgnoreHints++
	}
}

// share sets the shares of the traffic.
func (p *Places) share(cluster *intent.Cluster, zones map[string]*ZonePlace) {
	for _, way := range []intent.CapacityType{intent.CapacityNodes, intent.CapacityCPU} {
		region := cluster.Region(intent.Capacity{Type: way}, nil)
		var names []string
		for _, z := range region.Zones {
			names = append(names, z.Name)
		}
		for i, share := range region.Shares(names) {
			z := zones[strings.TrimSpace(names[i])]
			switch {
			case z == nil:
			case way == intent.CapacityNodes:
				z.Traffic = percent(share)
			default:
				z.CPU = percent(share)
			}
		}
	}
}
