package routing

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/topology"
	"vicinity.dev/vicinity/internal/translate"
)

// NodeTiers are the tiers that nodes look at by themselves among the endpoints that a
// plan lets their zones use, before any plan is made: endpoints have no zones yet. It is
// nil if there are none finer than a zone. Where hints cannot carry what is asked for,
// fault says why, and there are none either.
func NodeTiers(cluster *translate.Cluster, request translate.Request, delivery allocate.Delivery, endpoints []translate.Endpoint) (tiers *allocate.NodeTiers, fault string) {
	intent := request.Intent
	tiers = &allocate.NodeTiers{Free: intent.Bound == nil}
	switch delivery {
	case allocate.DeliveryGroups:
		tiers.Keys = groupKeys(intent)
		tiers.Hard = intent.Tiers.Hard()
	case allocate.DeliveryHints:
		if key, _ := nodeKey(intent.Tiers); key != "" {
			tiers.Keys = []string{key}
			fault = nodeHintFault(cluster, key, endpoints)
		}
	}
	if len(tiers.Keys) == 0 || fault != "" {
		return nil, fault
	}
	if intent.Bound != nil {
		tiers.Threshold = intent.Bound.OverloadThreshold
	}
	tiers.Nodes = cluster.Nodes(request.Capacity, tiers.Keys)
	tiers.Places = cluster.Places(request.Capacity, tiers.Keys, endpoints)
	tiers.Endpoints = make([]allocate.Endpoint, len(endpoints))
	for i, e := range endpoints {
		tiers.Endpoints[i] = allocate.Endpoint{ID: e.Address, Zone: e.Zone}
	}
	return tiers, ""
}

// groupKeys are what nodes look for in groups, if any of it is finer than a zone.
func groupKeys(intent allocate.Intent) []string {
	keys := slices.DeleteFunc(groups.Tiers(intent), func(key string) bool { return key == topology.Anywhere })
	if !slices.ContainsFunc(keys, isFine) {
		return nil
	}
	return keys
}

// isFine reports whether nodes, and not the plan, look at places of the key.
func isFine(key string) bool {
	return key != topology.Zone && key != topology.Region && key != topology.Anywhere
}

// planNodes decides which nodes use the endpoints of their own places, and what comes
// of it.
func (f *FamilyDecision) planNodes(in Input, tiers *allocate.NodeTiers) {
	tiers.Endpoints = f.Placed()
	tiers.Skipped = skippedBefore(in, f.Family, tiers.Keys)
	plan := tiers.Plan()
	f.Nodes, f.byZone, f.beforeByZone = &plan, f.Outcome.Figures, f.Outcome.Before
	f.Outcome.Figures = plan.Figures
}

// Placed are the ready endpoints as the plan assigns them.
func (f *FamilyDecision) Placed() []allocate.Endpoint {
	placed := make([]allocate.Endpoint, len(f.Endpoints))
	for i, e := range f.Endpoints {
		placed[i] = allocate.Endpoint{ID: e.Address, Zone: e.Zone, Assigned: f.Assigned[e.Address]}
	}
	return placed
}

// skipped reports whether the nodes of a place do not use its endpoints as their own.
func (f *FamilyDecision) skipped(key, domain string) bool {
	return f != nil && f.Nodes != nil && slices.ContainsFunc(f.Nodes.Skips, func(s allocate.Skip) bool {
		return s.Key == key && s.Domain == domain
	})
}

// skippedBefore are the places that were skipped as far as the last decision says or,
// without one, groups and hints.
func skippedBefore(in Input, family corev1.IPFamily, keys []string) []allocate.Skip {
	if last := in.Last.family(family); last != nil && last.Nodes != nil {
		return last.Nodes.Skips
	}
	var skips []allocate.Skip
	add := func(key, node string) {
		skip := allocate.Skip{Key: key, Domain: in.Cluster.Domain(node, key)}
		if skip.Domain != "" && !slices.Contains(skips, skip) {
			skips = append(skips, skip)
		}
	}
	for _, group := range in.Groups {
		if group.Spec.AddressType != family {
			continue
		}
		for i := range group.Spec.Endpoints {
			e := &group.Spec.Endpoints[i]
			for _, key := range keys {
				if value, given := e.Domains[key]; given && value == "" {
					add(key, e.Node)
				}
			}
		}
	}
	for _, slice := range ofFamily(in.Slices, family) {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if isLeaving(e) || e.NodeName == nil || e.Hints == nil || len(e.Hints.ForNodes) != 1 || e.Hints.ForNodes[0].Name != NoNode {
				continue
			}
			// What the plan gives to other zones has such a hint, too.
			zones := hintedZones(e)
			if len(zones) == 0 || slices.Contains(zones, in.Cluster.ZoneOf(e)) {
				add(keys[0], *e.NodeName)
			}
		}
	}
	return skips
}

