package explain

import (
	"slices"

	"vicinity.dev/vicinity/internal/allocate"
)

// Use describes the endpoints that the clients in a zone use, as in "3 own + 1 of zone-b".
type Use struct{ Zone, Uses string }

// PlanUses returns the uses of a plan, in the order of zones.
func PlanUses(region allocate.Region, plan allocate.Plan) []Use {
	var uses []Use
	_, names := sorted(region)
	for _, name := range names {
		if z := slices.Index(plan.Zones, name); z >= 0 && name != "" {
			uses = append(uses, Use{name, usageOf(plan, z).text(plan.Zones, z, region.Endpoints())})
		}
	}
	return uses
}
