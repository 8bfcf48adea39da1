package rules

import (
	"fmt"
	"strings"
	"time"
)

// Runbooks, files of docs/runbooks.
const (
	runbookController    = "controller-down.md"
	runbookRefused       = "write-refused.md"
	runbookHints         = "hints-do-not-survive.md"
	runbookNotNear       = "traffic-not-near.md"
	runbookOverloaded    = "endpoint-overloaded.md"
	runbookWebhook       = "webhook-slow-or-down.md"
	runbookProxy         = "proxy.md"
	runbookDNS           = "dns-down.md"
	runbookLocation      = "location-unknown.md"
	runbookBudget        = "budget-blocked.md"
	runbookEvictions     = "evictions-fail.md"
	runbookRolloutFailed = "rollout-failed.md"
)

func controllerAlerts() []Alert {
	return []Alert{
		{
			Name: "VicinityControllerDown", Severity: Critical, For: 5 * time.Minute, Runbook: runbookController,
			Expr:        `absent(up{job="` + JobController + `"} == 1)`,
			Summary:     "No pod of vicinity-controller answers Prometheus.",
			Description: "Hints, groups, budgets and rollouts are not followed. Services that vicinity-proxy serves lose endpoints as pods are replaced. Look at the pods of the Deployment vicinity-controller.",
		},
		{
			Name: "VicinityNobodyLeads", Severity: Critical, For: 5 * time.Minute, Runbook: runbookController,
			Expr:        `max(leader_election_master_status{name="vicinity-controller"}) != 1`,
			Summary:     "No pod of vicinity-controller leads.",
			Description: "The pods run, and none holds the Lease, so nothing is written. Look at their logs and at the Lease vicinity-controller.",
		},
		{
			Name: "VicinitySyncsFail", Severity: Warning, For: 15 * time.Minute, Runbook: runbookController,
			Expr:        "(" + failedSyncs() + ") > 0",
			Summary:     "Syncs of {{ $labels.kind }} fail.",
			Description: "The controller does not get its work done, and tries again. Its log has the error and the object.",
		},
		{
			Name: "VicinityWritesRefused", Severity: Warning, For: 15 * time.Minute, Runbook: runbookRefused,
			Expr:        `sum(rate(vicinity_routing_hint_writes_total{result="error"}[10m])) > 0`,
			Summary:     "The API server refuses hints that vicinity-controller writes.",
			Description: "Plans are made and not written. The log of vicinity-controller has the answer of the API server. A policy, a webhook of somebody else or a quota may be the reason.",
		},
		{
			Name: "VicinityWebhookFailsOpen", Severity: Warning, For: 5 * time.Minute, Runbook: runbookWebhook,
			Expr:        `sum by (name) (rate(apiserver_admission_webhook_fail_open_count{name=~".*vicinity.dev"}[5m])) > 0`,
			Summary:     "The webhook {{ $labels.name }} does not answer the API server.",
			Description: "Writes go through unseen: hints get lost and mistakes are not refused. Each write waits for the timeout. Look at the pods of vicinity-controller and at the Service vicinity-webhook.",
		},
		{
			Name: "VicinityWebhookSlow", Severity: Warning, For: 10 * time.Minute, Runbook: runbookWebhook,
			Expr:        `histogram_quantile(0.99, sum by (webhook, le) (rate(vicinity_webhook_duration_seconds_bucket{webhook="endpointslice"}[5m]))) > 0.25`,
			Summary:     "The webhook {{ $labels.webhook }} takes {{ $value | humanizeDuration }} for one request in a hundred.",
			Description: "Kubernetes writes EndpointSlices late, those of all routed Services. The webhook times out at 1 s. Look at the CPU of vicinity-controller.",
		},
	}
}

// failedSyncs are the rates of syncs that failed, by kind. Each kind counts in a metric of its
// own, and rates of several have no names.
func failedSyncs() string {
	var all []string
	for _, kind := range []string{"routing", "locator", "budget", "responder", "scaledown", "rollout"} {
		all = append(all, fmt.Sprintf(`label_replace(sum(rate(vicinity_%s_syncs_total{result="error"}[10m])), "kind", "%[1]s", "", "")`, kind))
	}
	return strings.Join(all, " or ")
}

