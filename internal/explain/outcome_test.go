package explain

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"vicinity.dev/vicinity/internal/allocate"
)

// sentences has at least one outcome for each rule.
func sentences() []struct {
	outcome allocate.Outcome
	want    string
} {
	return []struct {
		outcome allocate.Outcome
		want    string
	}{
		{
			allocate.Outcome{Rule: allocate.RuleAsked},
			"balanced: nothing else is asked for",
		},
		{
			allocate.Outcome{Rule: allocate.RuleNoEndpoints},
			"balanced: no endpoint is ready",
		},
		{
			allocate.Outcome{Rule: allocate.RuleNoCapacity, Algorithm: allocate.Local},
			"balanced: no zone has capacity, so where traffic comes from is unknown",
		},
		{
			allocate.Outcome{Rule: allocate.RuleOneZone, Algorithm: allocate.Auto, State: allocate.Downgraded},
			"balanced: fewer than 2 zones have capacity, so auto has nothing to divide",
		},
		{
			allocate.Outcome{Rule: allocate.RuleOneZone, Algorithm: allocate.Optimal, Zones: 1},
			"balanced: one zone has all nodes and all endpoints, so there is nothing to choose",
		},
		{
			allocate.Outcome{Rule: allocate.RuleTiers, State: allocate.Allocated},
			"nearest: each zone uses its nearest endpoints, whatever load that makes",
		},
		{
			allocate.Outcome{Rule: allocate.RuleTiers, State: allocate.Allocated, Figures: allocate.Figures{Unreached: 1}},
			"nearest: each zone uses its nearest endpoints, whatever load that makes; 1 zone reaches no endpoint",
		},
		{
			allocate.Outcome{Rule: allocate.RuleBelowStart, Algorithm: allocate.Optimal, Endpoints: 5, Start: 9, Padding: 3},
			"balanced: 5 endpoints, starts at 12 (threshold 9 + padding 3)",
		},
		{
			allocate.Outcome{Rule: allocate.RuleBelowStart, Algorithm: allocate.Optimal, Endpoints: 1, Start: 9},
			"balanced: 1 endpoint, starts at 9",
		},
		{
			allocate.Outcome{Rule: allocate.RuleInBand, Algorithm: allocate.Local, Endpoints: 8, Start: 9, Padding: 3},
			"balanced: 8 endpoints, starts at 12 (threshold 9 + padding 3)",
		},
		{
			allocate.Outcome{
				Rule: allocate.RuleKept, Algorithm: allocate.Local, State: allocate.Allocated, Threshold: 0.5,
				Figures: allocate.Figures{Overload: 1.0 / 3},
			},
			"local: the previous plan, new endpoints in their own zone, overload 33.3 %, below the threshold of 50 %",
		},
		{
			allocate.Outcome{
				Rule: allocate.RuleRenewed, Algorithm: allocate.Optimal, State: allocate.Allocated, Threshold: 0.5,
				Figures: allocate.Figures{InZone: 1}, Before: allocate.Figures{InZone: 5.0 / 6},
			},
			"optimal: a new plan, better than the previous one: 100 % of the traffic stays in its zone instead of 83.3 %, greatest overload 0 % as before, below the threshold of 50 %",
		},
		{
			allocate.Outcome{
				Rule: allocate.RulePlanned, Algorithm: allocate.Optimal, State: allocate.Allocated, Threshold: 0.5,
				Figures: allocate.Figures{Overload: -1e-17},
			},
			"optimal: a new plan, overload 0 %, below the threshold of 50 %",
		},
		{
			allocate.Outcome{Rule: allocate.RulePlanned, Algorithm: allocate.Flow, State: allocate.Allocated, Threshold: 0.5},
			"flow: new weights, own endpoints first, overload 0 %",
		},
		{
			allocate.Outcome{
				Rule: allocate.RuleKept, Algorithm: allocate.Flow, State: allocate.Allocated, Threshold: 0.5,
				Figures: allocate.Figures{Overload: 0.004},
			},
			"flow: the weights in force, own endpoints first, overload 0.4 %",
		},
		{
			allocate.Outcome{
				Rule: allocate.RulePlanned, Algorithm: allocate.LocalOpt, State: allocate.Allocated, Threshold: 0.5,
				Figures: allocate.Figures{Overload: 0.75},
			},
			"local-opt: a new plan, overload 75 %, not below the threshold of 50 %",
		},
		{
			allocate.Outcome{
				Rule: allocate.RulePlanned, Algorithm: allocate.Optimal, State: allocate.Allocated, Threshold: 0.5,
				Figures: allocate.Figures{Overload: 0.25, Unreached: 2},
			},
			"optimal: a new plan, overload 25 %, below the threshold of 50 %; 2 zones reach no endpoint",
		},
		{
			allocate.Outcome{
				Rule: allocate.RuleOverload, Algorithm: allocate.Local, State: allocate.Downgraded,
				Zone: "zone-c", Overload: 0.6, Threshold: 0.5,
			},
			"balanced: local would overload the endpoints of zone-c by 60 %, the threshold is 50 %",
		},
		{
			allocate.Outcome{Rule: allocate.RuleOverload, Algorithm: allocate.LocalShared, State: allocate.Downgraded, Overload: 0.6, Threshold: 0.5},
			"balanced: local-shared would overload an endpoint by 60 %, the threshold is 50 %",
		},
		{
			allocate.Outcome{
				Rule: allocate.RuleOverload, Algorithm: allocate.Local, State: allocate.Downgraded,
				Zone: "zone-c", Overload: math.Inf(1), Threshold: 0.5,
			},
			"balanced: local would leave zone-c without an endpoint",
		},
		{
			allocate.Outcome{Rule: allocate.RuleNothingToSpare, Algorithm: allocate.LocalShared, State: allocate.Downgraded, Zone: "zone-c"},
			"balanced: zone-c needs endpoints of other zones, and none has any to spare",
		},
		{
			allocate.Outcome{Rule: allocate.RuleFewEndpoints, Algorithm: allocate.Auto, State: allocate.Downgraded, Endpoints: 2, Zones: 3},
			"balanced: 2 endpoints for 3 zones, auto needs one for each",
		},
		{
			allocate.Outcome{Rule: allocate.RuleNodeNoZone, Algorithm: allocate.Auto, State: allocate.Downgraded},
			"balanced: a node has no zone, and auto needs the zones of all",
		},
		{
			allocate.Outcome{Rule: allocate.RuleNodeNoCapacity, Algorithm: allocate.Auto, State: allocate.Downgraded},
			"balanced: a node has no allocatable CPU, and auto needs that of all",
		},
		{
			allocate.Outcome{Rule: allocate.RuleEndpointNoZone, Algorithm: allocate.Auto, State: allocate.Downgraded},
			"balanced: an endpoint has no zone, and auto needs the zones of all",
		},
		{
			allocate.Outcome{
				Rule: allocate.RuleMinimums, Algorithm: allocate.Auto, State: allocate.Downgraded,
				Endpoints: 11, Minimum: 12, Threshold: 0.2,
			},
			"balanced: 11 endpoints, auto needs at least 12 to keep every zone below an overload of 20 %",
		},
	}
}

