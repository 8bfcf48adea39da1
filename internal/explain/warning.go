package explain

import (
	"fmt"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
)

// Warnings say what is unfortunate about where the endpoints are, whatever is asked
// for, each in a sentence.
func Warnings(region allocate.Region) []string {
	zones, _ := sorted(region)
	endpoints := region.Endpoints()
	withCapacity, without := 0, 0
	var homes, idle []string
	for _, z := range zones {
		if z.Capacity > 0 {
			withCapacity++
		}
		if z.Endpoints == 0 {
			continue
		}
		homes = append(homes, ZoneName(z.Name))
		switch {
		case z.Name == "":
			without = z.Endpoints
		case z.Capacity == 0:
			idle = append(idle, z.Name)
		}
	}
	var warnings []string
	switch {
	case endpoints == 1:
		warnings = append(warnings, "there is one endpoint only: when it fails, nothing is left")
	case len(homes) == 1 && withCapacity > 1 && without == 0:
		warnings = append(warnings, fmt.Sprintf("all %d endpoints are in %s: when it fails, nothing is left", endpoints, homes[0]))
	}
	if endpoints > 1 && endpoints < withCapacity {
		warnings = append(warnings, fmt.Sprintf("%d endpoints are fewer than the %d zones: some traffic has to leave its zone", endpoints, withCapacity))
	}
	if without > 0 {
		warnings = append(warnings, fmt.Sprintf("%s without a zone: no traffic to it counts as in-zone", count(without, "endpoint")))
	}
	if len(idle) > 0 {
		warnings = append(warnings, "endpoints are in zones without a node that counts: "+strings.Join(idle, ", "))
	}
	return warnings
}