func routingAlerts() []Alert {
	return []Alert{
		{
			Name: "VicinityHintsLost", Severity: Warning, For: 5 * time.Minute, Runbook: runbookHints,
			Expr:        `max by (state) (sum by (instance, state) (vicinity_routing_services{state=~"hints-.*"})) > 0`,
			Summary:     "{{ $value }} Services have the state {{ $labels.state }}.",
			Description: "Their traffic is spread over all zones although they ask for more. \"vicinity status\" names them. The state says whether hints are taken away, not stored or ignored.",
		},
		{
			Name: "VicinityUndelivered", Severity: Warning, For: 15 * time.Minute, Runbook: runbookNotNear,
			Expr:        `max(sum by (instance) (vicinity_routing_services{state="undelivered"})) > 0`,
			Summary:     "{{ $value }} Services ask for what hints cannot express.",
			Description: "Their traffic is spread over all zones. Annotate them with vicinity.dev/proxy so that vicinity-proxy serves them, or ask for less. \"vicinity status\" names them.",
		},
		{
			Name: "VicinityOverload", Severity: Warning, For: 15 * time.Minute, Runbook: runbookOverloaded,
			Expr:        `max by (namespace, service, family) (vicinity_routing_service_overload_ratio) > 1`,
			Summary:     "An endpoint of {{ $labels.namespace }}/{{ $labels.service }} gets {{ $value | humanizePercentage }} more than the even share.",
			Description: "That is a prediction by where capacity is. Plans with a bound stay below their threshold, 50 % unless a policy says otherwise: this one has a higher one, or none. Run \"vicinity explain svc/NAME\" and give the zone more pods.",
		},
	}
}

func proxyAlerts() []Alert {
	onNode := func(name, expr string, wait time.Duration, severity Severity, summary, description string) Alert {
		return Alert{Name: name, Expr: expr, For: wait, Severity: severity, Summary: summary, Description: description, Runbook: runbookProxy}
	}
	return []Alert{
		onNode("VicinityProxyDown", `up{job="`+JobProxy+`"} == 0`, 5*time.Minute, Warning,
			"vicinity-proxy on {{ $labels.instance }} does not answer Prometheus.",
			"The rules of the node stay as they are, and changes do not reach it. Hand-overs wait for the node. Look at its pod of the DaemonSet vicinity-proxy."),
		onNode("VicinityProxyBypassed", `max by (instance, family) (vicinity_proxy_probe_failing) > 0`, time.Minute, Critical,
			"Packets of {{ $labels.instance }} do not come through the rules of vicinity-proxy ({{ $labels.family }}).",
			"Something else handles them first. Services that were handed over may not work on the node. It takes part in no hand-over until that ends."),
		onNode("VicinityProxyPortsRefused", `sum by (instance) (vicinity_proxy_refused_service_ports) > 0`, time.Minute, Critical,
			"The kernel of {{ $labels.instance }} refuses {{ $value }} ports of Services.",
			"They keep the rules that they had. The event PortNotProgrammed of each Service has the kernel's reason."),
		onNode("VicinityProxyServicesWait", `max by (instance) (vicinity_proxy_waiting_services) > 0`, time.Minute, Warning,
			"{{ $value }} Services are not programmed whole on {{ $labels.instance }}.",
			"They take more elements than one Service or all of them may. The event TooManyElements of each Service names the bound."),
		onNode("VicinityProxyNearlyFull", `sum by (instance) (vicinity_proxy_elements) > 0.8 * max by (instance) (vicinity_proxy_max_elements)`, 15*time.Minute, Warning,
			"The rules of {{ $labels.instance }} take {{ $value }} elements, more than 80 % of what they may.",
			"Soon new Services will not be programmed. Raise proxy.resources.limits.memory, from which the bound follows."),
		onNode("VicinityProxyUnreachable", `max by (instance) (vicinity_proxy_unreachable_service_ports) > 0`, 5*time.Minute, Warning,
			"Clients on {{ $labels.instance }} are refused by {{ $value }} ports of Services.",
			"The Services allow none of the places that their endpoints are in, as with Require. Run pods where the clients are, or let the Services go further."),
		onNode("VicinityProxyDisputedAddresses", `sum by (instance) (vicinity_proxy_disputed_fronts) > 0`, 5*time.Minute, Warning,
			"Several Services want the same {{ $value }} addresses and ports on {{ $labels.instance }}.",
			"The oldest Service has each of them. Run \"vicinity explain svc/NAME --node NODE\", and change one of the Services."),
		onNode("VicinityProxyAddressesRefused", `sum by (instance, reason) (vicinity_proxy_refused_addresses) > 0`, 5*time.Minute, Warning,
			"Services claim {{ $value }} addresses that they do not get on {{ $labels.instance }} ({{ $labels.reason }}).",
			"The addresses belong to the cluster or to another Service. That is a mistake or an attack. The event AddressRefused names the Service and the address."),
		onNode("VicinityProxyRulesChanged", `sum by (instance) (increase(vicinity_proxy_foreign_changes_total[15m])) > 3`, 0, Warning,
			"Something changes the rules of vicinity-proxy on {{ $labels.instance }} again and again.",
			"They are put right within a second each time. New connections may fail meanwhile. Find the program that flushes or replaces all tables of nftables."),
		onNode("VicinityProxyRulesRewritten", `sum by (instance) (increase(vicinity_proxy_rewrites_total[15m])) > 0`, 0, Warning,
			"All rules of {{ $labels.instance }} were made anew.",
			"They could not be read or not be put right. Connections go on; clients with session affinity may get another endpoint. The log of the proxy has the reason."),
		onNode("VicinityProxyTransactionsFail", `sum by (instance) (increase(vicinity_proxy_transactions_total{result="error"}[15m])) > 0`, 0, Warning,
			"The kernel of {{ $labels.instance }} refuses changes of rules.",
			"The difference is read and tried again. If it lasts, changes do not reach the node. The log of the proxy has the kernel's reason."),
		// While the API server restarts these fail on all nodes. Other failures are counted once and may last, as that of
		// a port that is taken.
		onNode("VicinityProxyWritesFail", `sum by (instance, step) (increase(vicinity_proxy_failures_total{step=~"lease|event"}[5m])) > 0`, 10*time.Minute, Warning,
			"vicinity-proxy on {{ $labels.instance }} cannot write to the API server: {{ $labels.step }}.",
			"Without its Lease nothing is handed over to the proxies; without events nobody is told what is wrong with a Service. Its log has the answer of the API server."),
		onNode("VicinityProxyFailures", `sum by (instance, step) (increase(vicinity_proxy_failures_total{step!~"lease|event"}[15m])) > 0`, 0, Warning,
			"Work of vicinity-proxy on {{ $labels.instance }} fails: {{ $labels.step }}.",
			"It holds up no programming. The reference of vicinity-proxy says what the step is, and its log has the error."),
		onNode("VicinityProxyChangesLate", `histogram_quantile(0.99, sum by (instance, le) (rate(vicinity_proxy_change_latency_seconds_bucket[5m]))) > 1`, 5*time.Minute, Warning,
			"One change in a hundred takes {{ $value | humanizeDuration }} on {{ $labels.instance }}.",
			"New connections go to endpoints that are gone for so long. Look at vicinity_proxy_sync_duration_seconds: if syncs are short, the time goes before, in the API server or vicinity-controller."),
	}
}