func TestOutcome(t *testing.T) {
	for _, test := range sentences() {
		if got := Outcome(test.outcome); got != test.want {
			t.Errorf("%s:\ngot  %q\nwant %q", test.outcome.Rule, got, test.want)
		}
	}
}

// A rule that is added to package allocate needs a sentence here.
func TestEveryRuleHasASentence(t *testing.T) {
	tested := map[allocate.Rule]bool{}
	for _, test := range sentences() {
		tested[test.outcome.Rule] = true
	}
	rules := declaredRules(t)
	if len(rules) < 15 {
		t.Fatalf("only %d rules found in package allocate", len(rules))
	}
	for name, rule := range rules {
		if reasonOf(allocate.Outcome{Rule: rule}) == "" {
			t.Errorf("%s has no sentence", name)
		}
		if !tested[rule] {
			t.Errorf("the sentence of %s is not tested", name)
		}
	}
}

// declaredRules are the constants of type Rule by name.
func declaredRules(t *testing.T) map[string]allocate.Rule {
	t.Helper()
	files, err := filepath.Glob("../allocate/*.go")
	if err != nil {
		t.Fatal(err)
	}
	rules := map[string]allocate.Rule{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(node ast.Node) bool {
			spec, ok := node.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if kind, ok := spec.Type.(*ast.Ident); !ok || kind.Name != "Rule" {
				return true
			}
			for i, name := range spec.Names {
				value, err := strconv.Unquote(spec.Values[i].(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				rules[name.Name] = allocate.Rule(value)
			}
			return true
		})
	}
	return rules
}
