package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"vicinity.dev/vicinity/monitoring/catalog"
)

func TestProblems(t *testing.T) {
	c, err := catalog.Read("../../docs/reference")
	if err != nil {
		t.Fatal(err)
	}
	c.Add("zones:a:rate5m", []string{"source_zone"})
	for _, test := range []struct {
		query string
		want  []string
	}{
		{query: `sum by (phase) (vicinity_rollouts)`},
		{query: `sum by (source_zone) (zones:a:rate5m) * $cost_per_gib`},
		{query: `histogram_quantile(0.9, sum by (le) (rate(vicinity_locator_delay_seconds_bucket[$__rate_interval])))`},
		{query: `sum by (instance) (vicinity_routing_services{state="hints-lost",job="j"})`},
		{query: `vicinity_budget_blocked_seconds{namespace="$namespace"}`},
		{query: `label_replace(vicinity_budgets, "kind", "$1", "state", "(.*)") * on (kind) group_left () vicinity_budgets`},
		{query: `vicinity_rollout`, want: []string{"there is no metric vicinity_rollout"}},
		{query: `{__name__=~"vicinity_rollouts|vicinity_none"}`, want: []string{"there is no metric vicinity_none"}},
		{query: `{job="a"}`, want: []string{"does not say which metrics"}},
		{query: `vicinity_locator_delay_seconds`, want: []string{"there is no metric vicinity_locator_delay_seconds"}},
		{query: `vicinity_rollouts{state="Failed"}`, want: []string{"vicinity_rollouts has no label state"}},
		{query: `vicinity_budgets{state="broken"}`, want: []string{`no reference knows state "broken"`}},
		{query: `vicinity_budgets{state!="broken"}`, want: []string{`no reference knows state "broken"`}},
		{query: `vicinity_budgets{state=~"blocked|broken"}`, want: []string{`no reference knows state "broken"`}},
		{query: `vicinity_budgets{state=~"b.*"}`},
		{query: `sum by (pod) (vicinity_budgets)`, want: []string{"sum has the label pod"}},
		{query: `sum by (service) (vicinity_budgets)`, want: []string{"sum has the label service"}},
		{query: `vicinity_budgets + on (zone) vicinity_budgets`, want: []string{"+ has the label zone"}},
		{query: `label_replace(vicinity_budgets, "kind", "$1", "zone", "(.*)")`, want: []string{"label_replace has the label zone"}},
		{query: `vicinity_routing_syncs_total`, want: []string{"is a counter, and is used without a rate"}},
		{query: `rate(vicinity_budgets[5m])`, want: []string{"is no counter, and a rate is made of it"}},
		{query: `sum(`, want: []string{"parsing sum("}},
	} {
		t.Run(test.query, func(t *testing.T) {
			got := c.Problems(test.query)
			if !slices.EqualFunc(got, test.want, strings.Contains) {
				t.Errorf("the problems are %q, want %q", got, test.want)
			}
		})
	}
}

func TestReferencesMustHaveTables(t *testing.T) {
	if _, err := catalog.Read(t.TempDir()); err == nil {
		t.Error("a folder without references was read")
	}
}
