package dashboards

import "github.com/grafana/grafana-foundation-sdk/go/units"

// disruption is what may go down, what blocks, and what is being replaced.
func disruption() Dashboard {
	return Dashboard{
		UID: "vicinity-disruption", Title: "Vicinity / Disruption and rollouts",
		Description: "What may be evicted, which budgets block and since when, and how rollouts and scale-downs go on.",
		Rows: []Row{
			{Title: "Budgets", Panels: []Panel{
				{
					Title: "Budgets by state", Kind: Bars, Unit: units.Short, Width: 8, Height: 8,
					Description: "allowing: something may be evicted. blocked: nothing. invalid: the spec cannot be followed. break-glass: everything is admitted for a while.",
					Queries:     []Query{{Expr: `max by (state) (sum by (instance, state) (vicinity_budgets))`, Legend: "{{state}}"}},
				},
				{
					Title: "Blocked the longest", Kind: Table, Unit: units.Seconds, Steps: []Step{{Color: green}, {From: 600, Color: yellow}, {From: 3600, Color: red}}, Width: 8, Height: 8,
					Description: "Time since a budget allowed an eviction last, of those that allow the least (metrics.topBudgets). 0: it allows one now.",
					Queries:     []Query{{Expr: `max by (namespace, budget) (vicinity_budget_blocked_seconds)`, Legend: "blocked"}},
				},
				{
					Title: "Budgets that are not enforced", Kind: Number, Unit: units.Short, Steps: bad, Width: 8, Height: 8,
					Description: "Evictions of their pods are not checked. The condition Enforced of a budget says why.",
					Queries:     []Query{{Expr: `max(sum by (instance) (vicinity_budgets{enforced="false"}) or 0 * sum by (instance) (vicinity_budgets))`}},
				},
				{
					Title: "Allowed disruptions", Kind: Graph, Unit: units.Short, Width: 12, Height: 8,
					Description: "Pods that each budget lets be evicted now, of those that allow the least.",
					Queries:     []Query{{Expr: `max by (namespace, budget) (vicinity_budget_allowed_disruptions)`, Legend: "{{namespace}}/{{budget}}"}},
				},
				{
					Title: "Allowed disruptions by domain", Kind: Table, Unit: units.Short, Width: 12, Height: 8,
					Description: "Pods of each failure domain that a budget lets be evicted now. 0 in all domains but one is usual while that one is down.",
					Queries:     []Query{{Expr: `max by (namespace, budget, group, domain) (vicinity_budget_domain_allowed_disruptions)`, Legend: "allowed"}},
				},
			}},
			{Title: "Evictions", Panels: []Panel{
				{
					Title: "Decisions", Kind: Stacked, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "What drainers were told. denied: they try again. failed: refused, since not everything was known in time; the log says what.",
					Queries:     []Query{{Expr: `sum by (result) (rate(vicinity_eviction_decisions_total[$__rate_interval]))`, Legend: "{{result}}"}},
				},
				{
					Title: "Reasons", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "The rule that allowed, or the limit that denied. The reference of metrics says what each means.",
					Queries:     []Query{{Expr: `sum by (result, reason) (rate(vicinity_eviction_decisions_total[$__rate_interval]))`, Legend: "{{result}}: {{reason}}"}},
				},
				{
					Title: "Duration of decisions", Kind: Graph, Unit: units.Seconds, Width: 8, Height: 8,
					Description: "Half, and 99 of 100, of all decisions took no longer, with the write that reserves. The API server waits for 3 s.",
					Queries: []Query{
						{Expr: `histogram_quantile(0.5, sum by (le) (rate(vicinity_eviction_decision_duration_seconds_bucket[$__rate_interval])))`, Legend: "50 %"},
						{Expr: `histogram_quantile(0.99, sum by (le) (rate(vicinity_eviction_decision_duration_seconds_bucket[$__rate_interval])))`, Legend: "99 %"},
					},
				},
				{
					Title: "Reservations", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Evictions that were admitted and are not known to have happened. One ends by itself after 2 minutes.",
					Queries:     []Query{{Expr: `max(vicinity_eviction_reservations)`, Legend: "reservations"}},
				},
				{
					Title: "Writes of budgets", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "Writes of the status by how they ended. conflict: another pod of the controller wrote first, and it is decided again.",
					Queries:     []Query{{Expr: `sum by (result) (rate(vicinity_budget_writes_total[$__rate_interval]))`, Legend: "{{result}}"}},
				},
				{
					Title: "Pods with EvictionRequests that wait", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "For their budgets, with disruption.evictionRequests.",
					Queries:     []Query{{Expr: `max(vicinity_responder_waiting_pods)`, Legend: "pods"}},
				},
			}},
			{Title: "Rollouts", Panels: []Panel{
				{
					Title: "Rollouts by phase", Kind: Stacked, Unit: units.Short, Width: 8, Height: 8,
					Description: "Paused and Failed wait for a person. Waiting waits for budgets, or for a domain to be healthy.",
					Queries:     []Query{{Expr: `max by (phase) (vicinity_rollouts)`, Legend: "{{phase}}"}},
				},
				{
					Title: "Requests to evict", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "Pods that were asked to go so that updated ones come, by what became of that. Denied: a budget does not allow it now, and it is tried again.",
					Queries:     []Query{{Expr: `sum by (outcome) (rate(vicinity_rollout_evictions_total[$__rate_interval]))`, Legend: "{{outcome}}"}},
				},
				{
					Title: "What happened", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Events of DomainRollouts by reason. Each point counts those of the interval before it.",
					Queries:     []Query{{Expr: `round(sum by (event) (increase(vicinity_rollout_events_total[$__rate_interval])))`, Legend: "{{event}}"}},
				},
			}},
			{Title: "Scale-downs", Panels: []Panel{
				{
					Title: "Workloads", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Workloads whose pods are kept spread, and those whose scale-down waits for budgets.",
					Queries: []Query{
						{Expr: `max(vicinity_scaledown_workloads)`, Legend: "kept spread"},
						{Expr: `max(vicinity_pacing_workloads)`, Legend: "wait for budgets"},
					},
				},
				{
					Title: "Pods in the wrong domain", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Pods that would be elsewhere with the best spread, of Deployments that are kept spread.",
					Queries:     []Query{{Expr: `max(vicinity_scaledown_misplaced_pods)`, Legend: "pods"}},
				},
				{
					Title: "Steps and repairs", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "Steps of scale-downs that budgets did not allow whole, and requests to evict a pod so that the spread becomes better.",
					Queries: []Query{
						{Expr: `sum by (result) (rate(vicinity_pacing_steps_total[$__rate_interval]))`, Legend: "steps: {{result}}"},
						{Expr: `sum by (outcome) (rate(vicinity_scaledown_repairs_total[$__rate_interval]))`, Legend: "repairs: {{outcome}}"},
					},
				},
			}},
		},
	}
}
