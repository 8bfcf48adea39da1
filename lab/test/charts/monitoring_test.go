package charts_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	allPrograms = "proxy.enabled=true,dns.enabled=true"
	monitored   = "monitoring.serviceMonitors.enabled=true,monitoring.rules.enabled=true,monitoring.dashboards.enabled=true"
)

// A monitor finds one Service by its labels, and the Service's metrics port.
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
		// The rules select jobs by these names, and the tests of the rules do not know the chart.
		if job := endpoint.RelabelConfigs[0]; job.TargetLabel != "job" || *job.Replacement != name {
			t.Errorf("%s has the job %+v", name, job)
		}
	}
}

// A release has an alert about a missing program for each program that it installs, and for no
// other.
func TestAlertsAboutMissingPrograms(t *testing.T) {
	absent := []string{"VicinityControllerDown", "VicinityProxyAbsent", "VicinityDNSDown"}
	for set, want := range map[string][]string{
		"routing.enabled=true":                                     absent[:1],
		"routing.enabled=false,proxy.enabled=true":                 absent[1:2],
		"profile=disruption":                                       absent[:1],
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

// Alerts have the address of their runbooks.
func TestRunbooksOfAlerts(t *testing.T) {
	for base, want := range map[string]string{"": "docs/runbooks/", "https://runbooks.example.org/v/": "https://runbooks.example.org/v/"} {
		rule := object[*monitoringv1.PrometheusRule](t, rendered(t, "monitoring.rules.enabled=true,monitoring.rules.runbookBase="+base), "PrometheusRule vicinity")
		alerts := 0
		for _, group := range rule.Spec.Groups {
			for _, r := range group.Rules {
				if r.Alert == "" {
					continue
				}
				alerts++
				if url := r.Annotations["runbook_url"]; !strings.HasPrefix(url, want) || !strings.HasSuffix(url, ".md") {
					t.Errorf("the runbook of %s is at %q", r.Alert, url)
				}
			}
		}
		if alerts < 20 {
			t.Errorf("found %d alerts", alerts)
		}
	}
}
