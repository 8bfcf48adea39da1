package rules_test

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"vicinity.dev/vicinity/monitoring/rules"
)

// input is a series with a value a minute, in the notation of Prometheus' rule tests.
type input struct {
	Series string `yaml:"series"`
	Values string `yaml:"values"`
}

type inputs []input

// of pairs series with their values.
func of(pairs ...string) inputs {
	var all inputs
	for i := 0; i < len(pairs); i += 2 {
		all = append(all, input{pairs[i], pairs[i+1]})
	}
	return all
}

// evaluated is an alert with what fires it, and what is near to that and does not.
type evaluated struct {
	alert  string
	fires  inputs
	labels map[string]string
	// summary is what a person reads.
	summary string
	silent  inputs
	// absent says that it also fires where nothing of Vicinity is scraped.
	absent bool
}

func node(name string, more ...string) map[string]string {
	all := map[string]string{"instance": name}
	for i := 0; i < len(more); i += 2 {
		all[more[i]] = more[i+1]
	}
	return all
}

// evaluatedAt is when it is looked whether an alert fires: all have waited by then.
const evaluatedAt = "20m"

func evaluations() []evaluated {
	return []evaluated{
		{
			alert:   "VicinityControllerDown",
			absent:  true,
			fires:   of(`up{job="vicinity-controller",instance="c-1"}`, `0x30`),
			summary: "No pod of vicinity-controller answers Prometheus.",
			silent:  of(`up{job="vicinity-controller",instance="c-1"}`, `0x30`, `up{job="vicinity-controller",instance="c-2"}`, `1x30`),
		},
		{
			alert:   "VicinityNobodyLeads",
			fires:   of(`leader_election_master_status{name="vicinity-controller",instance="c-1"}`, `0x30`, `leader_election_master_status{name="vicinity-controller",instance="c-2"}`, `0x30`),
			summary: "No pod of vicinity-controller leads.",
			silent:  of(`leader_election_master_status{name="vicinity-controller",instance="c-1"}`, `0x30`, `leader_election_master_status{name="vicinity-controller",instance="c-2"}`, `1x30`),
		},
		{
			alert:   "VicinitySyncsFail",
			fires:   of(`vicinity_rollout_syncs_total{result="error"}`, `0+1x30`, `vicinity_budget_syncs_total{result="error"}`, `5x30`),
			labels:  map[string]string{"kind": "rollout"},
			summary: "Syncs of rollout fail.",
			silent:  of(`vicinity_rollout_syncs_total{result="error"}`, `5x30`, `vicinity_rollout_syncs_total{result="conflict"}`, `0+1x30`),
		},
		{
			alert:   "VicinityWritesRefused",
			fires:   of(`vicinity_routing_hint_writes_total{result="error"}`, `0+1x30`),
			summary: "The API server refuses hints that vicinity-controller writes.",
			silent:  of(`vicinity_routing_hint_writes_total{result="error"}`, `3x30`, `vicinity_routing_hint_writes_total{result="done"}`, `0+5x30`),
		},
		{
			alert:   "VicinityWebhookFailsOpen",
			fires:   of(`apiserver_admission_webhook_fail_open_count{name="routed.endpointslice.vicinity.dev",type="admit"}`, `0+1x30`),
			labels:  map[string]string{"name": "routed.endpointslice.vicinity.dev"},
			summary: "The webhook routed.endpointslice.vicinity.dev does not answer the API server.",
			silent:  of(`apiserver_admission_webhook_fail_open_count{name="other.example.org",type="admit"}`, `0+1x30`),
		},
		{
			alert: "VicinityWebhookSlow",
			fires: of(
				`vicinity_webhook_duration_seconds_bucket{webhook="endpointslice",le="0.25"}`, `0x30`,
				`vicinity_webhook_duration_seconds_bucket{webhook="endpointslice",le="0.5"}`, `0+100x30`,
				`vicinity_webhook_duration_seconds_bucket{webhook="endpointslice",le="+Inf"}`, `0+100x30`,
			),
			labels:  map[string]string{"webhook": "endpointslice"},
			summary: "The webhook endpointslice takes 497.5ms for one request in a hundred.",
			silent: of(
				`vicinity_webhook_duration_seconds_bucket{webhook="endpointslice",le="0.25"}`, `0+100x30`,
				`vicinity_webhook_duration_seconds_bucket{webhook="endpointslice",le="0.5"}`, `0+100x30`,
				`vicinity_webhook_duration_seconds_bucket{webhook="endpointslice",le="+Inf"}`, `0+100x30`,
			),
		},
		{
			alert: "VicinityHintsLost",
			fires: of(
				`vicinity_routing_services{instance="c-1",approach="Prefer",delivery="Hints",state="hints-lost"}`, `2x30`,
				`vicinity_routing_services{instance="c-1",approach="Require",delivery="Hints",state="hints-lost"}`, `1x30`,
			),
			labels:  map[string]string{"state": "hints-lost"},
			summary: "3 Services have the state hints-lost.",
			silent:  of(`vicinity_routing_services{instance="c-1",approach="Prefer",delivery="Hints",state="downgraded"}`, `2x30`),
		},
		{
			alert:   "VicinityUndelivered",
			fires:   of(`vicinity_routing_services{instance="c-1",approach="Require",delivery="Hints",state="undelivered"}`, `1x30`),
			summary: "1 Services ask for what hints cannot express.",
			silent:  of(`vicinity_routing_services{instance="c-1",approach="Require",delivery="Groups",state="allocated"}`, `1x30`),
		},
		{
			alert:   "VicinityOverload",
			fires:   of(`vicinity_routing_service_overload_ratio{instance="c-1",namespace="shop",service="web",family="IPv4"}`, `1.5x30`),
			labels:  map[string]string{"namespace": "shop", "service": "web", "family": "IPv4"},
			summary: "An endpoint of shop/web gets 150% more than the even share.",
			silent:  of(`vicinity_routing_service_overload_ratio{instance="c-1",namespace="shop",service="web",family="IPv4"}`, `0.5x30`),
		},
		{
			alert:   "VicinityProxyDown",
			fires:   of(`up{job="vicinity-proxy",instance="node-1"}`, `0x30`),
			labels:  node("node-1", "job", "vicinity-proxy"),
			summary: "vicinity-proxy on node-1 does not answer Prometheus.",
			silent:  of(`up{job="vicinity-proxy",instance="node-1"}`, `1x17 0x3 1x10`, `up{job="other",instance="node-1"}`, `0x30`),
		},
		{
			alert:   "VicinityProxyBypassed",
			fires:   of(`vicinity_proxy_probe_failing{instance="node-1",family="IPv4"}`, `1x30`, `vicinity_proxy_probe_failing{instance="node-1",family="IPv6"}`, `0x30`),
			labels:  node("node-1", "family", "IPv4"),
			summary: "Packets of node-1 do not come through the rules of vicinity-proxy (IPv4).",
			silent:  of(`vicinity_proxy_probe_failing{instance="node-1",family="IPv4"}`, `0x30`),
		},
		{
			alert:   "VicinityProxyPortsRefused",
			fires:   of(`vicinity_proxy_refused_service_ports{instance="node-1",family="IPv4"}`, `2x30`, `vicinity_proxy_refused_service_ports{instance="node-1",family="IPv6"}`, `1x30`),
			labels:  node("node-1"),
			summary: "The kernel of node-1 refuses 3 ports of Services.",
			silent:  of(`vicinity_proxy_refused_service_ports{instance="node-1",family="IPv4"}`, `0x30`),
		},
		{
			alert:   "VicinityProxyServicesWait",
			fires:   of(`vicinity_proxy_waiting_services{instance="node-1"}`, `4x30`),
			labels:  node("node-1"),
			summary: "4 Services are not programmed whole on node-1.",
			silent:  of(`vicinity_proxy_waiting_services{instance="node-1"}`, `0x30`),
		},
		{
			alert:   "VicinityProxyNearlyFull",
			fires:   of(`vicinity_proxy_elements{instance="node-1",family="IPv4"}`, `50x30`, `vicinity_proxy_elements{instance="node-1",family="IPv6"}`, `31x30`, `vicinity_proxy_max_elements{instance="node-1"}`, `100x30`),
			labels:  node("node-1"),
			summary: "The rules of node-1 take 81 elements, more than 80 % of what they may.",
			silent:  of(`vicinity_proxy_elements{instance="node-1",family="IPv4"}`, `80x30`, `vicinity_proxy_max_elements{instance="node-1"}`, `100x30`),
		},
		{
			alert:   "VicinityProxyUnreachable",
			fires:   of(`vicinity_proxy_unreachable_service_ports{instance="node-1"}`, `2x30`),
			labels:  node("node-1"),
			summary: "Clients on node-1 are refused by 2 ports of Services.",
			silent:  of(`vicinity_proxy_unreachable_service_ports{instance="node-1"}`, `2x17 0x13`),
		},
		{
			alert:   "VicinityProxyDisputedAddresses",
			fires:   of(`vicinity_proxy_disputed_fronts{instance="node-1",family="IPv4"}`, `1x30`),
			labels:  node("node-1"),
			summary: "Several Services want the same 1 addresses and ports on node-1.",
			silent:  of(`vicinity_proxy_disputed_fronts{instance="node-1",family="IPv4"}`, `0x30`),
		},
		{
			alert:   "VicinityProxyAddressesRefused",
			fires:   of(`vicinity_proxy_refused_addresses{instance="node-1",reason="cluster-ip"}`, `1x30`, `vicinity_proxy_refused_addresses{instance="node-1",reason="node"}`, `0x30`),
			labels:  node("node-1", "reason", "cluster-ip"),
			summary: "Services claim 1 addresses that they do not get on node-1 (cluster-ip).",
			silent:  of(`vicinity_proxy_refused_addresses{instance="node-1",reason="cluster-ip"}`, `0x30`),
		},
		{
			alert:   "VicinityProxyRulesChanged",
			fires:   of(`vicinity_proxy_foreign_changes_total{instance="node-1",family="IPv4"}`, `0+1x30`),
			labels:  node("node-1"),
			summary: "Something changes the rules of vicinity-proxy on node-1 again and again.",
			silent:  of(`vicinity_proxy_foreign_changes_total{instance="node-1",family="IPv4"}`, `0x10 2x20`),
		},
		{
			alert:   "VicinityProxyRulesRewritten",
			fires:   of(`vicinity_proxy_rewrites_total{instance="node-1",family="IPv4"}`, `0x10 1x20`),
			labels:  node("node-1"),
			summary: "All rules of node-1 were made anew.",
			silent:  of(`vicinity_proxy_rewrites_total{instance="node-1",family="IPv4"}`, `1x30`),
		},
		{
			alert:   "VicinityProxyTransactionsFail",
			fires:   of(`vicinity_proxy_transactions_total{instance="node-1",family="IPv4",result="error"}`, `0x10 1x20`),
			labels:  node("node-1"),
			summary: "The kernel of node-1 refuses changes of rules.",
			silent:  of(`vicinity_proxy_transactions_total{instance="node-1",family="IPv4",result="error"}`, `1x30`, `vicinity_proxy_transactions_total{instance="node-1",family="IPv4",result="done"}`, `0+9x30`),
		},
		{
			alert:   "VicinityProxyFailures",
			fires:   of(`vicinity_proxy_failures_total{instance="node-1",step="check"}`, `0x10 1x20`, `vicinity_proxy_failures_total{instance="node-1",step="compile"}`, `0x30`),
			labels:  node("node-1", "step", "check"),
			summary: "Work of vicinity-proxy on node-1 fails: check.",
			silent:  of(`vicinity_proxy_failures_total{instance="node-1",step="check"}`, `7x30`),
		},
		{
			alert:   "VicinityProxyWritesFail",
			fires:   of(`vicinity_proxy_failures_total{instance="node-1",step="lease"}`, `0+9x30`, `vicinity_proxy_failures_total{instance="node-1",step="event"}`, `0x30`),
			labels:  node("node-1", "step", "lease"),
			summary: "vicinity-proxy on node-1 cannot write to the API server: lease.",
			// The API server restarts.
			silent: of(`vicinity_proxy_failures_total{instance="node-1",step="lease"}`, `0x16 30x13`),
		},
		{
			alert: "VicinityProxyChangesLate",
			fires: of(
				`vicinity_proxy_change_latency_seconds_bucket{instance="node-1",le="1"}`, `0x30`,
				`vicinity_proxy_change_latency_seconds_bucket{instance="node-1",le="2"}`, `0+100x30`,
				`vicinity_proxy_change_latency_seconds_bucket{instance="node-1",le="+Inf"}`, `0+100x30`,
			),
			labels:  node("node-1"),
			summary: "One change in a hundred takes 1.99s on node-1.",
			silent: of(
				`vicinity_proxy_change_latency_seconds_bucket{instance="node-1",le="1"}`, `0+100x30`,
				`vicinity_proxy_change_latency_seconds_bucket{instance="node-1",le="2"}`, `0+100x30`,
				`vicinity_proxy_change_latency_seconds_bucket{instance="node-1",le="+Inf"}`, `0+100x30`,
			),
		},
		{
			alert:   "VicinityProxyAbsent",
			absent:  true,
			fires:   of(`up{job="vicinity-proxy",instance="node-0"}`, `1x10 stale`),
			summary: "No pod of vicinity-proxy answers Prometheus.",
			silent:  of(`up{job="vicinity-proxy",instance="node-2"}`, `1x30`),
		},
		{
			alert:   "VicinityDNSDown",
			absent:  true,
			fires:   of(`up{job="vicinity-dns",instance="dns-0"}`, `1x10 stale`),
			summary: "No pod of vicinity-dns answers Prometheus.",
			silent:  of(`up{job="vicinity-dns",instance="dns-0"}`, `1x30`),
		},
		{
			alert:   "VicinityDNSPodDown",
			fires:   of(`up{job="vicinity-dns",instance="dns-1"}`, `0x30`),
			labels:  node("dns-1", "job", "vicinity-dns"),
			summary: "vicinity-dns dns-1 does not answer Prometheus.",
			silent:  of(`up{job="vicinity-dns",instance="dns-1"}`, `1x30`),
		},
		{
			alert:   "VicinityDNSUnsynced",
			fires:   of(`coredns_vicinity_answers_total{instance="dns-1",server="dns://:5353",outcome="unsynced"}`, `0+1x30`),
			labels:  node("dns-1"),
			summary: "vicinity-dns dns-1 does not know the cluster and answers with failures.",
			silent:  of(`coredns_vicinity_answers_total{instance="dns-1",server="dns://:5353",outcome="nearest"}`, `0+1x30`),
		},
		{
			alert:   "VicinityDNSClientsUnknown",
			fires:   of(`coredns_vicinity_clients_total{instance="dns-1",located="unknown"}`, `0+2x30`, `coredns_vicinity_clients_total{instance="dns-1",located="range"}`, `0+8x30`),
			summary: "vicinity-dns does not know where 20% of its clients are.",
			silent:  of(`coredns_vicinity_clients_total{instance="dns-1",located="unknown"}`, `0+1x30`, `coredns_vicinity_clients_total{instance="dns-1",located="range"}`, `0+19x30`),
		},
		{
			alert:   "VicinityBudgetBlocked",
			fires:   of(`vicinity_budget_blocked_seconds{instance="c-1",namespace="shop",budget="db"}`, `3000+60x30`),
			labels:  map[string]string{"namespace": "shop", "budget": "db"},
			summary: "The budget shop/db has allowed no eviction for 1h 10m 0s.",
			silent:  of(`vicinity_budget_blocked_seconds{instance="c-1",namespace="shop",budget="db"}`, `0+60x30`),
		},
		{
			alert:   "VicinityBudgetInvalid",
			fires:   of(`vicinity_budgets{instance="c-1",enforced="true",state="invalid"}`, `1x30`),
			summary: "1 TopologyDisruptionBudgets cannot be followed.",
			silent:  of(`vicinity_budgets{instance="c-1",enforced="true",state="blocked"}`, `1x30`),
		},
		{
			alert:   "VicinityBudgetNotEnforced",
			fires:   of(`vicinity_budgets{instance="c-1",enforced="false",state="allowing"}`, `1x30`, `vicinity_budgets{instance="c-1",enforced="false",state="blocked"}`, `1x30`),
			summary: "2 TopologyDisruptionBudgets are not enforced.",
			silent:  of(`vicinity_budgets{instance="c-1",enforced="true",state="allowing"}`, `1x30`, `vicinity_budgets{instance="c-1",enforced="false",state="blocked"}`, `0x30`),
		},
		{
			alert:   "VicinityBreakGlass",
			fires:   of(`vicinity_budgets{instance="c-1",enforced="true",state="break-glass"}`, `0x19 1x10`),
			summary: "1 TopologyDisruptionBudgets let everything through.",
			silent:  of(`vicinity_budgets{instance="c-1",enforced="true",state="break-glass"}`, `0x30`),
		},
		{
			alert:   "VicinityEvictionsFail",
			fires:   of(`apiserver_admission_webhook_rejection_count{name="eviction.vicinity.dev",error_type="calling_webhook_error"}`, `0+1x30`),
			labels:  map[string]string{"name": "eviction.vicinity.dev"},
			summary: "The API server refuses evictions since eviction.vicinity.dev does not answer.",
			// It refuses, and while pods of the controller are replaced some calls fail.
			silent: of(
				`apiserver_admission_webhook_rejection_count{name="eviction.vicinity.dev",error_type="no_error"}`, `0+1x30`,
				`apiserver_admission_webhook_rejection_count{name="eviction.vicinity.dev",error_type="calling_webhook_error"}`, `0x16 5x13`,
			),
		},
		{
			alert:   "VicinityScaleDownsFail",
			fires:   of(`apiserver_admission_webhook_rejection_count{name="deployment.scale.vicinity.dev",error_type="calling_webhook_error"}`, `0+1x30`),
			labels:  map[string]string{"name": "deployment.scale.vicinity.dev"},
			summary: "The API server refuses scale-downs since deployment.scale.vicinity.dev does not answer.",
			silent: of(
				`apiserver_admission_webhook_rejection_count{name="deployment.scale.vicinity.dev",error_type="no_error"}`, `0+1x30`,
				`apiserver_admission_webhook_rejection_count{name="autoscale.example.com",error_type="calling_webhook_error"}`, `0+1x30`,
			),
		},
		{
			alert:   "VicinityRolloutFailed",
			fires:   of(`vicinity_rollouts{instance="c-1",phase="Failed"}`, `2x30`),
			labels:  map[string]string{"phase": "Failed"},
			summary: "2 DomainRollouts are in the phase Failed.",
			silent:  of(`vicinity_rollouts{instance="c-1",phase="Paused"}`, `2x30`, `vicinity_rollouts{instance="c-1",phase="Failed"}`, `0x30`),
		},
	}
}

