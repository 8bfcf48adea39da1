package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/charts"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/dnsquery"
	"vicinity.dev/vicinity/lab/release"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/test/evictions"
	"vicinity.dev/vicinity/test/kube"
)

// metricsArea checks metrics with Prometheus and the dashboards, with all parts of Vicinity on.
func metricsArea() area {
	return area{
		name:  "metrics",
		setup: metrics,
		promises: []promise{
			{name: "dashboards", keep: dashboardsHaveData, within: 6 * time.Minute},
		},
	}
}

// networkLabel marks the nodes whose pods really run.
const networkLabel = "example.com/network"

// metrics is a cluster with a node in each zone for Vicinity. Pods are evicted and updated on nodes
// without network.
var metrics = &setup{
	name: "metrics",
	shape: func() shape.Shape {
		s := shaped(shape.Options{
			Name: "metrics", NodesPerZone: []int{1}, FakeNodes: 9, SingleStack: true, EvictionRequests: true, DNS: string(shape.DNSNone),
		})
		s.Proxy = shape.ProxyBoth
		for z := range s.Zones {
			for n := range s.Zones[z].Nodes {
				s.Zones[z].Nodes[n].Labels = map[string]string{networkLabel: "yes"}
			}
		}
		return s
	},
	prepare: prepareMetrics,
}

// operatorAPI has the Prometheus Operator's CRDs for the objects of the chart. The operator does
// not run: scrapeOf does its work.
const operatorAPI = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: servicemonitors.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: ServiceMonitor, plural: servicemonitors}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: prometheusrules.monitoring.coreos.com}
spec:
  group: monitoring.coreos.com
  scope: Namespaced
  names: {kind: PrometheusRule, plural: prometheusrules}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]
