package coverage

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

// FuzzBudget reads the spec of a budget. An invalid one says why and admits nothing. A valid one has only amounts that decisions can
// use.
func FuzzBudget(f *testing.F) {
	for _, spec := range []string{
		`{"selector":{},"maxUnavailable":1}`, `{"minAvailable":"50%","maxUnavailableDomains":1,"settleTime":"5m"}`, `{"maxUnavailable":"101%"}`, `{"maxUnavailable":-1}`,
		`{"minAvailable":1,"maxUnavailable":1}`, `{"groupBy":"a b"}`, `{"maxUnavailable":"\u001b[2J"}`, `{"maxUnavailable":1,"settleTime":"25h"}`,
		`{"maxUnavailable":1,"unhealthyPodEvictionPolicy":"x"}`, `{"maxUnavailable":1,"selector":{"matchExpressions":[{"key":"a","operator":"Near"}]}}`,
		`{"maxUnavailable":1,"nodeSelectorTerm":{"matchExpressions":[{"key":"zone","operator":"Exists"},{"key":"zone","operator":"Gt","values":["\u009b"]}]}}`,
		`{"maxUnavailable":1,"selector":{"matchLabels":{"\u0000":" "}}}`, `{"maxUnavailable":1,"maxUnavailableTotal":"+5%","maxUnavailableDomains":-1}`,
	} {
		f.Add(spec, 10, 3)
	}
	f.Fuzz(func(t *testing.T, spec string, expected, domains int) {
		tdb := &v1alpha1.TopologyDisruptionBudget{}
		if json.Unmarshal([]byte(spec), &tdb.Spec) != nil {
			return
		}
		budget, term := BudgetOf(tdb)
		if term == nil || (budget.Invalid == "") != (len(Faults(&tdb.Spec)) == 0) {
			t.Fatalf("invalid is %q, with the faults %v", budget.Invalid, Faults(&tdb.Spec))
		}
		if strings.ContainsFunc(budget.Invalid, unicode.IsControl) {
			t.Fatalf("the reason is %q", budget.Invalid)
		}
		if budget.Invalid != "" {
			return
		}
		if (budget.MinAvailable == nil) == (budget.MaxUnavailable == nil) || budget.Settle < 0 || budget.Settle > MaxSettle || budget.MaxDomains != nil && *budget.MaxDomains < 0 {
			t.Fatalf("the budget is %+v", budget)
		}
		if expected < 0 || expected > 1_000_000 || domains < 1 || domains > 10_000 {
			return
		}
		for _, a := range []*disruption.Amount{budget.MinAvailable, budget.MaxUnavailable, budget.MaxTotal} {
			if a == nil {
				continue
			}
			if n := a.Of(expected, domains); n < 0 || a.Percent && n > expected {
				t.Fatalf("%+v of %d pods in %d domains is %d", a, expected, domains, n)
			}
		}
	})
}
