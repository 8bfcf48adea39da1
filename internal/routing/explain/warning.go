package explain

import (
	"fmt"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Limit is a problem of a Service that no plan solves.
type Limit struct {
	// Name is that of its section in docs/concepts/routing.md. It is stable.
	Name string `json:"name"`
	// Text is a sentence.
	Text string `json:"text"`
	// Link leads to the section.
	Link string `json:"link"`
}

// The names of limits.
const (
	LimitOneEndpoint        = "one-endpoint"
	LimitEndpointsInOneZone = "endpoints-in-one-zone"
	LimitFewEndpoints       = "fewer-endpoints-than-zones"
	LimitEndpointsNoZone    = "endpoints-without-a-zone"
	LimitZonesWithoutNodes  = "zones-without-nodes"
	LimitTrafficFromOneZone = "traffic-from-one-zone"
	LimitAutoscaling        = "autoscaling-by-one-zone"
)

func newLimit(name, format string, args ...any) Limit {
	return Limit{name, fmt.Sprintf(format, args...), "docs/concepts/routing.md#" + name}
}

// Warnings returns sentences about the zones of the endpoints.
func Warnings(region allocate.Region) []string {
	var warnings []string
	for _, limit := range Limits(region) {
		warnings = append(warnings, limit.Text)
	}
	return warnings
}

// Limits returns the limits that follow from the zones of the endpoints.
func Limits(region allocate.Region) []Limit {
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
	var limits []Limit
	switch {
	case endpoints == 1:
		limits = append(limits, newLimit(LimitOneEndpoint, "there is only one endpoint: when it fails, the Service is down"))
	case len(homes) == 1 && withCapacity > 1 && without == 0:
		limits = append(limits, newLimit(LimitEndpointsInOneZone, "all %d endpoints are in %s: when it fails, the Service is down", endpoints, homes[0]))
	}
	if endpoints > 1 && endpoints < withCapacity {
		limits = append(limits, newLimit(LimitFewEndpoints, "%d endpoints are fewer than the %d zones: some traffic has to leave its zone", endpoints, withCapacity))
	}
	if without > 0 {
		them := "them"
		if without == 1 {
			them = "it"
		}
		limits = append(limits, newLimit(LimitEndpointsNoZone, "%s without a zone: no traffic to %s counts as in-zone", plaintext.Plural(without, "endpoint"), them))
	}
	if len(idle) > 0 {
		limits = append(limits, newLimit(LimitZonesWithoutNodes, "endpoints are in zones without a node that counts: %s", strings.Join(idle, ", ")))
	}
	return limits
}

// TrafficFromOneZone returns the effect of a plan if all traffic comes from one zone, for the worst zone. It finds none
// if all zones use all endpoints, or if there are none.
func TrafficFromOneZone(region allocate.Region, plan allocate.Plan) (limit Limit, found bool) {
	endpoints := float64(region.Endpoints())
	shares := region.Shares(plan.Zones)
	worst, worstLoad := -1, 1+1e-9
	for z := range plan.Zones {
		if shares[z] == 0 {
			continue
		}
		only := make([]float64, len(plan.Zones))
		only[z] = 1
		load := 1 + new(allocate.Meter).Measure(plan, only).Overload
		if width := usageOf(plan, z).width(); width > 0 && load > worstLoad+1e-9 {
			worst, worstLoad = z, load
		}
	}
	if worst < 0 || endpoints == 0 {
		return Limit{}, false
	}
	return newLimit(LimitTrafficFromOneZone,
		"the plan expects %s of the traffic from %s: if all of it came from there, an endpoint would get %s times its even share",
		plaintext.Percent(shares[worst]), ZoneName(plan.Zones[worst]), plaintext.Decimal(worstLoad, 2)), true
}

// Autoscaled returns the limit of autoscalers that set the number of endpoints of a Service whose zones use different
// ones.
func Autoscaled(autoscalers []string) Limit {
	return newLimit(LimitAutoscaling, "%s scales by the mean load of all pods, which hides the load of a single zone", strings.Join(autoscalers, ", "))
}
