// Package explain renders decisions and their reasons as sentences and tables, and finds small changes of a Service
// that would improve its plan.
//
// It is the only renderer of decisions, so they read the same in commands, events, conditions and golden files. It
// decides nothing: plans for comparison come from package allocate.
package explain

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Outcome returns the sentence about a decision and its rule, such as "balanced: 8 endpoints, starts at 12 (threshold 9
// + padding 3)".
func Outcome(o allocate.Outcome) string {
	// A rule without a sentence still has a name.
	reason := cmp.Or(reasonOf(o), string(o.Rule))
	switch {
	case o.IsBalanced():
		return "balanced: " + reason
	case o.Algorithm != "":
		return string(o.Algorithm) + ": " + reason
	}
	return reason
}

// reasonOf returns the part of the sentence about the rule, empty for an unknown rule.
func reasonOf(o allocate.Outcome) string {
	switch o.Rule {
	case allocate.RuleAsked:
		return "nothing else is asked for"
	case allocate.RuleNoEndpoints:
		return "no endpoint is ready"
	case allocate.RuleNoCapacity:
		return "no zone has capacity, so the origin of traffic is unknown"
	case allocate.RuleOneZone:
		if o.Zones == 1 {
			return "one zone has all nodes and all endpoints, so there is nothing to choose"
		}
		return fmt.Sprintf("fewer than 2 zones have capacity, so %s has nothing to divide", algorithmOf(o))
	case allocate.RuleTiers:
		return "nearest: each zone uses its nearest endpoints, however high the load is" + unreachedSuffix(o)
	case allocate.RuleBelowStart, allocate.RuleInBand:
		// The numbers show which of the two rules applies. Both have the same remedy.
		return fmt.Sprintf("%s, starts at %s", plaintext.Plural(o.Endpoints, "endpoint"), startText(o))
	case allocate.RuleKept:
		if o.Algorithm == allocate.Flow {
			return "the weights in force, own endpoints first, overload " + plaintext.Percent(o.Figures.Overload) + unreachedSuffix(o)
		}
		return "the previous plan, new endpoints in their own zone, " + undividedPrefix(o) + loadText(o)
	case allocate.RuleRenewed:
		return "a new plan, better than the previous one: " + undividedPrefix(o) + Change(o.Figures, o.Before) + ", " + thresholdText(o)
	case allocate.RulePlanned:
		if o.Algorithm == allocate.Flow {
			return "new weights, own endpoints first, overload " + plaintext.Percent(o.Figures.Overload) + unreachedSuffix(o)
		}
		return "a new plan, " + undividedPrefix(o) + loadText(o)
	case allocate.RuleOverload:
		if math.IsInf(o.Overload, 1) {
			return fmt.Sprintf("%s would leave %s without an endpoint", algorithmOf(o), ZoneName(o.Zone))
		}
		return fmt.Sprintf("%s would overload%s by %s, the threshold is %s", algorithmOf(o), overloadedPart(o.Zone), plaintext.Percent(o.Overload), plaintext.Percent(o.Threshold))
	case allocate.RuleNothingToSpare:
		return fmt.Sprintf("%s needs endpoints of other zones, and none has any to spare", ZoneName(o.Zone))
	case allocate.RuleFewEndpoints:
		return fmt.Sprintf("%s for %s, %s needs one for each", plaintext.Plural(o.Endpoints, "endpoint"), plaintext.Plural(o.Zones, "zone"), algorithmOf(o))
	case allocate.RuleNodeNoZone:
		return fmt.Sprintf("a node has no zone, and %s needs the zones of all", algorithmOf(o))
	case allocate.RuleNodeNoCapacity:
		return fmt.Sprintf("a node has no allocatable CPU, and %s needs that of all", algorithmOf(o))
	case allocate.RuleEndpointNoZone:
		return fmt.Sprintf("an endpoint has no zone, and %s needs the zones of all", algorithmOf(o))
	case allocate.RuleMinimums:
		return fmt.Sprintf("%s, %s needs at least %d to keep every zone below an overload of %s",
			plaintext.Plural(o.Endpoints, "endpoint"), algorithmOf(o), o.Minimum, plaintext.Percent(o.Threshold))
	}
	return ""
}

// startText returns the number of endpoints at which plans begin.
func startText(o allocate.Outcome) string {
	if o.Padding == 0 {
		return strconv.Itoa(o.Start)
	}
	return fmt.Sprintf("%d (threshold %d + padding %d)", o.Start+o.Padding, o.Start, o.Padding)
}

func undividedPrefix(o allocate.Outcome) string {
	if o.Undivided {
		return "all zones use all endpoints, "
	}
	return ""
}

// loadText describes the load of the busiest endpoint.
func loadText(o allocate.Outcome) string {
	return "overload " + plaintext.Percent(o.Figures.Overload) + ", " + thresholdText(o)
}

func thresholdText(o allocate.Outcome) string {
	relation := "below"
	if o.Figures.Overload >= o.Threshold {
		relation = "not below"
	}
	return relation + " the threshold of " + plaintext.Percent(o.Threshold) + unreachedSuffix(o)
}

// Change compares a plan with the one before it, as in "100 % of the traffic stays in its zone instead of 83.3 %,
// greatest overload 0 % as before".
func Change(now, before allocate.Figures) string {
	return fmt.Sprintf("%s of the traffic stays in its zone%s, greatest overload %s%s",
		plaintext.Percent(now.InZone), comparedWith(now.InZone, before.InZone), plaintext.Percent(now.Overload), comparedWith(now.Overload, before.Overload))
}

func comparedWith(now, before float64) string {
	if plaintext.Percent(now) == plaintext.Percent(before) {
		return " as before"
	}
	return " instead of " + plaintext.Percent(before)
}

// unreachedSuffix counts zones that a requirement leaves without an endpoint.
func unreachedSuffix(o allocate.Outcome) string {
	if n := o.Figures.Unreached; n > 0 {
		return "; " + Unreached(n)
	}
	return ""
}

// Unreached says how many zones a requirement leaves without an endpoint.
func Unreached(zones int) string {
	if zones == 1 {
		return "1 zone reaches no endpoint"
	}
	return fmt.Sprintf("%d zones reach no endpoint", zones)
}

func algorithmOf(o allocate.Outcome) string {
	if o.Algorithm == "" {
		return "the algorithm"
	}
	return string(o.Algorithm)
}

func overloadedPart(zone string) string {
	if zone == "" {
		return " an endpoint"
	}
	return " the endpoints of " + zone
}

// ZoneName returns a zone's name for display. The unknown zone has no name, and slices can have names with control
// characters.
func ZoneName(zone string) string {
	switch {
	case zone == "":
		return "(none)"
	case strings.ContainsFunc(zone, func(r rune) bool { return !unicode.IsGraphic(r) }):
		return strconv.Quote(zone)
	}
	return zone
}
