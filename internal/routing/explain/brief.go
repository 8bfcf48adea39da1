package explain

import (
	"fmt"
	"math"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Brief is Outcome without the numbers. It changes only with the reason, so that a condition is not written at every
// change of a Service's size.
func Brief(o allocate.Outcome) string {
	switch o.Rule {
	case allocate.RuleTiers:
		return "each zone uses its nearest endpoints"
	case allocate.RuleKept, allocate.RulePlanned, allocate.RuleRenewed:
		switch {
		case o.Algorithm == allocate.Flow:
			return "each zone uses its own endpoints, and sends the excess to others by weights (flow)"
		case o.Undivided:
			return fmt.Sprintf("all zones use all endpoints: %s has no better plan for them", algorithmOf(o))
		}
		overload := "stays below " + plaintext.Percent(o.Threshold)
		switch {
		case o.Algorithm == allocate.Auto: // which lets a load be at the threshold
			overload = "is at most " + plaintext.Percent(o.Threshold)
		case o.Figures.Overload >= o.Threshold: // hard regions allow it
			overload = "is not below " + plaintext.Percent(o.Threshold) + ", because each region uses only its own endpoints"
		}
		return fmt.Sprintf("endpoints are divided among zones by %s, the overload %s", algorithmOf(o), overload)
	}
	return "balanced: " + briefReason(o)
}

// briefReason says why there is no plan.
func briefReason(o allocate.Outcome) string {
	switch o.Rule {
	case allocate.RuleBelowStart, allocate.RuleInBand:
		return "too few endpoints to start"
	case allocate.RuleOverload:
		if math.IsInf(o.Overload, 1) {
			return fmt.Sprintf("%s would leave a zone without an endpoint", algorithmOf(o))
		}
		return fmt.Sprintf("%s would overload an endpoint, the threshold is %s", algorithmOf(o), plaintext.Percent(o.Threshold))
	case allocate.RuleNothingToSpare:
		return "a zone needs endpoints of other zones, and none has any to spare"
	case allocate.RuleFewEndpoints:
		return fmt.Sprintf("fewer endpoints than zones, %s needs one for each", algorithmOf(o))
	case allocate.RuleMinimums:
		return fmt.Sprintf("too few endpoints for %s to keep every zone below an overload of %s", algorithmOf(o), plaintext.Percent(o.Threshold))
	}
	if reason := reasonOf(o); reason != "" {
		return reason // it has no numbers
	}
	return string(o.Rule)
}
