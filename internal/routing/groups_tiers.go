package routing

import (
	"maps"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// nodeTiers are what each node looks for among the endpoints that its zone may use.
// With a bound the plan decides on zones and wider places, and nodes on finer ones
// only. A requirement stays, because nodes of zones that the plan does not know see
// all endpoints.
func nodeTiers(intent allocate.Intent) []string {
	tiers := slices.Clone([]string(intent.Tiers))
	if intent.Bound != nil {
		for i, key := range tiers {
			if key == topology.Zone || key == topology.Region || key == topology.Anywhere {
				last := tiers[len(tiers)-1]
				tiers = append(tiers[:i], last)
				break
			}
		}
	}
	if slices.Equal(tiers, []string{topology.Anywhere}) {
		return nil
	}
	return tiers
}

// widerTiers are tiers under which a node finds something wherever it finds something
// under one of two: what a group has while it goes from the one to the other.
func widerTiers(from, to []string) []string {
	var wider []string
	for _, key := range slices.Concat(from, to) {
		if key != topology.Anywhere && !slices.Contains(wider, key) {
			wider = append(wider, key)
		}
	}
	if !topology.Tiers(from).Hard() || !topology.Tiers(to).Hard() {
		wider = append(wider, topology.Anywhere)
	}
	if len(wider) > topology.MaxKeys || slices.Equal(wider, []string{topology.Anywhere}) {
		return nil
	}
	return wider
}

// domainsKey tells apart what endpoints say of their nodes.
type domainsKey struct{ node, zone, tiers string }

// domainsOf are the values of the tiers for an endpoint, but for what it says anyhow. The
// value of a place that nodes skip is empty: no node finds the endpoint there, not even its
// own.
func (p *groupPlanner) domainsOf(node, zone string, tiers []string) map[string]string {
	if len(tiers) == 0 {
		return nil
	}
	key := domainsKey{node, zone, strings.Join(tiers, ",")}
	if known, found := p.domains[key]; found {
		return known
	}
	var domains map[string]string
	for _, tier := range tiers {
		value := p.in.Cluster.DomainOf(node, zone, tier)
		switch {
		case value == "" || tier == topology.Zone:
			continue
		case p.decided.skipped(tier, value):
			value = ""
		case tier == topology.Hostname && value == node:
			continue
		}
		if domains == nil {
			domains = map[string]string{}
		}
		domains[tier] = value
	}
	p.domains[key] = domains
	return domains
}

func sameDomains(a, b map[string]string) bool {
	return len(a) == len(b) && maps.Equal(a, b)
}
