package routing

import (
	"slices"

	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

// planNodeHints lets each endpoint serve first the nodes of its own domain of key.
// Proxies look at such hints only if all ready endpoints have some, and then before
// those for zones, so that it is all endpoints or none.
func (d *Decision) planNodeHints(f *FamilyDecision, cluster *translate.Cluster, key string) {
	nodes := make(map[string][]string, len(f.Endpoints))
	var domains map[string][]string
	if key != topology.Hostname {
		domains = cluster.Domains(key)
	}
	for _, e := range f.Endpoints {
		names, fault := domainNodes(domains, cluster.Labels(e.Node)[key], e)
		if fault == "" && d.Request.Intent.Bound != nil && f.givesAway(cluster, e, names) {
			fault = "an endpoint serves other zones than its own, by the plan"
		}
		if fault != "" {
			d.note("%s is not looked at: %s; %s can", key, fault, byGroups)
			return
		}
		nodes[e.Address] = names
	}
	f.hints.nodes = nodes
}

// givesAway reports whether the plan keeps an endpoint from any of the nodes.
func (f *FamilyDecision) givesAway(cluster *translate.Cluster, e translate.Endpoint, nodes []string) bool {
	zones := f.Assigned[e.Address].Zones()
	for _, node := range nodes {
		if !slices.Contains(zones, cluster.Labels(node)[topology.Zone]) {
			return true
		}
	}
	return false
}

// domainNodes are the nodes of the endpoint's domain, or why they cannot be hinted
// to. Without domains each node is one of its own.
func domainNodes(domains map[string][]string, value string, e translate.Endpoint) (nodes []string, fault string) {
	switch {
	case e.Node == "":
		return nil, "an endpoint is on no known node"
	case domains == nil:
		return []string{e.Node}, ""
	case value == "":
		return nil, "the node of an endpoint has no such label"
	case len(domains[value]) > maxHintedNodes:
		return nil, "one of its domains has more nodes than an endpoint can be hinted to"
	}
	return domains[value], ""
}