// What follows is the format of Prometheus' rule tests.
type ruleTests struct {
	Files    []string   `yaml:"rule_files"`
	Interval string     `yaml:"evaluation_interval"`
	Tests    []ruleTest `yaml:"tests"`
}

type ruleTest struct {
	Name     string      `yaml:"name"`
	Interval string      `yaml:"interval"`
	Input    inputs      `yaml:"input_series"`
	Alerts   []alertTest `yaml:"alert_rule_test,omitempty"`
	Queries  []queryTest `yaml:"promql_expr_test,omitempty"`
}

type alertTest struct {
	At    string          `yaml:"eval_time"`
	Alert string          `yaml:"alertname"`
	Want  []expectedAlert `yaml:"exp_alerts"`
}

type expectedAlert struct {
	Labels      map[string]string `yaml:"exp_labels"`
	Annotations map[string]string `yaml:"exp_annotations"`
}

type queryTest struct {
	Expr string           `yaml:"expr"`
	At   string           `yaml:"eval_time"`
	Want []expectedSample `yaml:"exp_samples"`
}

type expectedSample struct {
	Labels string  `yaml:"labels"`
	Value  float64 `yaml:"value"`
}

// promtool builds Prometheus' own tool, as "make prometheus" does.
func promtool(t *testing.T) string {
	t.Helper()
	if testing.Short() {
		t.Skip("builds promtool")
	}
	program := filepath.Join(t.TempDir(), "promtool")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-tags", "remove_all_sd,enable_kubernetes_sd", "-o", program, "github.com/prometheus/prometheus/cmd/promtool")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestRules has Prometheus' own tool run its rule tests on what the code makes, which is not in
// the chart yet while "make generate" runs.
func TestRules(t *testing.T) {
	program := promtool(t)
	text, err := rules.File()
	if err != nil {
		t.Fatal(err)
	}
	rulesFile := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rulesFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	text, err = yaml.Marshal(ruleTests{Files: []string{rulesFile}, Interval: "1m", Tests: append(alertTests(t), recordingTest(t))})
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(name, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(t.Context(), program, "test", "rules", name).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Every alert fires when it should, with a summary that a person understands, and does not
// when things are nearly so. Inputs of different alerts do not disturb each other, so all
// alerts are tried at once.
func alertTests(t *testing.T) []ruleTest {
	t.Helper()
	of := map[string]evaluated{}
	for _, e := range evaluations() {
		of[e.alert] = e
	}
	firing := ruleTest{Name: "what fires alerts", Interval: "1m"}
	silent := ruleTest{Name: "what is near to that", Interval: "1m"}
	nothing := ruleTest{Name: "nothing is scraped", Interval: "1m", Input: inputs{{`up{job="other"}`, `1x30`}}}
	for _, a := range rules.Alerts() {
		e, found := of[a.Name]
		if !found || len(e.silent) == 0 {
			t.Errorf("nothing is said about when %s fires, or when it does not", a.Name)
			continue
		}
		delete(of, a.Name)
		labels := map[string]string{"severity": string(a.Severity)}
		maps.Copy(labels, e.labels)
		want := expectedAlert{labels, map[string]string{
			"summary": e.summary, "description": a.Description, "runbook_url": rules.RunbookBase + "/" + a.Runbook,
		}}
		firing.Input = append(firing.Input, e.fires...)
		firing.Alerts = append(firing.Alerts, alertTest{evaluatedAt, a.Name, []expectedAlert{want}})
		silent.Input = append(silent.Input, e.silent...)
		silent.Alerts = append(silent.Alerts, alertTest{evaluatedAt, a.Name, nil})
		missed := alertTest{evaluatedAt, a.Name, nil}
		if e.absent {
			missed.Want = []expectedAlert{want}
		}
		nothing.Alerts = append(nothing.Alerts, missed)
	}
	for name := range of {
		t.Errorf("there is no alert %s", name)
	}
	return []ruleTest{firing, silent, nothing}
}

// Two zones exchange 3 of 12 connections a second. A Service has all in its zone, and one has
// connections of which a zone is not known.
func recordingTest(t *testing.T) ruleTest {
	t.Helper()
	const (
		connections = `vicinity_proxy_connections_total{instance="n",namespace="shop",service="`
		bytes       = `vicinity_proxy_bytes_total{instance="n",direction="request",namespace="shop",service="`
	)
	input := of(
		connections+`web",source_zone="a",destination_zone="a"}`, `0+300x20`,
		connections+`web",source_zone="a",destination_zone="b"}`, `0+120x20`,
		connections+`web",source_zone="b",destination_zone="a"}`, `0+60x20`,
		connections+`api",source_zone="b",destination_zone="b"}`, `0+240x20`,
		connections+`api",source_zone="",destination_zone="b"}`, `0+60x20`,
		bytes+`web",source_zone="a",destination_zone="a"}`, `0+600x20`,
		bytes+`web",source_zone="a",destination_zone="b"}`, `0+600x20`,
		bytes+`api",source_zone="b",destination_zone="b"}`, `0+1200x20`,
	)
	service := func(name, service string) string { return name + `{namespace="shop",service="` + service + `"}` }
	zones := func(name, from, to string) string {
		return name + `{source_zone="` + from + `",destination_zone="` + to + `"}`
	}
	serviceZones := func(name, of, from, to string) string {
		return name + `{namespace="shop",service="` + of + `",source_zone="` + from + `",destination_zone="` + to + `"}`
	}
	want := map[string][]expectedSample{
		rules.ServiceZonesConnections: {
			{serviceZones(rules.ServiceZonesConnections, "web", "a", "a"), 5},
			{serviceZones(rules.ServiceZonesConnections, "web", "a", "b"), 2},
			{serviceZones(rules.ServiceZonesConnections, "web", "b", "a"), 1},
			{serviceZones(rules.ServiceZonesConnections, "api", "b", "b"), 4},
			{serviceZones(rules.ServiceZonesConnections, "api", "", "b"), 1},
		},
		rules.ServiceZonesBytes: {
			{serviceZones(rules.ServiceZonesBytes, "web", "a", "a"), 10},
			{serviceZones(rules.ServiceZonesBytes, "web", "a", "b"), 10},
			{serviceZones(rules.ServiceZonesBytes, "api", "b", "b"), 20},
		},
		rules.ZonesConnections: {
			{zones(rules.ZonesConnections, "a", "a"), 5},
			{zones(rules.ZonesConnections, "a", "b"), 2},
			{zones(rules.ZonesConnections, "b", "a"), 1},
			{zones(rules.ZonesConnections, "b", "b"), 4},
			{zones(rules.ZonesConnections, "", "b"), 1},
		},
		rules.ZonesBytes: {
			{zones(rules.ZonesBytes, "a", "a"), 10},
			{zones(rules.ZonesBytes, "a", "b"), 10},
			{zones(rules.ZonesBytes, "b", "b"), 20},
		},
		rules.ServiceCrossing:      {{service(rules.ServiceCrossing, "web"), 3}, {service(rules.ServiceCrossing, "api"), 0}},
		rules.ServiceCrossingBytes: {{service(rules.ServiceCrossingBytes, "web"), 10}, {service(rules.ServiceCrossingBytes, "api"), 0}},
		rules.ServiceInZone:        {{service(rules.ServiceInZone, "web"), 0.625}, {service(rules.ServiceInZone, "api"), 1}},
		rules.ServiceInZoneBytes:   {{service(rules.ServiceInZoneBytes, "web"), 0.5}, {service(rules.ServiceInZoneBytes, "api"), 1}},
		rules.ClusterCrossingBytes: {{rules.ClusterCrossingBytes, 10}},
		rules.ClusterInZone:        {{rules.ClusterInZone, 0.75}},
		rules.ClusterInZoneBytes:   {{rules.ClusterInZoneBytes, 0.75}},
	}
	test := ruleTest{Name: "recordings", Interval: "1m", Input: input}
	for _, r := range rules.Recordings() {
		samples, found := want[r.Name]
		if !found {
			t.Errorf("nothing is said about %s", r.Name)
		}
		for _, sample := range samples {
			for _, label := range r.Labels {
				if !strings.Contains(sample.Labels, label+`="`) {
					t.Errorf("%s has no label %s", sample.Labels, label)
				}
			}
		}
		slices.SortFunc(samples, func(a, b expectedSample) int { return strings.Compare(a.Labels, b.Labels) })
		test.Queries = append(test.Queries, queryTest{r.Name, "15m", samples})
	}
	return test
}
