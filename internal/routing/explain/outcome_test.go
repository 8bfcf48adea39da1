package explain

import (
	"math"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/test/golden"
)

// outcomes has at least one outcome for each rule.
func outcomes() []allocate.Outcome {
	return []allocate.Outcome{
		{Rule: allocate.RuleAsked},
		{Rule: allocate.RuleNoEndpoints},
		{Rule: allocate.RuleNoCapacity, Algorithm: allocate.Local},
		{Rule: allocate.RuleOneZone, Algorithm: allocate.Auto, State: allocate.Downgraded},
		{Rule: allocate.RuleOneZone, Algorithm: allocate.Optimal, Zones: 1},
		{Rule: allocate.RuleTiers, State: allocate.Allocated},
		{Rule: allocate.RuleTiers, State: allocate.Allocated, Figures: allocate.Figures{Unreached: 1}},
		{Rule: allocate.RuleBelowStart, Algorithm: allocate.Optimal, Endpoints: 5, Start: 9, Padding: 3},
		{Rule: allocate.RuleBelowStart, Algorithm: allocate.Optimal, Endpoints: 1, Start: 9},
		{Rule: allocate.RuleInBand, Algorithm: allocate.Local, Endpoints: 8, Start: 9, Padding: 3},
		{Rule: allocate.RuleKept, Algorithm: allocate.Local, State: allocate.Allocated, Threshold: 0.5, Figures: allocate.Figures{Overload: 1.0 / 3}},
		{Rule: allocate.RuleRenewed, Algorithm: allocate.Optimal, State: allocate.Allocated, Threshold: 0.5, Figures: allocate.Figures{InZone: 1}, Before: allocate.Figures{InZone: 5.0 / 6}},
		{Rule: allocate.RulePlanned, Algorithm: allocate.Optimal, State: allocate.Allocated, Threshold: 0.5, Figures: allocate.Figures{Overload: -1e-17}},
		{Rule: allocate.RulePlanned, Algorithm: allocate.Auto, State: allocate.Allocated, Threshold: 0.2},
		{Rule: allocate.RulePlanned, Algorithm: allocate.Flow, State: allocate.Allocated, Threshold: 0.5},
		{Rule: allocate.RuleKept, Algorithm: allocate.Flow, State: allocate.Allocated, Threshold: 0.5, Figures: allocate.Figures{Overload: 0.004}},
		{Rule: allocate.RulePlanned, Algorithm: allocate.LocalOpt, State: allocate.Allocated, Threshold: 0.5, Figures: allocate.Figures{Overload: 0.75}},
		{Rule: allocate.RulePlanned, Algorithm: allocate.Optimal, State: allocate.Allocated, Threshold: 0.5, Figures: allocate.Figures{Overload: 0.25, Unreached: 2}},
		{Rule: allocate.RuleOverload, Algorithm: allocate.Local, State: allocate.Downgraded, Zone: "zone-c", Overload: 0.6, Threshold: 0.5},
		{Rule: allocate.RuleOverload, Algorithm: allocate.LocalShared, State: allocate.Downgraded, Overload: 0.6, Threshold: 0.5},
		{Rule: allocate.RuleOverload, Algorithm: allocate.Local, State: allocate.Downgraded, Zone: "zone-c", Overload: math.Inf(1), Threshold: 0.5},
		{Rule: allocate.RuleNothingToSpare, Algorithm: allocate.LocalShared, State: allocate.Downgraded, Zone: "zone-c"},
		{Rule: allocate.RuleFewEndpoints, Algorithm: allocate.Auto, State: allocate.Downgraded, Endpoints: 2, Zones: 3},
		{Rule: allocate.RuleNodeNoZone, Algorithm: allocate.Auto, State: allocate.Downgraded},
		{Rule: allocate.RuleNodeNoCapacity, Algorithm: allocate.Auto, State: allocate.Downgraded},
		{Rule: allocate.RuleEndpointNoZone, Algorithm: allocate.Auto, State: allocate.Downgraded},
		{Rule: allocate.RuleMinimums, Algorithm: allocate.Auto, State: allocate.Downgraded, Endpoints: 11, Minimum: 12, Threshold: 0.2},
	}
}

func TestOutcomesGolden(t *testing.T) {
	var text strings.Builder
	for _, outcome := range outcomes() {
		brief := Brief(outcome)
		text.WriteString(Outcome(outcome) + "\n  " + brief + "\n")
		// Conditions have these words, so numbers must not change them.
		outcome.Endpoints, outcome.Minimum, outcome.Zone = 70, 80, "c"
		outcome.Figures.Overload += 0.01
		if other := Brief(outcome); other != brief {
			t.Errorf("%s: with other numbers %q", brief, other)
		}
	}
	golden.Compare(t, "testdata/outcomes.txt", text.String())
}