// NoNode is what an endpoint is hinted to that no node is to use before others. Proxies
// look at hints for nodes only if every ready endpoint has some.
const NoNode = "no-node.vicinity.dev"

// planNodeHints lets each endpoint serve first the nodes of its own domain of key, if
// they may use it and would not overload it.
func (d *Decision) planNodeHints(f *FamilyDecision, in Input) {
	tiers, fault := NodeTiers(in.Cluster, d.Request, allocate.DeliveryHints, f.Endpoints)
	if fault != "" {
		d.note("%s; %s can", fault, d.byGroups)
	}
	if tiers == nil {
		return
	}
	f.planNodes(in, tiers)
	key := tiers.Keys[0]
	var domains map[string][]string
	if key != topology.Hostname {
		domains = in.Cluster.Domains(key)
	}
	f.hints.nodes = make(map[string][]string, len(f.Endpoints))
	nowhere := []string{NoNode}
	own := make([]string, len(f.Endpoints))
	for i, e := range f.Endpoints {
		names := nowhere
		if domain := tiers.Places[i].Domains[0]; !f.skipped(key, domain) {
			own[i] = e.Node
			names = own[i : i+1]
			if domains != nil {
				names = domains[domain]
			}
			if !tiers.Free {
				names = f.served(in.Cluster, e, names)
			}
		}
		if len(names) == 0 {
			names = nowhere
		}
		f.hints.nodes[e.Address] = names
	}
	for i := range f.Nodes.Skips {
		if f.hints.skipped == nil {
			f.hints.skipped = map[string]bool{}
		}
		for _, n := range tiers.Nodes {
			f.hints.skipped[n.Name] = f.hints.skipped[n.Name] || n.Domains[0] == f.Nodes.Skips[i].Domain
		}
	}
}

// served are those of the nodes that the plan lets use an endpoint.
func (f *FamilyDecision) served(cluster *translate.Cluster, e translate.Endpoint, nodes []string) []string {
	set := f.Assigned[e.Address]
	without := func(node string) bool { return set.Weight(cluster.Labels(node)[topology.Zone]) == 0 }
	if !slices.ContainsFunc(nodes, without) {
		return nodes
	}
	return slices.DeleteFunc(slices.Clone(nodes), without)
}

// nodeHintFault says why hints cannot let each endpoint serve the nodes of its domain
// first.
func nodeHintFault(cluster *translate.Cluster, key string, endpoints []translate.Endpoint) string {
	reason := ""
	var domains map[string][]string
	if key != topology.Hostname {
		domains = cluster.Domains(key)
	}
	if cluster.HasNode(NoNode) {
		reason = "a node is called " + NoNode + ", which stands for none in hints"
	}
	for _, e := range endpoints {
		if reason == "" {
			reason = domainFault(domains, cluster.Labels(e.Node)[key], e)
		}
	}
	if reason == "" {
		return ""
	}
	return fmt.Sprintf("%s is not looked at: %s", key, reason)
}

// domainFault says why the nodes of the endpoint's domain cannot be hinted to. Without
// domains each node is one of its own.
func domainFault(domains map[string][]string, value string, e translate.Endpoint) string {
	switch {
	case e.Node == "":
		return "an endpoint is on no known node"
	case domains == nil:
	case value == "":
		return "the node of an endpoint has no such label"
	case len(domains[value]) > v1alpha1.MaxHints:
		return "one of its domains has more nodes than an endpoint can be hinted to"
	}
	return ""
}
