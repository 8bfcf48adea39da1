package allocate_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/topology"
)

// The expected plans were worked out by hand from the definition of each algorithm. inZone and
// overload are in percent.
func TestAlgorithms(t *testing.T) {
	type want struct {
		plan             string
		rule             allocate.Rule
		inZone, overload float64
	}
	planned := func(plan string, inZone, overload float64) want {
		return want{plan, allocate.RulePlanned, inZone, overload}
	}
	refused := func(rule allocate.Rule, plan string, inZone float64) want {
		return want{plan, rule, inZone, 0}
	}
	for _, test := range []struct {
		name, region string
		want         map[allocate.Algorithm]want
	}{
		{"balanced endpoints", "a=5/4 b=5/4 c=5/4", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleAsked, "a,b,c: 4a 4b 4c", 33.333),
			allocate.Local:         planned("a: 4a | b: 4b | c: 4c", 100, 0),
			allocate.LocalShared:   planned("a: 4a | b: 4b | c: 4c", 100, 0),
			allocate.LocalWeighted: planned("a: 4a | b: 4b | c: 4c", 100, 0),
			allocate.LocalOpt:      planned("a: 4a | b: 4b | c: 4c", 100, 0),
			allocate.Auto:          planned("a: 4a | b: 4b | c: 4c", 100, 0),
		}},
		// Each zone expects 3.667 endpoints; Auto's minimums are 4 each.
		{"one endpoint short", "a=5/4 b=5/4 c=5/3", map[allocate.Algorithm]want{
			allocate.Balanced:    refused(allocate.RuleAsked, "a,b,c: 4a 4b 3c", 33.333),
			allocate.Local:       planned("a: 4a | b: 4b | c: 3c", 100, 22.222),
			allocate.LocalShared: planned("a: 4a | b: 4b | c: 3c", 100, 22.222),
			allocate.LocalOpt:    planned("a*0.333,b*0.333,c*0.333: 1a 1b | a: 3a | b: 3b | c: 3c", 87.879, 0),
			allocate.Auto:        refused(allocate.RuleMinimums, "a,b,c: 4a 4b 3c", 33.333),
		}},
		// Each zone expects 3 endpoints, and c has none.
		{"zone without endpoints", "a=1/6 b=1/3 c=1/0", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleAsked, "a,b,c: 6a 3b", 33.333),
			allocate.Local:         planned("a: 3a | b: 3b | c: 3a", 66.667, 0),
			allocate.LocalShared:   planned("a: 3a | b: 3b | c: 3a", 66.667, 0),
			allocate.LocalWeighted: planned("a: 3a | b: 3b | c: 3a", 66.667, 0),
			allocate.LocalOpt:      planned("a: 3a | b: 3b | c: 3a", 66.667, 0),
			allocate.Auto:          planned("a: 3a | b: 3b | c: 3a", 66.667, 0),
		}},
		// Fewer endpoints than zones: no contributor has more than one.
		{"fewer endpoints than zones", "a=1/1 b=1/1 c=1/0", map[allocate.Algorithm]want{
			allocate.Local:       refused(allocate.RuleOverload, "a,b,c: 1a 1b", 33.333),
			allocate.LocalShared: refused(allocate.RuleFewEndpoints, "a,b,c: 1a 1b", 33.333),
			allocate.LocalOpt:    planned("a*0.333,b*0.333,c*0.333: 1a 1b", 33.333, 0),
			allocate.Auto:        refused(allocate.RuleFewEndpoints, "a,b,c: 1a 1b", 33.333),
		}},
		{"one endpoint", "a=1/1 b=1/0 c=2/0", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleAsked, "a,b,c: 1a", 25),
			allocate.Local:         refused(allocate.RuleOverload, "a,b,c: 1a", 25),
			allocate.LocalShared:   refused(allocate.RuleFewEndpoints, "a,b,c: 1a", 25),
			allocate.LocalWeighted: planned("a*0.25,b*0.25,c*0.5: 1a", 25, 0),
			allocate.LocalOpt:      planned("a*0.333,b*0.333,c*0.333: 1a", 25, 0),
			allocate.Auto:          refused(allocate.RuleFewEndpoints, "a,b,c: 1a", 25),
		}},
		{"many nodes", "a=30/100 b=30/100 c=30/400", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleAsked, "a,b,c: 100a 100b 400c", 33.333),
			allocate.Local:         planned("a: 100a 100c | b: 100b 100c | c: 200c", 66.667, 0),
			allocate.LocalShared:   planned("a: 100a 100c | b: 100b 100c | c: 200c", 66.667, 0),
			allocate.LocalWeighted: planned("a: 100a 100c | b: 100b 100c | c: 200c", 66.667, 0),
			allocate.LocalOpt:      planned("a: 100a 100c | b: 100b 100c | c: 200c", 66.667, 0),
			allocate.Auto:          planned("a: 100a 100c | b: 100b 100c | c: 200c", 66.667, 0),
		}},
		// c needs one, but a would be overloaded by the half without it.
		{"no zone may give", "a=9/2 b=1/1 c=1/0", map[allocate.Algorithm]want{
			allocate.LocalShared: refused(allocate.RuleNothingToSpare, "a,b,c: 2a 1b", 57.576),
		}},
		// c has no nodes: it expects nothing. a and b expect 3.5 each; neither
		// lacks another whole endpoint in local.
		{"zone without nodes", "a=1/2 b=1/2 c=0/3", map[allocate.Algorithm]want{
			allocate.Balanced:    refused(allocate.RuleAsked, "a,b,c: 2a 2b 3c", 28.571),
			allocate.Local:       planned("a: 2a 1c | b: 2b 1c | c: 1c", 66.667, 16.667),
			allocate.LocalShared: planned("a: 2a 2c | b: 2b 1c", 58.333, 16.667),
			allocate.LocalOpt:    planned("a*0.5,b*0.5: 1c | a: 2a 1c | b: 2b 1c", 57.143, 0),
		}},
		{"zone without nodes that gives all", "a=1/4 b=1/4 c=0/4", map[allocate.Algorithm]want{
			allocate.LocalWeighted: planned("a: 4a 2c | b: 4b 2c", 66.667, 0),
			allocate.LocalOpt:      planned("a: 4a 2c | b: 4b 2c", 66.667, 0),
			allocate.Auto:          planned("a: 4a 2c | b: 4b 2c", 66.667, 0),
		}},
		{"all endpoints where no nodes are", "a=1/0 b=1/0 c=0/2", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleAsked, "a,b,c: 2c", 0),
			allocate.Local:         planned("a: 1c | b: 1c", 0, 0),
			allocate.LocalShared:   refused(allocate.RuleFewEndpoints, "a,b,c: 2c", 0),
			allocate.LocalWeighted: planned("a: 1c | b: 1c", 0, 0),
			allocate.LocalOpt:      planned("a: 1c | b: 1c", 0, 0),
		}},
		{"shared by fractions where no nodes are", "a=1/1 b=1/1 c=0/1", map[allocate.Algorithm]want{
			allocate.LocalWeighted: planned("a*0.5,b*0.5: 1c | a: 1a | b: 1b", 66.667, 0),
			allocate.LocalOpt:      planned("a*0.5,b*0.5: 1c | a: 1a | b: 1b", 66.667, 0),
		}},
		// c keeps its only endpoint, though b lacks 1.4 and c has 0.9 too many.
		{"the last endpoint stays", "a=85/9 b=114/10 c=1/1", map[allocate.Algorithm]want{
			allocate.Local: planned("a: 9a | b: 10b | c: 1c", 100, 14),
		}},
		// Auto moves nothing for a surplus and a lack of half an endpoint.
		{"half an endpoint", "a=1/5 b=1/4", map[allocate.Algorithm]want{
			allocate.Auto: planned("a: 5a | b: 4b", 100, 12.5),
		}},
		// No zone lacks half an endpoint, so upstream leaves d's endpoint to its own zone.
		{"one endpoint where no nodes are", "a=1/4 b=1/4 c=1/4 d=0/1", map[allocate.Algorithm]want{
			allocate.Auto: planned("a: 4a 1d | b: 4b | c: 4c", 93.333, 8.333),
		}},
		// The global group of local-opt bears all of a, a tenth of b and of c.
		{"overloaded global group", "a=90/1 b=305/3 c=305/3", map[allocate.Algorithm]want{
			allocate.Local:    planned("a: 1a | b: 3b | c: 3c", 100, 1.667),
			allocate.LocalOpt: refused(allocate.RuleOverload, "a,b,c: 1a 3b 3c", 39.184),
		}},
		{"one zone", "a=4/3", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleAsked, "a: 3a", 100),
			allocate.Local:         refused(allocate.RuleOneZone, "a: 3a", 100),
			allocate.LocalShared:   refused(allocate.RuleOneZone, "a: 3a", 100),
			allocate.LocalWeighted: refused(allocate.RuleOneZone, "a: 3a", 100),
			allocate.LocalOpt:      refused(allocate.RuleOneZone, "a: 3a", 100),
			allocate.Auto:          refused(allocate.RuleOneZone, "a: 3a", 100),
		}},
		{"no capacity", "a=0/3 b=0/1", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleAsked, "a,b: 3a 1b", 0),
			allocate.Local:         refused(allocate.RuleNoCapacity, "a,b: 3a 1b", 0),
			allocate.LocalShared:   refused(allocate.RuleNoCapacity, "a,b: 3a 1b", 0),
			allocate.LocalWeighted: refused(allocate.RuleNoCapacity, "a,b: 3a 1b", 0),
			allocate.LocalOpt:      refused(allocate.RuleNoCapacity, "a,b: 3a 1b", 0),
			allocate.Auto:          refused(allocate.RuleNoCapacity, "a,b: 3a 1b", 0),
		}},
		{"no endpoints", "a=1/0 b=2/0", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleNoEndpoints, "", 0),
			allocate.Local:         refused(allocate.RuleNoEndpoints, "", 0),
			allocate.LocalShared:   refused(allocate.RuleNoEndpoints, "", 0),
			allocate.LocalWeighted: refused(allocate.RuleNoEndpoints, "", 0),
			allocate.LocalOpt:      refused(allocate.RuleNoEndpoints, "", 0),
			allocate.Auto:          refused(allocate.RuleNoEndpoints, "", 0),
		}},
		{"no zones", "", map[allocate.Algorithm]want{
			allocate.Balanced:      refused(allocate.RuleNoEndpoints, "", 0),
			allocate.Local:         refused(allocate.RuleNoEndpoints, "", 0),
			allocate.LocalShared:   refused(allocate.RuleNoEndpoints, "", 0),
			allocate.LocalWeighted: refused(allocate.RuleNoEndpoints, "", 0),
			allocate.LocalOpt:      refused(allocate.RuleNoEndpoints, "", 0),
			allocate.Auto:          refused(allocate.RuleNoEndpoints, "", 0),
		}},
	} {
		for algorithm, want := range test.want {
			t.Run(fmt.Sprintf("%s/%s", test.name, algorithm), func(t *testing.T) {
				plan, outcome, err := allocate.Allocate(region(t, test.region), allocate.Intent{Bound: bound(algorithm)}, allocate.Previous{})
				if err != nil {
					t.Fatal(err)
				}
				if got := render(plan); got != want.plan || outcome.Rule != want.rule {
					t.Fatalf("%s by %s, want %s by %s", got, outcome.Rule, want.plan, want.rule)
				}
				if math.Abs(100*outcome.Figures.InZone-want.inZone) > 0.001 || math.Abs(100*outcome.Figures.Overload-want.overload) > 0.001 {
					t.Errorf("in zone %.3f%%, overload %.3f%%, want %.3f%% and %.3f%%",
						100*outcome.Figures.InZone, 100*outcome.Figures.Overload, want.inZone, want.overload)
				}
				if outcome.IsBalanced() != (want.rule != allocate.RulePlanned) {
					t.Errorf("the state is %s", outcome.State)
				}
			})
		}
	}
}

