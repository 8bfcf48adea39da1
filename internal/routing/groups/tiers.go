package groups

import (
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// Tiers returns the tiers that each node applies to the endpoints of its zone. With a bound the plan decides about
// zones and wider domains, and nodes only about finer ones. A requirement stays, because nodes of zones that the plan
// does not know see all endpoints, unless these leave a domain.
func Tiers(intent allocate.Intent) []string {
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

// widerTiers returns tiers under which a node finds an endpoint wherever it finds one under either of the two. A group
// has them during the change.
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

// domains returns a function that finds the values of tiers for an endpoint, except values that follow from its node
// and zone. The value of a skipped domain is empty: no node finds the endpoint there. Endpoints share the result.
func (w *want) domains(tiers []string) func(node, zone string) map[string]string {
	type place struct{ node, zone string }
	known := map[place]map[string]string{}
	return func(node, zone string) map[string]string {
		if len(tiers) == 0 {
			return nil
		}
		at := place{node, zone}
		values, found := known[at]
		if !found {
			values = w.domainsOf(node, zone, tiers)
			known[at] = values
		}
		return values
	}
}

func (w *want) domainsOf(node, zone string, tiers []string) map[string]string {
	var values map[string]string
	for _, tier := range tiers {
		value := w.Cluster.DomainOf(node, zone, tier)
		switch {
		case value == "" || tier == topology.Zone:
			continue
		case w.skips(tier, value):
			value = ""
		case tier == topology.Hostname && value == node:
			continue
		}
		if values == nil {
			values = map[string]string{}
		}
		values[tier] = value
	}
	return values
}

func (w *want) skips(key, domain string) bool {
	return slices.ContainsFunc(w.plan.Skips, func(s allocate.Skip) bool { return s.Key == key && s.Domain == domain })
}
