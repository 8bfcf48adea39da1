// Package nearest follows topology keys endpoint by endpoint, as the API documents them. Tests compare the product with it.
package nearest

import "vicinity.dev/vicinity/internal/topology"

// Select returns the indexes of the endpoints that a client uses: the matches of the first tier that has any. The labels
// are the ones of the endpoints' nodes. Without tiers every endpoint matches.
func Select(tiers topology.Tiers, client topology.Labels, endpoints []topology.Labels) []int {
	if len(tiers) == 0 {
		tiers = topology.Tiers{topology.Anywhere}
	}
	for _, key := range tiers {
		var matching []int
		for i, node := range endpoints {
			if key == topology.Anywhere || client[key] != "" && node[key] == client[key] {
				matching = append(matching, i)
			}
		}
		if len(matching) > 0 {
			return matching
		}
	}
	return nil
}