`

// prepareMetrics installs all parts of Vicinity with monitors, rules and dashboards.
func prepareMetrics(ctx context.Context, c *lab.Cluster) error {
	client, err := c.Client()
	if err != nil {
		return err
	}
	if err := client.Apply(ctx, "", operatorAPI); err != nil {
		return err
	}
	err = kube.Wait(ctx, "the operator's API", func(ctx context.Context) (string, error) {
		for _, resource := range []string{"servicemonitors", "prometheusrules"} {
			if _, err := client.CoreV1().RESTClient().Get().AbsPath(operatorPath + resource).DoRaw(ctx); err != nil {
				return err.Error(), nil
			}
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	return c.InstallVicinity(ctx, "disruption.enabled=true", "disruption.evictionRequests=true",
		"rollouts.enabled=true", "rollouts.scaleDown=true", "rollouts.pacing=true", "rollouts.ordinals=true",
		"locators.enabled=true", "locators.all=true", "dns.enabled=true", "dns.replicas=1", `dns.nodeSelector.example\.com/network=yes`,
		"monitoring.serviceMonitors.enabled=true", "monitoring.rules.enabled=true", "monitoring.dashboards.enabled=true")
}

const operatorPath = "/apis/monitoring.coreos.com/v1/"

// operated reads objects of the operator's API in the release's namespace.
func (s *scene) operated(ctx context.Context, resource string, into any) error {
	text, err := s.CoreV1().RESTClient().Get().AbsPath(operatorPath + "namespaces/" + release.Namespace + "/" + resource).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// metaLabel returns the name that Prometheus gives to a label of a discovered object.
func metaLabel(of, name string) string {
	return "__meta_kubernetes_" + of + "_label_" + strings.NewReplacer(".", "_", "/", "_", "-", "_").Replace(name)
}

// relabeling is a relabeling of Prometheus' configuration.
type relabeling struct {
	Source      []string `json:"source_labels,omitempty"`
	Target      string   `json:"target_label,omitempty"`
	Regex       string   `json:"regex,omitempty"`
	Replacement string   `json:"replacement,omitempty"`
	Action      string   `json:"action,omitempty"`
}

// scrapeOf returns the scrape job that the operator makes of a monitor's endpoint. It finds the
// slices of the selected Services and the named port, and sets the usual labels of targets before
// the monitor's own relabelings.
func scrapeOf(m *monitoringv1.ServiceMonitor) map[string]any {
	var relabelings []relabeling
	for name, value := range m.Spec.Selector.MatchLabels {
		relabelings = append(relabelings, relabeling{Action: "keep", Source: []string{metaLabel("service", name)}, Regex: value})
	}
	endpoint := m.Spec.Endpoints[0]
	relabelings = append(relabelings,
		relabeling{Action: "keep", Source: []string{"__meta_kubernetes_endpointslice_port_name"}, Regex: endpoint.Port},
		relabeling{Source: []string{"__meta_kubernetes_namespace"}, Target: "namespace"},
		relabeling{Source: []string{"__meta_kubernetes_service_name"}, Target: "service"},
		relabeling{Source: []string{"__meta_kubernetes_pod_name"}, Target: "pod"},
		relabeling{Source: []string{"__meta_kubernetes_pod_container_name"}, Target: "container"},
		relabeling{Source: []string{"__meta_kubernetes_service_name"}, Target: "job"},
		relabeling{Target: "endpoint", Replacement: endpoint.Port},
	)
	for _, r := range endpoint.RelabelConfigs {
		made := relabeling{Target: r.TargetLabel, Regex: r.Regex, Action: r.Action}
		for _, name := range r.SourceLabels {
			made.Source = append(made.Source, string(name))
		}
		if r.Replacement != nil {
			made.Replacement = *r.Replacement
		}
		relabelings = append(relabelings, made)
	}
	return map[string]any{
		"job_name": "serviceMonitor/" + m.Namespace + "/" + m.Name, "honor_labels": endpoint.HonorLabels, "relabel_configs": relabelings,
		"kubernetes_sd_configs": []any{map[string]any{"role": "endpointslice", "namespaces": map[string]any{"names": m.Spec.NamespaceSelector.MatchNames}}},
	}
}

// scraping is the interval of scrapes and of rule evaluations. The dashboards' rates use window, so
// that they show events of this promise.
const (
	scraping = 5 * time.Second
	window   = "4m"
)

// prometheusManifests run a real Prometheus with its configuration and rules.
const prometheusManifests = `apiVersion: v1
kind: ServiceAccount
metadata: {name: prometheus}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: lab-prometheus}
rules:
- {apiGroups: [""], resources: [pods, services, nodes], verbs: [get, list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: lab-prometheus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: lab-prometheus}
subjects: [{kind: ServiceAccount, name: prometheus, namespace: $NAMESPACE}]
---
apiVersion: v1
kind: Service
metadata: {name: prometheus}
spec:
  selector: {app: prometheus}
  ports: [{name: http, port: 9090}]
---
apiVersion: v1
kind: ConfigMap
metadata: {name: prometheus}
data:
  prometheus.yaml: '$CONFIGURATION'
  rules.yaml: '$RULES'
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: prometheus}
spec:
  selector: {matchLabels: {app: prometheus}}
  template:
    metadata: {labels: {app: prometheus}}
    spec:
      serviceAccountName: prometheus
      terminationGracePeriodSeconds: 5
      nodeSelector: {` + networkLabel + `: "yes"}
      containers:
      - name: prometheus
        image: vicinity-prometheus
        args: [--config.file=/etc/prometheus/prometheus.yaml, --storage.tsdb.path=/prometheus, "--web.listen-address=:9090", --log.level=warn]
        ports: [{containerPort: 9090}]
        readinessProbe: {httpGet: {path: /-/ready, port: 9090}, periodSeconds: 1}
        volumeMounts: [{name: config, mountPath: /etc/prometheus}, {name: data, mountPath: /prometheus}]
      volumes: [{name: config, configMap: {name: prometheus}}, {name: data, emptyDir: {}}]
