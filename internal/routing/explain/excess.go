package explain

import (
	"fmt"
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Excess says which zones send part of their traffic to others by weights, and why, as in "zone-c sends 50 % of its
// traffic to zone-a, because it has 33.3 % of the traffic and 2 of 12 endpoints". It is empty for plans that move
// endpoints.
func Excess(region allocate.Region, plan allocate.Plan) []string {
	if !plan.AtHome {
		return nil
	}
	var sentences []string
	shares := region.Shares(plan.Zones)
	for z, zone := range plan.Zones {
		u := usageOf(plan, z)
		for home, amount := range u.byHome {
			if home == z || shares[z] == 0 || amount == 0 {
				continue
			}
			own := 0
			if i := slices.IndexFunc(region.Zones, func(o allocate.Zone) bool { return o.Name == zone }); i >= 0 {
				own = region.Zones[i].Endpoints
			}
			sentences = append(sentences, fmt.Sprintf("%s sends %s of its traffic to %s, because it has %s of the traffic and %d of %s",
				ZoneName(zone), plaintext.Percent(amount/u.width()), ZoneName(plan.Zones[home]), plaintext.Percent(shares[z]), own, plaintext.Plural(region.Endpoints(), "endpoint")))
		}
	}
	return sentences
}