// proxyAbsentAlerts are for where vicinity-proxy is wanted.
func proxyAbsentAlerts() []Alert {
	return []Alert{{
		Name: "VicinityProxyAbsent", Severity: Critical, For: 5 * time.Minute, Runbook: runbookProxy,
		Expr:        `absent(up{job="` + JobProxy + `"} == 1)`,
		Summary:     "No pod of vicinity-proxy answers Prometheus.",
		Description: "The rules of nodes stay as they are, and changes reach none of them: Services that vicinity-proxy serves lose endpoints as pods are replaced. Look at the DaemonSet vicinity-proxy, also at its events if it has no pods.",
	}}
}

// dnsAbsentAlerts are for where vicinity-dns is wanted.
func dnsAbsentAlerts() []Alert {
	return []Alert{{
		Name: "VicinityDNSDown", Severity: Critical, For: 5 * time.Minute, Runbook: runbookDNS,
		Expr:        `absent(up{job="` + JobDNS + `"} == 1)`,
		Summary:     "No pod of vicinity-dns answers Prometheus.",
		Description: "Names do not resolve for those that ask it. Look at the Deployment vicinity-dns and its pods, also at its events if it has none.",
	}}
}

func dnsAlerts() []Alert {
	return []Alert{
		{
			Name: "VicinityDNSPodDown", Severity: Warning, For: 5 * time.Minute, Runbook: runbookDNS,
			Expr:        `up{job="` + JobDNS + `"} == 0`,
			Summary:     "vicinity-dns {{ $labels.instance }} does not answer Prometheus.",
			Description: "The other pods of the Deployment vicinity-dns answer in its place. Look at the pod.",
		},
		{
			Name: "VicinityDNSUnsynced", Severity: Critical, For: 5 * time.Minute, Runbook: runbookDNS,
			Expr:        `sum by (instance) (rate(coredns_vicinity_answers_total{outcome="unsynced"}[5m])) > 0`,
			Summary:     "vicinity-dns {{ $labels.instance }} does not know the cluster and answers with failures.",
			Description: "It has not got all lists from the API server. Look at its log and at whether it reaches the API server.",
		},
		{
			Name: "VicinityDNSClientsUnknown", Severity: Warning, For: 15 * time.Minute, Runbook: runbookLocation,
			Expr:        `sum(rate(coredns_vicinity_clients_total{located="unknown"}[10m])) / sum(rate(coredns_vicinity_clients_total[10m])) > 0.1`,
			Summary:     "vicinity-dns does not know where {{ $value | humanizePercentage }} of its clients are.",
			Description: "They get all records, or none where a Service requires the same zone. Run \"vicinity explain dns NAME --from ADDRESS\" for one of them. Pods whose addresses are not from the range of their node need locators.enabled.",
		},
	}
}

