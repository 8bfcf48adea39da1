package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"vicinity.dev/vicinity/monitoring/rules"
)

// proxy is how vicinity-proxy does on nodes.
func proxy() Dashboard {
	const of = `{instance=~"$instance"}`
	const ofJob = `{job="` + rules.JobProxy + `",instance=~"$instance"}`
	return Dashboard{
		UID: "vicinity-proxy", Title: "Vicinity / Proxy",
		Description: "Whether the rules of nodes are right, complete and in time, and what they take.",
		Variables: []Variable{{
			Name: "instance", Label: "Node", All: true, Description: "Nodes with vicinity-proxy.",
			Query: `label_values(vicinity_proxy_services, instance)`,
		}},
		Rows: []Row{
			{Title: "Is anything wrong", Panels: []Panel{
				{
					Title: "Nodes that answer", Kind: Number, Unit: units.Short, Width: 4, Height: 5,
					Description: "Proxies that answer Prometheus, of all that it knows.",
					Queries:     []Query{{Expr: `sum(up` + ofJob + `)`, Legend: "answer"}, {Expr: `count(up` + ofJob + `)`, Legend: "all"}},
				},
				{
					Title: "Nodes that are bypassed", Kind: Number, Unit: units.Short, Steps: bad, Width: 4, Height: 5,
					Description: "Nodes whose packets do not come through the rules, as probes show. What was handed over may not work there.",
					Queries:     []Query{{Expr: `sum(max by (instance) (vicinity_proxy_probe_failing` + of + `))`}},
				},
				{
					Title: "Ports refused", Kind: Number, Unit: units.Short, Steps: bad, Width: 4, Height: 5,
					Description: "Ports of Services that kernels refuse. They keep the rules that they had.",
					Queries:     []Query{{Expr: `sum(vicinity_proxy_refused_service_ports` + of + `)`}},
				},
				{
					Title: "Services that wait", Kind: Number, Unit: units.Short, Steps: bad, Width: 4, Height: 5,
					Description: "Services of which only a part is programmed, since there are too many elements. It is that of the node with the most.",
					Queries:     []Query{{Expr: `max(vicinity_proxy_waiting_services` + of + `)`}},
				},
				{
					Title: "Ports that clients do not reach", Kind: Number, Unit: units.Short, Steps: bad, Width: 4, Height: 5,
					Description: "Since all endpoints are beyond what the Service allows, as with Require. It is that of the node with the most.",
					Queries:     []Query{{Expr: `max(vicinity_proxy_unreachable_service_ports` + of + `)`}},
				},
				{
					Title: "Addresses refused or disputed", Kind: Number, Unit: units.Short, Steps: bad, Width: 4, Height: 5,
					Description: "Addresses that Services claim and do not get, and those that several Services want. They are those of the node with the most.",
					Queries: []Query{
						{Expr: `max(sum by (instance) (vicinity_proxy_refused_addresses` + of + `))`, Legend: "refused"},
						{Expr: `max(sum by (instance) (vicinity_proxy_disputed_fronts` + of + `))`, Legend: "disputed"},
					},
				},
			}},
			{Title: "In time", Panels: []Panel{
				{
					Title: "From the news of a change to rules", Kind: Graph, Unit: units.Seconds, Width: 8, Height: 8,
					Description: "Half, and 99 of 100, of all changes were programmed within this time, of all chosen nodes.",
					Queries: []Query{
						{Expr: `histogram_quantile(0.5, sum by (le) (rate(vicinity_proxy_change_latency_seconds_bucket` + of + `[$__rate_interval])))`, Legend: "50 %"},
						{Expr: `histogram_quantile(0.99, sum by (le) (rate(vicinity_proxy_change_latency_seconds_bucket` + of + `[$__rate_interval])))`, Legend: "99 %"},
					},
				},
				{
					Title: "From a change of a pod to rules", Kind: Graph, Unit: units.Seconds, Width: 8, Height: 8,
					Description: "The same from the change of a pod or Service on, by the time that EndpointSlices and groups carry. What is longer than the panel beside it is spent in the API server and the controllers.",
					Queries: []Query{
						{Expr: `histogram_quantile(0.5, sum by (le) (rate(vicinity_proxy_programming_latency_seconds_bucket` + of + `[$__rate_interval])))`, Legend: "50 %"},
						{Expr: `histogram_quantile(0.99, sum by (le) (rate(vicinity_proxy_programming_latency_seconds_bucket` + of + `[$__rate_interval])))`, Legend: "99 %"},
					},
				},
				{
					Title: "Duration of syncs, 99 %", Kind: Graph, Unit: units.Seconds, Width: 8, Height: 8,
					Description: "99 of 100 syncs were done within this time, by how they ended.",
					Queries:     []Query{{Expr: `histogram_quantile(0.99, sum by (result, le) (rate(vicinity_proxy_sync_duration_seconds_bucket` + of + `[$__rate_interval])))`, Legend: "{{result}}"}},
				},
			}},
			{Title: "What is programmed", Panels: []Panel{
				{
					Title: "Services, ports and endpoints", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "What the rules serve, on the node with the most.",
					Queries: []Query{
						{Expr: `max(vicinity_proxy_services` + of + `)`, Legend: "Services"},
						{Expr: `max by (family) (vicinity_proxy_service_ports` + of + `)`, Legend: "ports, {{family}}"},
						{Expr: `max by (family) (vicinity_proxy_endpoints` + of + `)`, Legend: "endpoints, {{family}}"},
					},
				},
				{
					Title: "Elements, of what there may be", Kind: Graph, Unit: units.PercentUnit, Max: 1, Width: 8, Height: 8,
					Description: "Elements of the kernel's sets that rules take, as a share of what they may, on the ten nodes with the greatest. Beyond it Services are not programmed.",
					Queries:     []Query{{Expr: `topk(10, sum by (instance) (vicinity_proxy_elements` + of + `) / sum by (instance) (vicinity_proxy_max_elements` + of + `))`, Legend: "{{instance}}"}},
				},
				{
					Title: "Transactions of the kernel", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "By address family and by how they ended. What is not done was refused, and is read and tried again.",
					Queries:     []Query{{Expr: `sum by (family, result) (rate(vicinity_proxy_transactions_total` + of + `[$__rate_interval]))`, Legend: "{{family}}: {{result}}"}},
				},
			}},
			{Title: "What disturbs it", Panels: []Panel{
				{
					Title: "Rules changed by others", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "How often rules were found changed and put right, and how often all were made anew. Each point counts the interval before it.",
					Queries: []Query{
						{Expr: `round(sum(increase(vicinity_proxy_foreign_changes_total` + of + `[$__rate_interval])))`, Legend: "put right"},
						{Expr: `round(sum(increase(vicinity_proxy_rewrites_total` + of + `[$__rate_interval])))`, Legend: "made anew"},
					},
				},
				{
					Title: "Failures", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Work that failed and did not hold up programming, by step. Each point counts the interval before it. The log says more about each.",
					Queries:     []Query{{Expr: `round(sum by (step) (increase(vicinity_proxy_failures_total` + of + `[$__rate_interval])))`, Legend: "{{step}}"}},
				},
				{
					Title: "Probes", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "Probes whether packets of the node come through the rules. One that fails is no failure yet; three in a row are.",
					Queries:     []Query{{Expr: `sum by (family, result) (rate(vicinity_proxy_probes_total` + of + `[$__rate_interval]))`, Legend: "{{family}}: {{result}}"}},
				},
			}},
			{Title: "Accounting", Panels: []Panel{
				{
					Title: "What is counted", Kind: Bars, Unit: units.Short, Width: 8, Height: 8,
					Description: "Nodes whose kernel counts bytes, and reports the ends of connections. Set proxy.accounting.bytes for the first.",
					Queries:     []Query{{Expr: `sum by (what) (vicinity_proxy_accounting_enabled` + of + `)`, Legend: "{{what}}"}},
				},
				{
					Title: "Open connections", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Connections to Services that are remembered, on the ten nodes with the most.",
					Queries:     []Query{{Expr: `topk(10, vicinity_proxy_accounting_open_connections` + of + `)`, Legend: "{{instance}}"}},
				},
				{
					Title: "Reports lost, and the CPU of readings", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "How often a second kernels had no room for reports of ended connections: their last bytes are missing. And the processors that readings of open connections take.",
					Queries: []Query{
						{Expr: `sum(rate(vicinity_proxy_accounting_losses_total` + of + `[$__rate_interval]))`, Legend: "losses"},
						{Expr: `sum(rate(vicinity_proxy_accounting_reading_cpu_seconds_total` + of + `[$__rate_interval]))`, Legend: "processors"},
					},
				},
			}},
			{Title: "The program", Panels: []Panel{
				{
					Title: "Memory", Kind: Graph, Unit: units.BytesIEC, Width: 8, Height: 8,
					Description: "On the ten nodes with the most. The limit is proxy.resources.limits.memory.",
					Queries:     []Query{{Expr: `topk(10, process_resident_memory_bytes` + ofJob + `)`, Legend: "{{instance}}"}},
				},
				{
					Title: "CPU", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Processors that the proxy uses, on the ten nodes with the most.",
					Queries:     []Query{{Expr: `topk(10, rate(process_cpu_seconds_total` + ofJob + `[$__rate_interval]))`, Legend: "{{instance}}"}},
				},
				{
					Title: "Received from the API server", Kind: Stacked, Unit: units.BytesPerSecondIEC, Width: 8, Height: 8,
					Description: "Bytes a second of lists and watches, of all chosen nodes, by resource.",
					Queries:     []Query{{Expr: `sum by (resource) (rate(vicinity_proxy_received_bytes_total` + of + `[$__rate_interval]))`, Legend: "{{resource}}"}},
				},
			}},
		},
	}
}
