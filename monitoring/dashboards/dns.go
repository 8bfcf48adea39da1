package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/units"

	"vicinity.dev/vicinity/monitoring/rules"
)

// dns is how vicinity-dns answers.
func dns() Dashboard {
	const of = `{instance=~"$instance"}`
	const ofJob = `{job="` + rules.JobDNS + `",instance=~"$instance"}`
	return Dashboard{
		UID: "vicinity-dns", Title: "Vicinity / DNS",
		Description: "Whether headless names are answered by where clients are, and how the DNS server does.",
		Variables: []Variable{{
			Name: "instance", Label: "Pod", All: true, Description: "Pods of vicinity-dns.",
			Query: `label_values(coredns_vicinity_objects, instance)`,
		}},
		Rows: []Row{
			{Title: "Answers by where clients are", Panels: []Panel{
				{
					Title: "Answers by outcome", Kind: Stacked, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "Of headless Services that have groups. nearest: fewer records than there are. whole: the client uses all. fallback: all, since nothing is meant for it. none: an empty answer, by hard keys. unsynced: a failure, before objects are known.",
					Queries:     []Query{{Expr: `sum by (outcome) (rate(coredns_vicinity_answers_total` + of + `[$__rate_interval]))`, Legend: "{{outcome}}"}},
				},
				{
					Title: "Clients by how they were located", Kind: Stacked, Unit: units.CountsPerSecond, Width: 8, Height: 8,
					Description: "node: the address of a node. locator: a PodLocator. range: the pod CIDR of a node. unknown: nothing has the address, so all records are answered, or none by hard keys.",
					Queries:     []Query{{Expr: `sum by (located) (rate(coredns_vicinity_clients_total` + of + `[$__rate_interval]))`, Legend: "{{located}}"}},
				},
				{
					Title: "Objects", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "What answers depend on, by resource. Pods of the DNS server should agree.",
					Queries:     []Query{{Expr: `max by (resource) (coredns_vicinity_objects` + of + `)`, Legend: "{{resource}}"}},
				},
			}},
			{Title: "All names", Panels: []Panel{
				{
					Title: "Queries by type", Kind: Stacked, Unit: units.RequestsPerSecond, Width: 8, Height: 8,
					Description: "All queries that the DNS server got.",
					Queries:     []Query{{Expr: `sum by (type) (rate(coredns_dns_requests_total` + ofJob + `[$__rate_interval]))`, Legend: "{{type}}"}},
				},
				{
					Title: "Answers by code", Kind: Stacked, Unit: units.RequestsPerSecond, Width: 8, Height: 8,
					Description: "SERVFAIL: the DNS server could not find out, as when resolvers for names outside of the cluster do not answer. NXDOMAIN is normal: clients try several suffixes.",
					Queries:     []Query{{Expr: `sum by (rcode) (rate(coredns_dns_responses_total` + ofJob + `[$__rate_interval]))`, Legend: "{{rcode}}"}},
				},
				{
					Title: "Duration of answers", Kind: Graph, Unit: units.Seconds, Width: 8, Height: 8,
					Description: "Half, and 99 of 100, of all queries were answered within this time.",
					Queries: []Query{
						{Expr: `histogram_quantile(0.5, sum by (le) (rate(coredns_dns_request_duration_seconds_bucket` + ofJob + `[$__rate_interval])))`, Legend: "50 %"},
						{Expr: `histogram_quantile(0.99, sum by (le) (rate(coredns_dns_request_duration_seconds_bucket` + ofJob + `[$__rate_interval])))`, Legend: "99 %"},
					},
				},
			}},
			{Title: "The program", Panels: []Panel{
				{
					Title: "Pods", Kind: Number, Unit: units.Short, Width: 8, Height: 8, Steps: []Step{{Color: red}, {From: 1, Color: green}},
					Description: "Pods of the DNS server that answer Prometheus.",
					Queries:     []Query{{Expr: `sum(up{job="` + rules.JobDNS + `"})`}},
				},
				{
					Title: "Memory", Kind: Graph, Unit: units.BytesIEC, Width: 8, Height: 8,
					Description: "Of each pod. It grows with the cluster's Services, endpoints and PodLocators; the limit is dns.resources.limits.memory.",
					Queries:     []Query{{Expr: `process_resident_memory_bytes` + ofJob, Legend: "{{instance}}"}},
				},
				{
					Title: "CPU", Kind: Graph, Unit: units.Short, Width: 8, Height: 8,
					Description: "Processors that each pod uses.",
					Queries:     []Query{{Expr: `rate(process_cpu_seconds_total` + ofJob + `[$__rate_interval])`, Legend: "{{instance}}"}},
				},
			}},
			{Title: "PodLocators", Panels: []Panel{
				{
					Title: "Writes of PodLocators", Kind: Graph, Unit: units.CountsPerSecond, Width: 12, Height: 8,
					Description: "By which the DNS server knows where pods are, with locators.enabled.",
					Queries:     []Query{{Expr: `sum by (operation, result) (rate(vicinity_locator_writes_total[$__rate_interval]))`, Legend: "{{operation}}: {{result}}"}},
				},
				{
					Title: "Delay of PodLocators, 99 %", Kind: Graph, Unit: units.Seconds, Width: 12, Height: 8,
					Description: "99 of 100 pods had their PodLocator so long after their first addresses. Until then their queries are answered as those of an unknown client.",
					Queries:     []Query{{Expr: `histogram_quantile(0.99, sum by (le) (rate(vicinity_locator_delay_seconds_bucket[$__rate_interval])))`, Legend: "99 %"}},
				},
			}},
		},
	}
}