// b expects half an endpoint more than it has. Only a threshold above 50 % allows that.
func TestOverloadThreshold(t *testing.T) {
	for _, algorithm := range []allocate.Algorithm{allocate.Local, allocate.LocalShared} {
		for threshold, want := range map[float64]string{
			0.01: "a,b: 2a 1b", 0.4999: "a,b: 2a 1b", 0.5: "a,b: 2a 1b", 0.5001: "a: 2a | b: 1b", 7: "a: 2a | b: 1b",
		} {
			b := bound(algorithm)
			b.OverloadThreshold = threshold
			plan, outcome, err := allocate.Allocate(region(t, "a=1/2 b=1/1"), allocate.Intent{Bound: b}, allocate.Previous{})
			if err != nil || render(plan) != want {
				t.Errorf("%s at %g: %s, %v, want %s", algorithm, threshold, render(plan), err, want)
			}
			if outcome.Threshold != threshold {
				t.Errorf("%s at %g: the outcome's threshold is %g", algorithm, threshold, outcome.Threshold)
			}
			if outcome.Rule == allocate.RuleOverload && (outcome.Zone != "b" || outcome.Overload != 0.5) {
				t.Errorf("%s at %g: the outcome speaks of zone %q and overload %g", algorithm, threshold, outcome.Zone, outcome.Overload)
			}
		}
	}
}

