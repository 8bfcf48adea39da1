package charts_test

import (
	"encoding/json"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/charts"
)

const (
	allPrograms = "proxy.enabled=true,dns.enabled=true"
	monitored   = "monitoring.serviceMonitors.enabled=true,monitoring.rules.enabled=true,monitoring.dashboards.enabled=true"
)

// Nothing of it is there by default, and it brings nothing else.
func TestMonitoringInstallsItsOwnAndNothingElse(t *testing.T) {
	own := []string{
		"ConfigMap vicinity-dashboard-cluster", "ConfigMap vicinity-dashboard-disruption", "ConfigMap vicinity-dashboard-dns",
		"ConfigMap vicinity-dashboard-proxy", "ConfigMap vicinity-dashboard-service", "PrometheusRule vicinity",
		"ServiceMonitor vicinity-controller", "ServiceMonitor vicinity-dns", "ServiceMonitor vicinity-proxy",
	}
	want := slices.Sorted(slices.Values(slices.Concat(names(t, allPrograms), own)))
	if got := names(t, allPrograms+","+monitored); !slices.Equal(got, want) {
		t.Errorf("with monitoring there is %q, want %q", got, want)
	}
	want = slices.Sorted(slices.Values(append(names(t), "ServiceMonitor vicinity-controller")))
	if got := names(t, "monitoring.serviceMonitors.enabled=true"); !slices.Equal(got, want) {
		t.Errorf("with monitors of what there is by default there is %q, want %q", got, want)
	}
}

// A monitor finds one Service by its labels, and in it the port of the metrics.
func TestMonitorsFindMetrics(t *testing.T) {
	r := rendered(t, allPrograms+",monitoring.serviceMonitors.enabled=true,monitoring.serviceMonitors.interval=20s,monitoring.serviceMonitors.labels.release=kps")
	all := objects(t, r)
	for name, service := range map[string]string{
		"vicinity-controller": "vicinity-metrics", "vicinity-proxy": "vicinity-proxy-metrics", "vicinity-dns": "vicinity-dns",
	} {
		monitor := object[*monitoringv1.ServiceMonitor](t, r, "ServiceMonitor "+name)
		if monitor.Labels["release"] != "kps" || monitor.Labels["app.kubernetes.io/part-of"] != "vicinity" {
			t.Errorf("%s has the labels %v", name, monitor.Labels)
		}
		selector, err := metav1.LabelSelectorAsSelector(&monitor.Spec.Selector)
		if err != nil {
			t.Fatal(err)
		}
		endpoint := monitor.Spec.Endpoints[0]
		if len(monitor.Spec.Endpoints) != 1 || endpoint.Interval != "20s" || !slices.Equal(monitor.Spec.NamespaceSelector.MatchNames, []string{namespace}) {
			t.Errorf("%s scrapes %+v in %v", name, monitor.Spec.Endpoints, monitor.Spec.NamespaceSelector.MatchNames)
		}
		var found []string
		for _, o := range all {
			s, ok := o.(*corev1.Service)
			if ok && selector.Matches(labels.Set(s.Labels)) && slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == endpoint.Port }) {
				found = append(found, s.Name)
			}
		}
		if !slices.Equal(found, []string{service}) {
			t.Errorf("%s finds the Services %q, want %q", name, found, service)
		}
		// The names of jobs are those of the rules, by which no test of the rules can know the chart.
		if job := endpoint.RelabelConfigs[0]; job.TargetLabel != "job" || *job.Replacement != name {
			t.Errorf("%s has the job %+v", name, job)
		}
	}
}

// A release has alerts that none of a program is there for the programs that it has, and for no others.
func TestProgramsAreMissedWhereTheyAreWanted(t *testing.T) {
	absent := []string{"VicinityControllerDown", "VicinityProxyAbsent", "VicinityDNSDown"}
	for set, want := range map[string][]string{
		"routing.enabled=true":                                     absent[:1],
		"routing.enabled=false,proxy.enabled=true":                 absent[1:2],
		"routing.enabled=true,proxy.enabled=true,dns.enabled=true": absent,
	} {
		rule := object[*monitoringv1.PrometheusRule](t, rendered(t, set+",monitoring.rules.enabled=true"), "PrometheusRule vicinity")
		found := map[string]bool{}
		for _, group := range rule.Spec.Groups {
			for _, r := range group.Rules {
				found[r.Alert] = true
			}
		}
		missed := slices.DeleteFunc(slices.Clone(absent), func(name string) bool { return !found[name] })
		if !slices.Equal(missed, want) || !found["VicinityProxyDown"] || !found["VicinityDNSUnsynced"] {
			t.Errorf("with %s the alerts are %v", set, slices.Sorted(maps.Keys(found)))
		}
	}
}

// What people get is what is generated, with the address of their runbooks.
func TestRulesAndDashboardsAreThoseOfTheFiles(t *testing.T) {
	for base, want := range map[string]string{"": "docs/runbooks/", "https://runbooks.example.org/v/": "https://runbooks.example.org/v/"} {
		rule := object[*monitoringv1.PrometheusRule](t, rendered(t, "monitoring.rules.enabled=true,monitoring.rules.labels.release=kps,monitoring.rules.runbookBase="+base), "PrometheusRule vicinity")
		if rule.Labels["release"] != "kps" {
			t.Errorf("the rules have the labels %v", rule.Labels)
		}
		alerts := 0
		for _, group := range rule.Spec.Groups {
			for _, r := range group.Rules {
				if r.Alert == "" {
					continue
				}
				alerts++
				if url := r.Annotations["runbook_url"]; !strings.HasPrefix(url, want) || path.Dir(url)+"/" != strings.Replace(want, "//", "/", 1) || path.Ext(url) != ".md" {
					t.Errorf("the runbook of %s is at %q", r.Alert, url)
				}
			}
		}
		if alerts < 20 {
			t.Errorf("there are %d alerts", alerts)
		}
	}
	chart, err := charts.Vicinity()
	if err != nil {
		t.Fatal(err)
	}
	files, err := fs.Glob(chart, "monitoring/dashboards/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("the chart has the dashboards %q: %v", files, err)
	}
	r := rendered(t, "monitoring.dashboards.enabled=true,monitoring.dashboards.annotations.grafana_folder=Network")
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(path.Base(file), "vicinity-"), ".json")
		config := object[*corev1.ConfigMap](t, r, "ConfigMap vicinity-dashboard-"+name)
		if config.Labels["grafana_dashboard"] != "1" || config.Annotations["grafana_folder"] != "Network" {
			t.Errorf("%s has the labels %v and the annotations %v", config.Name, config.Labels, config.Annotations)
		}
		want, err := fs.ReadFile(chart, file)
		if err != nil {
			t.Fatal(err)
		}
		got := config.Data[path.Base(file)]
		if strings.TrimSpace(got) != strings.TrimSpace(string(want)) || !json.Valid([]byte(got)) {
			t.Errorf("%s has %q, which are not the file %s", config.Name, slices.Collect(maps.Keys(config.Data)), file)
		}
	}
}
