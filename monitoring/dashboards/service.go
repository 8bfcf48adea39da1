package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"vicinity.dev/vicinity/monitoring/rules"
)

// service is where the traffic of a Service goes.
func service() Dashboard {
	const (
		of    = `{namespace="$namespace",service="$service"}`
		known = `{namespace="$namespace",service="$service",source_zone!="",destination_zone!=""}`
		// all are the series that have names of Services.
		all = `{__name__=~"vicinity_routing_service_in_zone_ratio|` + rules.ServiceZonesConnections + `",namespace!=""`
	)
	return Dashboard{
		UID: serviceUID, Title: "Vicinity / Service",
		Description: "Where the traffic of one Service goes, beside what its plan should do, and what crossing zones costs.",
		Variables: []Variable{
			{Name: "namespace", Label: "Namespace", Description: "Namespaces with Services that have figures of their own.", Query: `label_values(` + all + `}, namespace)`},
			{Name: "service", Label: "Service", Description: "Services with figures of their own: those with the most endpoints, and those of vicinity-proxy with the most connections on a node.", Query: `label_values(` + all + `,namespace="$namespace"}, service)`},
			costPerGiB,
		},
		Rows: []Row{
			{Title: "At a glance", Panels: []Panel{
				{
					Title: "Connections in zone, measured", Kind: Number, Unit: units.PercentUnit, Max: 1, Steps: share, Width: 6, Height: 5,
					Description: "Share of connections that stay in their zone. It is empty if kube-proxy serves the Service, or if nobody connects.",
					Queries:     []Query{{Expr: rules.ServiceInZone + of}},
				},
				{
					Title: "In zone, predicted", Kind: Number, Unit: units.PercentUnit, Max: 1, Steps: share, Width: 6, Height: 5,
					Description: "What the plan in force should keep in its zone, by address family. It is empty if the Service is not among those with the most endpoints (metrics.topServices), or asks for nothing.",
					Queries:     []Query{{Expr: `max by (family) (vicinity_routing_service_in_zone_ratio` + of + `)`, Legend: "{{family}}"}},
				},
				{
					Title: "Overload, predicted", Kind: Number, Unit: units.PercentUnit, Steps: overload, Width: 6, Height: 5,
					Description: "Load of the busiest endpoint above the even share, by address family.",
					Queries:     []Query{{Expr: `max by (family) (vicinity_routing_service_overload_ratio` + of + `)`, Legend: "{{family}}"}},
				},
				{
					Title: "Cost a month", Kind: Number, Unit: units.Short, Width: 6, Height: 5,
					Description: "What its bytes between zones cost in 730 hours at the price above for 1 GiB.",
					Queries:     []Query{{Expr: costOf(`sum(` + rules.ServiceCrossingBytes + of + `)`)}},
				},
			}},
			{Title: "From zone to zone", Panels: []Panel{
				{
					Title: "Connections a second", Kind: Matrix, Unit: units.CountsPerSecond, Rows: "source_zone", Columns: "destination_zone", Width: 12, Height: 7,
					Description: "From the zone of a line to the zone of a column, now.",
					Queries:     []Query{{Expr: `sum by (source_zone, destination_zone) (` + rules.ServiceZonesConnections + known + `)`}},
				},
				{
					Title: "Bytes a second", Kind: Matrix, Unit: units.BytesPerSecondIEC, Rows: "source_zone", Columns: "destination_zone", Width: 12, Height: 7,
					Description: "From the zone of a line to the zone of a column, now, requests and replies together.",
					Queries:     []Query{{Expr: `sum by (source_zone, destination_zone) (` + rules.ServiceZonesBytes + known + `)`}},
				},
				{
					Title: "In zone over time", Kind: Graph, Unit: units.PercentUnit, Max: 1, Width: 12, Height: 8,
					Description: "Measured and predicted shares beside each other.",
					Queries: []Query{
						{Expr: rules.ServiceInZone + of, Legend: "connections, measured"},
						{Expr: rules.ServiceInZoneBytes + of, Legend: "bytes, measured"},
						{Expr: `max by (family) (vicinity_routing_service_in_zone_ratio` + of + `)`, Legend: "predicted, {{family}}"},
					},
				},
				{
					Title: "Connections between zones", Kind: Graph, Unit: units.CountsPerSecond, Width: 12, Height: 8,
					Description: "Connections a second that leave their zone, beside all of the Service.",
					Queries: []Query{
						{Expr: `sum(` + rules.ServiceCrossing + of + `)`, Legend: "between zones"},
						{Expr: `sum(` + rules.ServiceZonesConnections + of + `)`, Legend: "all"},
					},
				},
			}},
			{Title: "Load of its endpoints", Panels: []Panel{
				{
					Title: "Load by zone, predicted", Kind: Graph, Unit: units.PercentUnit, Width: 12, Height: 8,
					Description: "Mean load of the endpoints in a zone, where 100 % is the even share. A zone far above it needs more pods: autoscalers can use this figure.",
					Queries:     []Query{{Expr: `max by (zone, family) (vicinity_routing_service_zone_load_ratio` + of + `)`, Legend: "{{zone}}, {{family}}"}},
				},
				{
					Title: "Connections by zone of the endpoint", Kind: Stacked, Unit: units.CountsPerSecond, Width: 12, Height: 8,
					Description: "What the endpoints of each zone get, wherever it comes from, as measured.",
					Queries:     []Query{{Expr: `sum by (destination_zone) (` + rules.ServiceZonesConnections + of + `)`, Legend: "{{destination_zone}}"}},
				},
			}},
		},
	}
}