// The safeguards of Auto, in the order in which upstream looks at them.
func TestAutoIsOff(t *testing.T) {
	for _, test := range []struct {
		name, region  string
		noZone, noCPU int
		rule          allocate.Rule
		minimum       int
	}{
		{name: "a node without a zone", region: "a=4/4 b=4/4", noZone: 1, rule: allocate.RuleNodeNoZone},
		{name: "a node without CPU", region: "a=4/4 b=4/4", noCPU: 1, rule: allocate.RuleNodeNoCapacity},
		{name: "one zone", region: "a=4/4 b=0/4", rule: allocate.RuleOneZone},
		{name: "fewer endpoints than zones", region: "a=4/1 b=4/1 c=4/0", rule: allocate.RuleFewEndpoints},
		{name: "zones without nodes do not count", region: "a=4/1 b=4/1 c=0/0", rule: allocate.RulePlanned},
		{name: "minimums", region: "a=4/4 b=4/4 c=4/3", rule: allocate.RuleMinimums, minimum: 12},
		{name: "an endpoint without a zone", region: "a=4/4 b=4/4 -=0/1", rule: allocate.RuleEndpointNoZone},
		{name: "no endpoint without a zone", region: "a=4/4 b=4/4 -=0/0", rule: allocate.RulePlanned},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := region(t, test.region)
			r.NodesWithoutZone, r.NodesWithoutCapacity = test.noZone, test.noCPU
			plan, outcome, err := allocate.Allocate(r, allocate.Intent{Bound: bound(allocate.Auto)}, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			if outcome.Rule != test.rule || outcome.Minimum != test.minimum {
				t.Errorf("%s with minimum %d, want %s with %d", outcome.Rule, outcome.Minimum, test.rule, test.minimum)
			}
			if outcome.IsBalanced() != (len(plan.Groups) == 1) {
				t.Errorf("%s in state %s", render(plan), outcome.State)
			}
			// The other algorithms ignore nodes without zone or capacity.
			if _, outcome, err = allocate.Allocate(r, allocate.Intent{Bound: bound(allocate.Local)}, allocate.Previous{}); err != nil ||
				outcome.Rule == allocate.RuleNodeNoZone || outcome.Rule == allocate.RuleNodeNoCapacity || outcome.Rule == allocate.RuleEndpointNoZone {
				t.Errorf("local: %s, %v", outcome.Rule, err)
			}
		})
	}
}

