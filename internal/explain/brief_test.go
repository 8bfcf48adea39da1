package explain

import (
	"math"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

func TestBrief(t *testing.T) {
	bound := func(rule allocate.Rule) allocate.Outcome {
		return allocate.Outcome{
			Rule: rule, Algorithm: allocate.Optimal, Threshold: 0.5, Endpoints: 7, Zones: 3, Start: 9, Padding: 3, Zone: "b", Overload: 0.6, Minimum: 8,
			Figures: allocate.Figures{Overload: 0.2},
		}
	}
	regions := bound(allocate.RulePlanned)
	regions.Figures.Overload, regions.Threshold = 0.3, 0.25
	auto := bound(allocate.RulePlanned)
	auto.Algorithm, auto.Threshold = allocate.Auto, 0.2
	unserved := bound(allocate.RuleOverload)
	unserved.Overload = math.Inf(1)
	for _, test := range []struct {
		outcome allocate.Outcome
		want    string
	}{
		{allocate.Outcome{Rule: allocate.RuleTiers}, "each zone uses its nearest endpoints"},
		{bound(allocate.RuleKept), "endpoints are divided among zones by optimal, the overload stays below 50 %"},
		{bound(allocate.RulePlanned), "endpoints are divided among zones by optimal, the overload stays below 50 %"},
		{auto, "endpoints are divided among zones by auto, the overload is at most 20 %"},
		{regions, "endpoints are divided among zones by optimal, the overload is not below 25 %, since each region has its own endpoints only"},
		{bound(allocate.RuleBelowStart), "balanced: too few endpoints to start"},
		{bound(allocate.RuleInBand), "balanced: too few endpoints to start"},
		{bound(allocate.RuleOverload), "balanced: optimal would overload an endpoint, the threshold is 50 %"},
		{unserved, "balanced: optimal would leave a zone without an endpoint"},
		{bound(allocate.RuleNothingToSpare), "balanced: a zone needs endpoints of other zones, and none has any to spare"},
		{bound(allocate.RuleFewEndpoints), "balanced: fewer endpoints than zones, optimal needs one for each"},
		{bound(allocate.RuleMinimums), "balanced: too few endpoints for optimal to keep every zone below an overload of 50 %"},
		{bound(allocate.RuleNoEndpoints), "balanced: no endpoint is ready"},
		{bound(allocate.RuleNodeNoZone), "balanced: a node has no zone, and optimal needs the zones of all"},
		{bound("Newer"), "balanced: Newer"},
	} {
		got := Brief(test.outcome)
		if got != test.want {
			t.Errorf("%s: got %q, want %q", test.outcome.Rule, got, test.want)
		}
		// Other numbers are no other words.
		other := test.outcome
		other.Endpoints, other.Zones, other.Minimum, other.Zone, other.Figures.Overload = 70, 30, 80, "c", 0.3
		if again := Brief(other); again != got {
			t.Errorf("%s: with other numbers %q", test.outcome.Rule, again)
		}
	}
}
