package dashboards

import (
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/units"

	"vicinity.dev/vicinity/monitoring/rules"
)

const serviceUID = "vicinity-service"

// costPerGiB is the price of what crosses zones.
var costPerGiB = Variable{
	Name: "cost_per_gib", Label: "Price of a GiB", Default: "0.01",
	Description: "What 1 GiB between zones costs. Where both ends of what crosses are billed, write twice the price.",
}

// costOf is what a rate of bytes costs in 730 hours, as "vicinity status --traffic" has it.
func costOf(rate string) string { return fmt.Sprintf(`%s * 730 * 3600 / 1024^3 * $cost_per_gib`, rate) }

// cluster is where all traffic goes.
func cluster() Dashboard {
	return Dashboard{
		UID: "vicinity-cluster", Title: "Vicinity / Cluster",
		Description: "How much traffic leaves its zone, between which zones, what that costs, and which Services it is.",
		Variables:   []Variable{costPerGiB},
		Rows: []Row{
			{Title: "At a glance", Panels: []Panel{
				{
					Title: "Connections in zone, measured", Kind: Number, Unit: units.PercentUnit, Max: 1, Steps: share, Width: 4, Height: 5,
					Description: "Share of the connections to Services of vicinity-proxy that stay in their zone. Services that kube-proxy serves are not measured.",
					Queries:     []Query{{Expr: rules.ClusterInZone}},
				},
				{
					Title: "Bytes in zone, measured", Kind: Number, Unit: units.PercentUnit, Max: 1, Steps: share, Width: 4, Height: 5,
					Description: "Share of the bytes of these connections that stay in their zone. It is empty where the kernel of nodes counts no bytes: set proxy.accounting.bytes.",
					Queries:     []Query{{Expr: rules.ClusterInZoneBytes}},
				},
				{
					Title: "Traffic in zone, predicted", Kind: Number, Unit: units.PercentUnit, Max: 1, Steps: share, Width: 4, Height: 5,
					Description: "What the plans that are in force should keep in its zone, of all routed Services, as far as traffic comes from where capacity is. A measured share far below it has a reason: see \"Who is not near\".",
					Queries:     []Query{{Expr: `max(vicinity_routing_in_zone_ratio)`}},
				},
				{
					Title: "Bytes between zones", Kind: Number, Unit: units.BytesPerSecondIEC, Width: 4, Height: 5,
					Description: "Bytes a second that leave their zone, requests and replies together, of Services that vicinity-proxy serves.",
					Queries:     []Query{{Expr: rules.ClusterCrossingBytes}},
				},
				{
					Title: "Cost a month", Kind: Number, Unit: units.Short, Width: 4, Height: 5,
					Description: "What the bytes between zones cost in 730 hours at the price above for 1 GiB (1,073,741,824 bytes), in the currency of that price.",
					Queries:     []Query{{Expr: costOf(rules.ClusterCrossingBytes)}},
				},
				{
					Title: "Greatest overload, predicted", Kind: Number, Unit: units.PercentUnit, Steps: overload, Width: 4, Height: 5,
					Description: "Load of the busiest endpoint of any routed Service above the even share. Plans with a bound stay below their threshold, 50 % unless a policy says otherwise.",
					Queries:     []Query{{Expr: `max(vicinity_routing_overload_ratio)`}},
				},
			}},
			{Title: "From zone to zone", Panels: []Panel{
				{
					Title: "Bytes a second", Kind: Matrix, Unit: units.BytesPerSecondIEC, Rows: "source_zone", Columns: "destination_zone", Width: 12, Height: 7,
					Description: "From the zone of a line to the zone of a column, now. The source is the zone of the node whose rules chose the endpoint.",
					Queries:     []Query{{Expr: `sum by (source_zone, destination_zone) (` + rules.ZonesBytes + `{source_zone!="",destination_zone!=""})`}},
				},
				{
					Title: "Connections a second", Kind: Matrix, Unit: units.CountsPerSecond, Rows: "source_zone", Columns: "destination_zone", Width: 12, Height: 7,
					Description: "From the zone of a line to the zone of a column, now.",
					Queries:     []Query{{Expr: `sum by (source_zone, destination_zone) (` + rules.ZonesConnections + `{source_zone!="",destination_zone!=""})`}},
				},
				{
					Title: "Bytes a second over time", Kind: Stacked, Unit: units.BytesPerSecondIEC, Width: 12, Height: 8,
					Description: "The same over time, each pair of zones by itself.",
					Queries:     []Query{{Expr: `sum by (source_zone, destination_zone) (` + rules.ZonesBytes + `)`, Legend: "{{source_zone}} to {{destination_zone}}"}},
				},
				{
					Title: "In zone over time", Kind: Graph, Unit: units.PercentUnit, Max: 1, Width: 12, Height: 8,
					Description: "Measured and predicted shares beside each other. When they part, look at what changed then.",
					Queries: []Query{
						{Expr: rules.ClusterInZone, Legend: "connections, measured"},
						{Expr: rules.ClusterInZoneBytes, Legend: "bytes, measured"},
						{Expr: `max(vicinity_routing_in_zone_ratio)`, Legend: "predicted"},
					},
				},
			}},
			{Title: "What it costs", Panels: []Panel{
				{
					Title: "Cost a month by Service", Kind: Table, Unit: units.Short, Width: 12, Height: 9,
					Description: "The 20 Services whose traffic between zones costs the most, at the price above. The Service \"other\" without a namespace is all that no node counts by itself.",
					Queries:     []Query{{Expr: `topk(20, ` + costOf(`sum by (namespace, service) (`+rules.ServiceCrossingBytes+`)`) + `)`, Legend: "cost a month"}},
				},
				{
					Title: "Bytes between zones by Service", Kind: Stacked, Unit: units.BytesPerSecondIEC, Width: 12, Height: 9,
					Description: "The ten Services that send the most bytes to other zones.",
					Queries:     []Query{{Expr: `topk(10, sum by (namespace, service) (` + rules.ServiceCrossingBytes + `))`, Legend: "{{namespace}}/{{service}}"}},
				},
			}},
			{Title: "Who is not near, and why", Panels: []Panel{
				{
					Title: "Services by state", Kind: Bars, Unit: units.Short, Width: 8, Height: 9,
					Description: "What became of what Services ask for. Near are those that are allocated or delivered. waiting: too few endpoints. downgraded: the bound allows no plan. undelivered: hints cannot express it. hints-lost, hints-dropped, hints-ignored: something takes hints away, does not store them, or does not go by them. not-routed: see the condition of the Service. \"vicinity status\" names them.",
					Queries:     []Query{{Expr: `max by (state) (sum by (instance, state) (vicinity_routing_services))`, Legend: "{{state}}"}},
				},
				{
					Title: "Least in zone, measured", Kind: Table, LeastFirst: true, Unit: units.PercentUnit, Max: 1, Steps: share, Width: 8, Height: 9,
					Description: "The 20 Services of vicinity-proxy whose connections stay in their zone the least. Some ask for nothing, or have no endpoints where clients are.",
					Queries:     []Query{{Expr: `bottomk(20, min by (namespace, service) (` + rules.ServiceInZone + `))`, Legend: "in zone"}},
				},
				{
					Title: "Least in zone, predicted", Kind: Table, LeastFirst: true, Unit: units.PercentUnit, Max: 1, Steps: share, Width: 8, Height: 9,
					Description: "The 20 Services whose plans keep the least in its zone, of those with the most endpoints (metrics.topServices).",
					Queries:     []Query{{Expr: `bottomk(20, min by (namespace, service) (vicinity_routing_service_in_zone_ratio))`, Legend: "in zone"}},
				},
			}},
			{Title: "Overload", Panels: []Panel{
				{
					Title: "Greatest overload by Service, predicted", Kind: Table, Unit: units.PercentUnit, Steps: overload, Width: 12, Height: 9,
					Description: "Load of the busiest endpoint above the even share, of the 20 Services where it is greatest.",
					Queries:     []Query{{Expr: `topk(20, max by (namespace, service) (vicinity_routing_service_overload_ratio))`, Legend: "overload"}},
				},
				{
					Title: "Overload over time, predicted", Kind: Graph, Unit: units.PercentUnit, Width: 12, Height: 9,
					Description: "The greatest of all Services, and the ten Services where it is greatest.",
					Queries: []Query{
						{Expr: `max(vicinity_routing_overload_ratio)`, Legend: "greatest"},
						{Expr: `topk(10, max by (namespace, service) (vicinity_routing_service_overload_ratio))`, Legend: "{{namespace}}/{{service}}"},
					},
				},
			}},
			{Title: "vicinity-controller", Panels: []Panel{
				{
					Title: "Syncs of Services", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "How often Services were looked at, by how that ended. conflict: somebody else wrote first, and it is tried again. error: see the log.",
					Queries:     []Query{{Expr: `sum by (result) (rate(vicinity_routing_syncs_total[$__rate_interval]))`, Legend: "{{result}}"}},
				},
				{
					Title: "Writes of hints", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "Writes to EndpointSlices by how they ended, and what was found missing or not stored afterwards.",
					Queries: []Query{
						{Expr: `sum by (result) (rate(vicinity_routing_hint_writes_total[$__rate_interval]))`, Legend: "{{result}}"},
						{Expr: `sum(rate(vicinity_routing_hint_losses_total[$__rate_interval]))`, Legend: "lost"},
						{Expr: `sum(rate(vicinity_routing_hint_drops_total[$__rate_interval]))`, Legend: "not stored"},
					},
				},
				{
					Title: "Work that waits", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Objects in the queue of each part, of the pod that leads. One that only grows does not keep up.",
					Queries:     []Query{{Expr: `sum by (name) (workqueue_depth{job="` + rules.JobController + `"} and on (instance) leader_election_master_status{name="vicinity-controller"} == 1)`, Legend: "{{name}}"}},
				},
				{
					Title: "Endpoints that moved to other zones", Kind: Graph, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "Endpoints that other zones use after a sync than before, and plans that were replaced by better ones although they could be kept.",
					Queries: []Query{
						{Expr: `sum(rate(endpoint_slice_controller_reallocated_endpoints_per_sync_sum{job="` + rules.JobController + `"}[$__rate_interval]))`, Legend: "endpoints"},
						{Expr: `sum(rate(vicinity_routing_replans_total[$__rate_interval]))`, Legend: "plans replaced"},
					},
				},
				{
					Title: "Duration of webhooks, 99 %", Kind: Graph, Unit: units.Seconds, Width: 8, Height: 8,
					Description: "99 of 100 requests of the API server were answered within this time. Webhooks of slices time out after 1 s, those of Services and policies after 2 s, those of evictions after 10 s.",
					Queries:     []Query{{Expr: `histogram_quantile(0.99, sum by (webhook, le) (rate(vicinity_webhook_duration_seconds_bucket[$__rate_interval])))`, Legend: "{{webhook}}"}},
				},
				{
					Title: "Answers of webhooks", Kind: Graph, Unit: units.RequestsPerSecond, Width: 8, Height: 8,
					Description: "Requests by webhook and by what became of them. degraded and failed: not everything was known; the log says what.",
					Queries:     []Query{{Expr: `sum by (webhook, result) (rate(vicinity_webhook_requests_total[$__rate_interval]))`, Legend: "{{webhook}}: {{result}}"}},
				},
				{
					Title: "Memory", Kind: Graph, Unit: units.BytesIEC, Width: 8, Height: 8,
					Description: "Of each pod. It grows with the cluster's endpoints; the limit is resources.limits.memory.",
					Queries:     []Query{{Expr: `process_resident_memory_bytes{job="` + rules.JobController + `"}`, Legend: "{{instance}}"}},
				},
				{
					Title: "Requests to the API server", Kind: Graph, Unit: units.RequestsPerSecond, Width: 8, Height: 8,
					Description: "By the answer of the API server. 429: it is asked too often.",
					Queries:     []Query{{Expr: `sum by (code) (rate(rest_client_requests_total{job="` + rules.JobController + `"}[$__rate_interval]))`, Legend: "{{code}}"}},
				},
				{
					Title: "Pods that lead", Kind: Number, Unit: units.Short, Steps: []Step{{Color: red}, {From: 1, Color: green}}, Width: 8, Height: 8,
					Description: "One pod leads and writes; all answer webhooks. 0: nothing is written.",
					Queries:     []Query{{Expr: `sum(leader_election_master_status{name="vicinity-controller"})`}},
				},
			}},
		},
	}
}