func TestInvalidInput(t *testing.T) {
	const fine = "a=1/1 b=1/1"
	zoneAndAny := topology.Tiers{topology.Zone, topology.Anywhere}
	with := func(change func(*allocate.Bound)) allocate.Intent {
		b := bound(allocate.Local)
		change(b)
		return allocate.Intent{Tiers: zoneAndAny, Bound: b}
	}
	threshold := func(value float64) allocate.Intent {
		return with(func(b *allocate.Bound) { b.OverloadThreshold = value })
	}
	start := func(s allocate.Start) allocate.Intent {
		return with(func(b *allocate.Bound) { b.Start = s })
	}
	for _, test := range []struct {
		name, region string
		intent       allocate.Intent
		want         []string // parts of the error: field, value, allowed values
	}{
		{"threshold not a number", fine, threshold(math.NaN()), []string{"overload threshold", "NaN", "above 0"}},
		{"algorithm", fine, with(func(b *allocate.Bound) { b.Algorithm = "Local" }), []string{"algorithm", `"Local"`, "balanced, local, local-shared, local-weighted, local-opt, auto, optimal"}},
		{"padding", fine, with(func(b *allocate.Bound) { b.Padding = -1 }), []string{"padding", "-1", "0 or more"}},
		{"start", fine, start(allocate.Start{Endpoints: -4}), []string{"starting threshold", "-4", "0 or more"}},
		{"start per zone not a number", fine, start(allocate.Start{PerZone: math.NaN()}), []string{"starting threshold", "NaN", "0 or more"}},
		{"tiers", fine, allocate.Intent{Tiers: topology.Tiers{"*", topology.Zone}}, []string{"topology keys", `"*"`, "last"}},
		{"bound in a hard zone", fine, allocate.Intent{Tiers: topology.Tiers{topology.Zone}, Bound: bound(allocate.Local)}, []string{"topology keys", topology.Zone, `"*"`}},
		{"bound with a hard key of the user's", fine, allocate.Intent{Tiers: topology.Tiers{topology.Zone, "rack"}, Bound: bound(allocate.Local)}, []string{"topology keys", `"rack"`, "cannot keep", topology.Region, `"*"`}},
		{"zone twice", "a=1/1 b=1/1 a=2/3", allocate.Intent{}, []string{"zone", `"a"`, "twice"}},
		{"endpoints below 0", "a=1/1 b=1/-2", allocate.Intent{}, []string{"zone", `"b"`, "-2", "fewer than 0"}},
		{"endpoints beyond counting", "a=1/1 b=1/9223372036854775807", allocate.Intent{}, []string{"zone", `"b"`, "9223372036854775807", "at most"}},
		{"capacity not a number", "a=NaN/1 b=1/1", allocate.Intent{}, []string{"zone", `"a"`, "NaN", "from 0 to"}},
		{"capacity absurd", "a=1/1 b=1e300/1", allocate.Intent{}, []string{"zone", `"b"`, "1e+300", "from 0 to"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			plan, _, err := allocate.Allocate(region(t, test.region), test.intent, allocate.Previous{})
			if err == nil {
				t.Fatalf("no error, the plan is %s", render(plan))
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not contain %q", err, part)
				}
			}
			if len(plan.Groups) != 0 {
				t.Errorf("%s comes with the error", render(plan))
			}
		})
	}
}

