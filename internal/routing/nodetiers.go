package routing

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/groups"
	"vicinity.dev/vicinity/internal/routing/hints"
	routingintent "vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// NodeTiers returns the tiers that nodes apply to the endpoints of their zone, before any plan is made. It is nil if no
// tier is finer than a zone, and if hints cannot carry the tiers: fault says why.
func NodeTiers(cluster *routingintent.Cluster, request routingintent.Request, delivery allocate.Delivery, endpoints []routingintent.Endpoint) (tiers *allocate.NodeTiers, fault string) {
	intent := request.Intent
	tiers = &allocate.NodeTiers{Free: intent.Bound == nil}
	switch delivery {
	case allocate.DeliveryGroups:
		tiers.Keys = groupKeys(intent)
		tiers.Hard = intent.Tiers.Hard()
	case allocate.DeliveryHints:
		if key, _ := hints.NodeKey(intent.Tiers); key != "" {
			tiers.Keys = []string{key}
			fault = hints.NodeFault(cluster, key, endpoints)
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

// groupKeys returns the keys that nodes look for in groups, nil if none is finer than a zone.
func groupKeys(intent allocate.Intent) []string {
	keys := slices.DeleteFunc(groups.Tiers(intent), func(key string) bool { return key == topology.Anywhere })
	if !slices.ContainsFunc(keys, topology.IsFine) {
		return nil
	}
	return keys
}

// planNodes decides which nodes use the endpoints of their own domains, and measures the result.
func (f *FamilyDecision) planNodes(in Input, tiers *allocate.NodeTiers) {
	tiers.Endpoints = f.Placed()
	tiers.Skipped = skippedBefore(in, f.Family, tiers.Keys)
	plan := tiers.Plan()
	f.Nodes = &plan
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

// skippedBefore returns the domains that nodes skipped before, according to the last decision or else to groups and
// hints.
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
	for _, node := range hints.Skipping(in.Slices, family, in.Cluster) {
		add(keys[0], node)
	}
	return skips
}
