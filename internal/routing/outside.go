package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/endpoint"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/handover"
	"vicinity.dev/vicinity/internal/routing/intent"
	"vicinity.dev/vicinity/internal/topology"
)

// RefusedOutside names the zones whose nodes refuse connections from outside, because the stored groups have no endpoint
// near enough for them. It is empty for most Services. Proxies are the nodes that run vicinity-proxy.
func RefusedOutside(in Input, d Decision, proxies []handover.NodeProxy) string {
	tiers := d.Request.Intent.Tiers
	if !tiers.Hard() || !intent.IsHandedOver(in.Service) || !takesFromOutside(&in.Service.Spec) ||
		!slices.ContainsFunc(d.Families, func(f FamilyDecision) bool { return len(f.Endpoints) > 0 }) {
		return ""
	}
	pairs := 0
	for _, group := range in.Groups {
		pairs += len(group.Spec.Endpoints) * len(proxies)
	}
	if slices.Contains(tiers, topology.Hostname) && pairs > mostPairs {
		return "" // each node has its own place; its health check answers all the same
	}
	const someReach, someRefuse = 1, 2
	zones := map[string]int{}
	known := map[string]int{} // by the node's domains of the tiers
	for i := range proxies {
		labels := in.Cluster.Labels(proxies[i].Node)
		if labels == nil {
			continue // the node is not known yet
		}
		client := endpoint.Client{Node: proxies[i].Node, Zone: labels[corev1.LabelTopologyZone], Labels: labels}
		place := client.Zone
		for _, key := range tiers {
			place += "," + client.Value(key)
		}
		if known[place] == 0 {
			known[place] = someRefuse
			if reachesAny(in.Groups, client) {
				known[place] = someReach
			}
		}
		zones[client.Zone] |= known[place]
	}
	var all, some []string
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		switch zones[zone] {
		case someRefuse:
			all = append(all, explain.ZoneName(zone))
		case someRefuse | someReach:
			some = append(some, explain.ZoneName(zone))
		}
	}
	return refusalText(all, some, in.Service)
}

// mostPairs limits the pairs of a node and an endpoint that a sync compares, to some milliseconds.
const mostPairs = 1_000_000

// takesFromOutside reports whether clients outside reach endpoints by the Service's tiers. With a local policy they reach
// those of the node.
func takesFromOutside(spec *corev1.ServiceSpec) bool {
	return spec.ExternalTrafficPolicy != corev1.ServiceExternalTrafficPolicyLocal &&
		(spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer || len(spec.ExternalIPs) > 0)
}

// reachesAny reports whether groups have a serving endpoint for a client.
func reachesAny(all []*v1alpha1.EndpointGroup, client endpoint.Client) bool {
	choice := endpoint.NewChoice(client)
	for _, group := range all {
		use := choice.Read(group)
		if !use.Used() {
			continue
		}
		for i := range group.Spec.Endpoints {
			e := &group.Spec.Endpoints[i]
			state := endpoint.StateInGroup(e)
			if (state.IsReady() || state.IsTerminating() && state.IsServing()) && choice.Rank(use, e) != endpoint.None {
				return true
			}
		}
	}
	return false
}

func refusalText(all, some []string, service *corev1.Service) string {
	const most = 5
	var where []string
	if len(all) > 0 {
		where = append(where, "all nodes of "+plaintext.FirstOf(all, most))
	}
	if len(some) > 0 {
		where = append(where, "some nodes of "+plaintext.FirstOf(some, most))
	}
	if len(where) == 0 {
		return ""
	}
	return fmt.Sprintf("connections from outside are refused at %s, which reach no endpoint; load balancers find other nodes by the health check /healthz/services/%s/%s",
		strings.Join(where, " and at "), service.Namespace, service.Name)
}