func TestStart(t *testing.T) {
	for _, test := range []struct {
		start allocate.Start
		zones int
		want  int
		text  string
	}{
		{allocate.Start{}, 3, 0, "0"},
		{allocate.Start{Endpoints: 12}, 3, 12, "12"},
		{allocate.Start{PerZone: 3}, 3, 9, "3x"},
		{allocate.Start{PerZone: 3}, 0, 0, "3x"},
		{allocate.Start{PerZone: 1.5}, 3, 5, "1.5x"},
		{allocate.Start{PerZone: 0.1}, 30, 3, "0.1x"},
		{allocate.Start{Endpoints: 10, PerZone: 3}, 3, 10, "10"},
		{allocate.Start{Endpoints: 8, PerZone: 3}, 3, 9, "8"},
	} {
		if got := test.start.In(test.zones); got != test.want {
			t.Errorf("%+v in %d zones is %d endpoints, want %d", test.start, test.zones, got, test.want)
		}
		if got := test.start.String(); got != test.text {
			t.Errorf("%+v is written %q, want %q", test.start, got, test.text)
		}
	}
	// Zones with neither nodes nor endpoints do not count.
	b := bound(allocate.Local)
	b.Start.PerZone = 3
	_, outcome, err := allocate.Allocate(region(t, "a=1/3 b=1/3 c=0/0"), allocate.Intent{Bound: b}, allocate.Previous{})
	if err != nil || outcome.Start != 6 || outcome.Zones != 2 || outcome.Endpoints != 6 || outcome.Rule != allocate.RulePlanned {
		t.Errorf("%+v, %v, want a start of 6 in 2 zones", outcome, err)
	}
	_, outcome, err = allocate.Allocate(region(t, "a=1/3 b=1/3 c=1/2"), allocate.Intent{Bound: b}, allocate.Previous{})
	if err != nil || outcome.Start != 9 || outcome.Rule != allocate.RuleBelowStart || !outcome.IsBalanced() {
		t.Errorf("%+v, %v, want a start of 9", outcome, err)
	}
}

// Extreme but allowed numbers give a sound plan.
func TestExtremeRegions(t *testing.T) {
	for _, text := range []string{
		"a=1e15/3 b=1e15/3 c=1e15/4",
		"a=1e15/4 b=1e-3/0",
		"a=1e15/4 b=1e-300/4 c=1e-300/0",
		"a=5e-324/4 b=5e-324/1",
		"a=1e-310/40 b=1/1",
		"a=1e15/0 b=1/50",
		"a=0/0 b=0/0 c=1/1",
		"a=0/5 b=1e-9/0",
	} {
		for _, algorithm := range allocate.Algorithms() {
			r := region(t, text)
			plan, outcome, err := allocate.Allocate(r, allocate.Intent{Bound: bound(algorithm)}, allocate.Previous{})
			if err != nil {
				t.Errorf("%s, %s: %v", text, algorithm, err)
				continue
			}
			t.Run(fmt.Sprintf("%s/%s", text, algorithm), func(t *testing.T) { checkPlan(t, r, plan, outcome) })
		}
	}
}
