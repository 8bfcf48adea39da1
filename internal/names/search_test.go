package names

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestSearch(t *testing.T) {
	const usual = "web.shop.svc.cluster.local. web.svc.cluster.local. web.cluster.local. web."
	dots := func(value string) []corev1.PodDNSConfigOption {
		return []corev1.PodDNSConfigOption{{Name: "timeout"}, {Name: "ndots", Value: &value}}
	}
	for _, tt := range []struct {
		name    string
		spec    corev1.PodSpec
		config  corev1.PodDNSConfig
		asks    string
		want    string
		unknown bool
	}{
		{name: "ClusterFirst", want: usual},
		{name: "ClusterFirst on the host network", spec: corev1.PodSpec{HostNetwork: true}, want: usual, unknown: true},
		{name: "ClusterFirstWithHostNet", spec: corev1.PodSpec{HostNetwork: true, DNSPolicy: corev1.DNSClusterFirstWithHostNet}, want: usual},
		{name: "Default", spec: corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, config: corev1.PodDNSConfig{Searches: []string{"x.test"}}, want: usual, unknown: true},
		{name: "None without domains", spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone}, want: usual, unknown: true},
		{name: "None", spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone}, config: corev1.PodDNSConfig{Searches: []string{"x.test", "y.test.", "."}}, want: "web.x.test. web.y.test. web."},
		{name: "None with a dot", spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone}, config: corev1.PodDNSConfig{Searches: []string{"x.test"}}, asks: "web.shop", want: "web.shop. web.shop.x.test."},
		{name: "None with ndots", spec: corev1.PodSpec{DNSPolicy: corev1.DNSNone}, config: corev1.PodDNSConfig{Searches: []string{"x.test"}, Options: dots("2")}, asks: "web.shop", want: "web.shop.x.test. web.shop."},
		{name: "more domains", config: corev1.PodDNSConfig{Searches: []string{"svc.cluster.local", "x.test"}}, want: "web.shop.svc.cluster.local. web.svc.cluster.local. web.cluster.local. web.x.test. web."},
		{name: "fewer dots", config: corev1.PodDNSConfig{Options: dots("0")}, want: "web. web.shop.svc.cluster.local. web.svc.cluster.local. web.cluster.local."},
		{name: "ndots that is no number", config: corev1.PodDNSConfig{Options: dots("many")}, want: usual},
		{name: "five dots", asks: "a.b.c.d.e.f", want: "a.b.c.d.e.f. a.b.c.d.e.f.shop.svc.cluster.local. a.b.c.d.e.f.svc.cluster.local. a.b.c.d.e.f.cluster.local."},
		{name: "four dots", asks: "a.b.c.d.e", want: "a.b.c.d.e.shop.svc.cluster.local. a.b.c.d.e.svc.cluster.local. a.b.c.d.e.cluster.local. a.b.c.d.e."},
		{name: "a name of the zone", asks: "web.shop.svc.Cluster.Local", want: "web.shop.svc.Cluster.Local."},
		{name: "a dot at the end", asks: "web.", want: "web."},
	} {
		pod := &corev1.Pod{Spec: tt.spec}
		pod.Namespace, pod.Spec.DNSConfig = "shop", &tt.config
		if pod.Spec.DNSPolicy == "" {
			pod.Spec.DNSPolicy = corev1.DNSClusterFirst
		}
		if tt.asks == "" {
			tt.asks = "web"
		}
		list, known := SearchOf(pod, "cluster.local.")
		if got := strings.Join(list.Names(tt.asks, "cluster.local."), " "); got != tt.want || known == tt.unknown {
			t.Errorf("%s: known is %t, and the names are\n%s, want\n%s", tt.name, known, got, tt.want)
		}
	}
}