`

// startPrometheus starts a Prometheus with the monitors and the rules of the release, and returns
// the rules.
func (s *scene) startPrometheus(ctx context.Context) []monitoringv1.RuleGroup {
	var monitors monitoringv1.ServiceMonitorList
	check(s.operated(ctx, "servicemonitors", &monitors))
	var rules monitoringv1.PrometheusRuleList
	check(s.operated(ctx, "prometheusrules", &rules))
	if len(monitors.Items) != len(jobs) || len(rules.Items) != 1 {
		check(fmt.Errorf("the release has %d ServiceMonitors and %d PrometheusRules, want %d and 1", len(monitors.Items), len(rules.Items), len(jobs)))
	}
	var scrapes []any
	for i := range monitors.Items {
		scrapes = append(scrapes, scrapeOf(&monitors.Items[i]))
	}
	configuration := must(json.Marshal(map[string]any{
		"global":     map[string]any{"scrape_interval": scraping.String(), "evaluation_interval": scraping.String()},
		"rule_files": []string{"/etc/prometheus/rules.yaml"}, "scrape_configs": scrapes,
	}))
	text := must(json.Marshal(rules.Items[0].Spec))
	quoted := func(text []byte) string { return strings.ReplaceAll(string(text), "'", "''") }
	check(s.Apply(ctx, s.namespace, strings.NewReplacer("$NAMESPACE", s.namespace, "$CONFIGURATION", quoted(configuration), "$RULES", quoted(text)).Replace(prometheusManifests)))
	check(s.WaitDeployment(ctx, s.namespace, "prometheus"))
	return rules.Items[0].Spec.Groups
}

// sample is a result of a query: labels, and a time with a value.
type sample struct {
	Metric map[string]string
	Value  [2]any
}

// number returns the value. It is NaN for values that panels do not show.
func (v sample) number() float64 {
	text, _ := v.Value[1].(string)
	number, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return math.NaN()
	}
	return number
}

// values returns the current results of a query that are numbers.
func (s *scene) values(ctx context.Context, query string) ([]sample, error) {
	text, err := s.CoreV1().Services(s.namespace).ProxyGet("http", "prometheus", "9090", "api/v1/query", map[string]string{"query": query}).DoRaw(ctx)
	var answer struct {
		Error string
		Data  struct{ Result []sample }
	}
	unread := json.Unmarshal(text, &answer)
	switch {
	case answer.Error != "":
		return nil, fmt.Errorf("Prometheus answered %q to %s", answer.Error, query)
	case err != nil:
		return nil, fmt.Errorf("querying Prometheus: %w", err)
	case unread != nil:
		return nil, unread
	}
	return slices.DeleteFunc(answer.Data.Result, func(v sample) bool { return math.IsNaN(v.number()) }), nil
}

// board has the parts of a dashboard that contain queries.
type board struct {
	Title  string
	Panels []struct {
		Title       string
		Targets     []struct{ Expr string }
		FieldConfig struct{ Defaults struct{ Max *float64 } }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

// boards returns the dashboards that the chart installs.
func boards() []board {
	chart := must(charts.Vicinity())
	names := must(fs.Glob(chart, "monitoring/dashboards/*.json"))
	var all []board
	for _, name := range names {
		var b board
		check(json.Unmarshal(must(fs.ReadFile(chart, name)), &b))
		all = append(all, b)
	}
	return all
}

// query is a query of a dashboard, as Grafana sends it.
type query struct {
	from, expr string
	// most is the maximum that the panel expects.
	most float64
}

// rounding is the error of a share, which depends on the order of additions.
const rounding = 1e-9

// outside returns an error if a value is impossible.
func (q query) outside(found []sample) error {
	for _, v := range found {
		if n := v.number(); n < -rounding || n > q.most+rounding {
			return fmt.Errorf("%s shows the impossible value %v of %v: %s", q.from, n, v.Metric, q.expr)
		}
	}
	return nil
}

// shows reports whether the panel shows something.
func (q query) shows(found []sample) bool {
	return len(found) > 0 && (slices.Contains(quiet, q.from) || slices.ContainsFunc(found, func(v sample) bool { return v.number() > rounding }))
}

// queriesOf returns the queries of dashboards for a Service, with variables replaced.
func queriesOf(all []board, namespace, service string) (found []query) {
	variables := strings.NewReplacer("$__rate_interval", window, "$cost_per_gib", "0.01", "$instance", ".*", "$namespace", namespace, "$service", service)
	for _, b := range all {
		for _, p := range b.Panels {
			most := math.Inf(1)
			if p.FieldConfig.Defaults.Max != nil {
				most = *p.FieldConfig.Defaults.Max
			}
			for i, t := range p.Targets {
				found = append(found, query{fmt.Sprintf("%s: %s (%c)", b.Title, p.Title, 'A'+i), variables.Replace(t.Expr), most})
			}
		}
	}
	return found
}

// jobs has the expected number of targets of each job.
var jobs = map[string]int{"vicinity-controller": 2, "vicinity-proxy": 3, "vicinity-dns": 1}

// quiet has the queries that show 0 while nothing is wrong and nothing waits. All others must show
// more.
var quiet = []string{
	"Vicinity / Cluster: Writes of hints (B)",
	"Vicinity / Cluster: Work that waits (A)",
	"Vicinity / Cluster: Endpoints that moved to other zones (B)",
	"Vicinity / Disruption and rollouts: Blocked the longest (A)",
	"Vicinity / Disruption and rollouts: Budgets that are not enforced (A)",
	"Vicinity / Disruption and rollouts: Reservations (A)",
	"Vicinity / Disruption and rollouts: Pods with EvictionRequests that wait (A)",
	"Vicinity / Disruption and rollouts: Workloads (B)",
	"Vicinity / Disruption and rollouts: Pods in the wrong domain (A)",
	"Vicinity / Disruption and rollouts: Steps and repairs (A)",
	"Vicinity / Disruption and rollouts: Steps and repairs (B)",
	"Vicinity / Proxy: Nodes that are bypassed (A)",
	"Vicinity / Proxy: Ports refused (A)",
	"Vicinity / Proxy: Services that wait (A)",
	"Vicinity / Proxy: Ports that clients do not reach (A)",
	"Vicinity / Proxy: Addresses refused or disputed (A)",
	"Vicinity / Proxy: Addresses refused or disputed (B)",
	"Vicinity / Proxy: Rules changed by others (A)",
	"Vicinity / Proxy: Rules changed by others (B)",
	"Vicinity / Proxy: Failures (A)",
	"Vicinity / Proxy: What is counted (B)",
	"Vicinity / Proxy: Reports lost, and the CPU of readings (A)",
	"Vicinity / Service: Overload, predicted (A)",
}

// dashboardsHaveData lets a real Prometheus scrape all programs of a release by its monitors, and
// uses every part of Vicinity. Every query of the dashboards and every recorded series must have
// plausible data.
func dashboardsHaveData(ctx context.Context, s *scene) (string, error) {
	groups := s.startPrometheus(ctx)
	use := s.everythingInUse(ctx)
	all := boards()
	queries := queriesOf(all, s.namespace, "echo")
	asked := len(queries)
	for _, name := range quiet {
		if !slices.ContainsFunc(queries, func(q query) bool { return q.from == name }) {
			return "", fmt.Errorf("the dashboards lack the query %q, which may show 0", name)
		}
	}
	recorded := 0
	for _, g := range groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				continue
			}
			recorded++
			queries = append(queries, query{"recorded", r.Record, math.Inf(1)})
		}
	}
	// A shift holds up the evictions and rollouts that other queries are about.
	isOfShift := func(q query) bool { return strings.Contains(q.expr, "vicinity_zone_shift") }
	check(use.untilShown(ctx, slices.DeleteFunc(slices.Clone(queries), isOfShift)))
	check(s.showsShift(ctx, slices.DeleteFunc(slices.Clone(queries), func(q query) bool { return !isOfShift(q) })))
	check(kube.Wait(ctx, "all targets to answer", func(ctx context.Context) (string, error) { return "", s.targetsUp(ctx) }))
	return fmt.Sprintf("all %d queries of %d dashboards return data (%d may be 0), and all %d recorded series do",
		asked, len(all), len(quiet), recorded), nil
}

// showsShift takes a zone out of service until the queries show it.
func (s *scene) showsShift(ctx context.Context, queries []query) (err error) {
	defer undo(&err, func() error { return s.unshift(ctx) })
	check(s.Apply(ctx, "", s.shiftManifest("  for: 1h\n  ramp: 1h\n  maxOverload: 10000\n")))
	return kube.Wait(ctx, "the queries about zone shifts to have data", func(ctx context.Context) (string, error) {
		if _, err := s.load(ctx, lab.LoadOptions{Plan: lightPlan()}); err != nil {
			return "", err
		}
		for _, q := range queries {
			if found, err := s.values(ctx, q.expr); err != nil || len(found) == 0 {
				return q.from + " has none", err
			}
		}
		return "", nil
	})
}

// untilShown uses the cluster until each query has shown data.
func (u *inUse) untilShown(ctx context.Context, queries []query) error {
	var outside error
	err := kube.Wait(ctx, "all queries to have data", func(ctx context.Context) (string, error) {
		if err := u.again(ctx); err != nil {
			return "", err
		}
		var missing []query
		var names []string
		for _, q := range queries {
			found, err := u.values(ctx, q.expr)
			if err != nil {
				return "", fmt.Errorf("%s: %w", q.from, err)
			}
			if outside = q.outside(found); outside != nil {
				return "", nil
			}
			if !q.shows(found) {
				missing = append(missing, q)
				names = append(names, q.from+": "+q.expr)
			}
		}
		queries = missing
		if len(missing) == 0 {
			return "", nil
		}
		return fmt.Sprintf("%d have none: %s", len(missing), strings.Join(names, "; ")), nil
	})
	return errors.Join(err, outside)
}

// targetsUp returns an error unless each job has its targets and all answer.
func (s *scene) targetsUp(ctx context.Context) error {
	for job, want := range jobs {
		found, err := s.values(ctx, fmt.Sprintf("up{job=%q} == 1", job))
		if err != nil {
			return err
		}
		if len(found) != want {
			return fmt.Errorf("%d targets of %s answer, want %d", len(found), job, want)
		}
		for _, v := range found {
			if v.Metric["service"] != "" || v.Metric["namespace"] != "" {
				return fmt.Errorf("a target of %s has the labels %v, which metrics use to name Services", job, v.Metric)
			}
		}
	}
	return nil
}

// inUse is a cluster where every part of Vicinity has work.
type inUse struct {
	*scene
	dns     netip.AddrPort
	clients map[string]place
	rolled  *rolled
	turn    int
}

// everythingInUse runs a Service of vicinity-proxy, one with hints and a headless one, a budget
// that allows one zone to be disturbed, a workload that is kept spread, and one that is updated by
// domain.
func (s *scene) everythingInUse(ctx context.Context) *inUse {
	onNetwork := strings.NewReplacer("      containers:\n", "      nodeSelector: {"+networkLabel+": \"yes\"}\n      containers:\n")
	manifests := onNetwork.Replace(lab.EchoManifests("echo", 3) + "---\n" + lab.ClientManifests("client", 3))
	manifests += headlessOf("near", zoneAnnotation, "Prefer")
	zones := s.field().Zones()
	manifests += "---\n" + lab.UnevenEchoManifests("hinted", map[string]int{zones[0]: 6, zones[1]: 2, zones[2]: 2})
	check(s.Apply(ctx, s.namespace, manifests))
	for _, name := range []string{"echo", "client"} {
		check(s.WaitDeployment(ctx, s.namespace, name))
	}
	check(s.waitSettled(ctx))
	check(s.handOverEcho(ctx, preferZone))
	f := s.field()
	budget := evictions.ByZone("guarded", "app", "guarded", "maxUnavailable: 100%", "maxUnavailableDomains: 1")
	check(f.Run(ctx, budget, evictions.Workload{Name: "guarded", Replicas: 6, StartTime: time.Second}))
	check((zoned{Field: f, name: "spread", replicas: 3}).apply(ctx, keepsSpread))
	rolled := must(s.roll(ctx, ofStatefulSet))
	service := must(s.CoreV1().Services(release.Namespace).Get(ctx, "vicinity-dns", metav1.GetOptions{}))
	address := must(netip.ParseAddr(service.Spec.ClusterIP))
	return &inUse{scene: s, dns: netip.AddrPortFrom(address, 53), rolled: rolled, clients: must(s.fromClients(ctx))}
}

// again gives every part of Vicinity a change to handle.
func (u *inUse) again(ctx context.Context) error {
	u.turn++
	// Endpoints and PodLocators come and go.
	if err := u.scale(ctx, "echo", int32(3+u.turn%2)); err != nil {
		return err
	}
	// Rates need two scrapes: an update that ends before the first scrape shows no change.
	if err := u.rolled.update(ctx, strconv.Itoa(1+u.turn), "500ms", ""); err != nil {
		return err
	}
	// With Prefer, unlike Require, some of the zone's six endpoints serve the zones with two. The
	// controller writes these hints itself, because the slices do not change.
	if err := u.PatchService(ctx, u.namespace, "hinted", annotated(zoneAnnotation, []string{"Prefer", "Require"}[u.turn%2])); err != nil {
		return err
	}
	if _, err := u.load(ctx, lab.LoadOptions{Plan: lightPlan()}); err != nil {
		return err
	}
	for _, from := range u.clients {
		if _, _, err := u.resolve(ctx, from, dnsquery.Query{Name: u.fqdn("near"), Server: u.dns}); err != nil {
			return err
		}
	}
	return u.evictTwo(ctx)
}

// evictTwo requests evictions in two zones at the same time. The budget allows one.
func (u *inUse) evictTwo(ctx context.Context) error {
	f := u.field()
	for _, zone := range f.Zones()[:2] {
		pods, err := f.Pods(ctx, "guarded", zone)
		if err != nil {
			return err
		}
		if len(pods) == 0 {
			continue // the pods of the last turn are not back yet
		}
		if err := f.Evict(ctx, pods[0].Name, nil); err != nil && !apierrors.IsTooManyRequests(err) {
			return err
		}
	}
	return nil
}