func disruptionAlerts() []Alert {
	return []Alert{
		{
			Name: "VicinityBudgetBlocked", Severity: Warning, For: 5 * time.Minute, Runbook: runbookBudget,
			Expr:        `max by (namespace, budget) (vicinity_budget_blocked_seconds) > 3600`,
			Summary:     "The budget {{ $labels.namespace }}/{{ $labels.budget }} has allowed no eviction for {{ $value | humanizeDuration }}.",
			Description: "Drains and upgrades of nodes with its pods stand still. Look at the pods that are down, and at the conditions of the budget.",
		},
		{
			Name: "VicinityBudgetInvalid", Severity: Warning, For: 10 * time.Minute, Runbook: runbookBudget,
			Expr:        `max(sum by (instance) (vicinity_budgets{state="invalid"})) > 0`,
			Summary:     "{{ $value }} TopologyDisruptionBudgets cannot be followed.",
			Description: "Nothing of their pods is evicted. \"kubectl get tdb -A\" shows which, and the condition Valid says which field to correct.",
		},
		{
			Name: "VicinityBudgetNotEnforced", Severity: Critical, For: 10 * time.Minute, Runbook: runbookEvictions,
			Expr:        `max(sum by (instance) (vicinity_budgets{enforced="false"})) > 0`,
			Summary:     "{{ $value }} TopologyDisruptionBudgets are not enforced.",
			Description: "Evictions of their pods are not checked. The condition Enforced of each budget says why.",
		},
		{
			Name: "VicinityBreakGlass", Severity: Warning, Runbook: runbookBudget,
			Expr:        `max(sum by (instance) (vicinity_budgets{state="break-glass"})) > 0`,
			Summary:     "{{ $value }} TopologyDisruptionBudgets let everything through.",
			Description: "Somebody switched their protection off for a while. The condition BreakGlass has the reason and the end. Take the annotation vicinity.dev/break-glass away to end it.",
		},
		{
			Name: "VicinityEvictionsFail", Severity: Critical, For: 5 * time.Minute, Runbook: runbookEvictions,
			Expr:        `sum by (name) (rate(apiserver_admission_webhook_rejection_count{name=~".*eviction.*vicinity.dev",error_type!="no_error"}[5m])) > 0`,
			Summary:     "The API server refuses evictions since {{ $labels.name }} does not answer.",
			Description: "In namespaces with a TopologyDisruptionBudget nothing is evicted, so drains fail. Bring the pods of vicinity-controller back, or let go as the runbook says.",
		},
		{
			Name: "VicinityScaleDownsFail", Severity: Warning, For: 5 * time.Minute, Runbook: runbookEvictions,
			Expr:        `sum by (name) (rate(apiserver_admission_webhook_rejection_count{name=~".*[.]scale[.]vicinity[.]dev",error_type!="no_error"}[5m])) > 0`,
			Summary:     "The API server refuses scale-downs since {{ $labels.name }} does not answer.",
			Description: "In namespaces with the label vicinity.dev/pace-scale-down no workload gets smaller; all else goes on. Bring the pods of vicinity-controller back, or take the label away.",
		},
		{
			Name: "VicinityRolloutFailed", Severity: Warning, For: 5 * time.Minute, Runbook: runbookRolloutFailed,
			Expr:        `max by (phase) (vicinity_rollouts{phase=~"Failed|Invalid"}) > 0`,
			Summary:     "{{ $value }} DomainRollouts are in the phase {{ $labels.phase }}.",
			Description: "They go on only when a person has looked. \"kubectl get domainrollouts -A\" shows which, and status.waitingFor of each says why.",
		},
	}
}
