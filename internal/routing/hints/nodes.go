package hints

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// NoNode is the hinted node of endpoints that no node prefers. Proxies follow hints for nodes only if every ready
// endpoint has some.
const NoNode = "no-node.vicinity.dev"

// NodeKey returns the key that hints for nodes express: the first one, if it is finer than a zone. They cannot express
// the other fine keys, lost.
func NodeKey(tiers topology.Tiers) (key string, lost []string) {
	wider := false
	for _, tier := range tiers {
		switch {
		case !topology.IsFine(tier):
			wider = true
		case wider || key != "":
			lost = append(lost, tier)
		default:
			key = tier
		}
	}
	return key, lost
}

// NodeFault returns why hints cannot prefer endpoints for the nodes of their domain, empty if they can.
func NodeFault(cluster *intent.Cluster, key string, endpoints []intent.Endpoint) string {
	reason := ""
	var domains map[string][]string
	if key != topology.Hostname {
		domains = cluster.Domains(key)
	}
	if cluster.HasNode(NoNode) {
		reason = "a node has the name " + NoNode + ", by which hints name no node"
	}
	for _, e := range endpoints {
		if reason == "" {
			reason = domainFault(domains, cluster.Labels(e.Node)[key], e)
		}
	}
	if reason == "" {
		return ""
	}
	return fmt.Sprintf("hints ignore %s: %s", key, reason)
}

// domainFault returns why an endpoint cannot have hints for the nodes of its domain. domains is nil if each node is a
// domain.
func domainFault(domains map[string][]string, value string, e intent.Endpoint) string {
	switch {
	case e.Node == "":
		return "an endpoint is on no known node"
	case domains == nil:
	case value == "":
		return "the node of an endpoint has no such label"
	case len(domains[value]) > v1alpha1.MaxHints:
		return "one of its domains has more nodes than an endpoint can have hints for"
	}
	return ""
}

// AddNodes gives each endpoint hints for the nodes of its own domain that may use it and do not skip it. The tiers are
// those of NodeKey.
func (p *Plan) AddNodes(in Input, tiers *allocate.NodeTiers, skips []allocate.Skip) {
	key := tiers.Keys[0]
	var domains map[string][]string
	if key != topology.Hostname {
		domains = in.Cluster.Domains(key)
	}
	p.nodes = make(map[string][]string, len(in.Endpoints))
	nowhere := []string{NoNode}
	isSkipped := func(domain string) bool {
		return slices.ContainsFunc(skips, func(s allocate.Skip) bool { return s.Key == key && s.Domain == domain })
	}
	own := make([]string, len(in.Endpoints))
	for i, e := range in.Endpoints {
		names := nowhere
		if domain := tiers.Places[i].Domains[0]; !isSkipped(domain) {
			own[i] = e.Node
			names = own[i : i+1]
			if domains != nil {
				names = domains[domain]
			}
			if !tiers.Free {
				names = in.allowedNodes(e, names)
			}
		}
		if len(names) == 0 {
			names = nowhere
		}
		p.nodes[e.Address] = names
	}
	p.skipped = map[string]bool{}
	for _, skip := range skips {
		for _, n := range tiers.Nodes {
			p.skipped[n.Name] = p.skipped[n.Name] || n.Domains[0] == skip.Domain
		}
	}
}

func (in *Input) allowedNodes(e intent.Endpoint, nodes []string) []string {
	set := in.Assigned[e.Address]
	without := func(node string) bool { return set.Weight(in.Cluster.Labels(node)[topology.Zone]) == 0 }
	if !slices.ContainsFunc(nodes, without) {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), without)
}

// Skipping returns the nodes whose hints say that they do not prefer endpoints of their own domain.
func Skipping(eps []*discoveryv1.EndpointSlice, family corev1.IPFamily, cluster *intent.Cluster) []string {
	var nodes []string
	for _, slice := range endpoint.Slices(eps, family) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if isLeaving(e) || e.NodeName == nil || e.Hints == nil || len(e.Hints.ForNodes) != 1 || e.Hints.ForNodes[0].Name != NoNode {
				continue
			}
			// Endpoints that the plan gives to other zones have this hint, too.
			zones := Zones(e)
			if len(zones) == 0 || slices.Contains(zones, cluster.ZoneOf(e)) {
				nodes = append(nodes, *e.NodeName)
			}
		}
	}
	return nodes
}
