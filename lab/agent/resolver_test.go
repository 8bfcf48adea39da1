package agent

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestResolver(t *testing.T) {
	machine := parseResolver("# a comment\nnameserver 192.0.2.1\nnameserver 192.0.2.2\ndomain old\nsearch home work\noptions timeout:3 rotate\n")
	cluster := []string{"10.96.0.10", "fd00::a"}
	five := "5"
	own := &corev1.PodDNSConfig{
		Nameservers: []string{"198.51.100.1"},
		Searches:    []string{"home", "shop"},
		Options:     []corev1.PodDNSConfigOption{{Name: "timeout", Value: &five}, {Name: "edns0"}},
	}
	const (
		first = "nameserver 10.96.0.10\nnameserver fd00::a\n"
		names = "search default.svc.cluster.local svc.cluster.local cluster.local home work"
	)
	for _, c := range []struct {
		name    string
		spec    corev1.PodSpec
		cluster []string
		want    string
	}{
		{"the cluster's", corev1.PodSpec{DNSPolicy: "ClusterFirst"}, cluster, first + names + "\noptions ndots:5\n"},
		{"no server yet", corev1.PodSpec{DNSPolicy: "ClusterFirst"}, nil, ""},
		{"the machine's", corev1.PodSpec{DNSPolicy: "Default"}, cluster, ""},
		{"of the host's network", corev1.PodSpec{DNSPolicy: "ClusterFirst", HostNetwork: true}, cluster, ""},
		{"of the host's network all the same", corev1.PodSpec{DNSPolicy: "ClusterFirstWithHostNet", HostNetwork: true}, cluster, first + names + "\noptions ndots:5\n"},
		{"nothing but its own", corev1.PodSpec{DNSPolicy: "None", DNSConfig: own}, cluster, "nameserver 198.51.100.1\nsearch home shop\noptions timeout:5 edns0\n"},
		{
			"its own besides the machine's",
			corev1.PodSpec{DNSPolicy: "Default", DNSConfig: own},
			cluster,
			"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 198.51.100.1\nsearch home work shop\noptions rotate timeout:5 edns0\n",
		},
		{
			"its own besides the cluster's",
			corev1.PodSpec{DNSPolicy: "ClusterFirst", DNSConfig: own},
			cluster,
			first + "nameserver 198.51.100.1\n" + names + " shop\noptions ndots:5 timeout:5 edns0\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			pod := testPod("Always", "a")
			pod.Spec.DNSPolicy, pod.Spec.HostNetwork, pod.Spec.DNSConfig = c.spec.DNSPolicy, c.spec.HostNetwork, c.spec.DNSConfig
			r, own := podResolver(pod, c.cluster, machine)
			if own != (c.want != "") || own && r.String() != c.want {
				t.Errorf("%v, got\n%swant\n%s", own, r, c.want)
			}
		})
	}
}

// The C library asks three servers at most.
func TestResolverHasNoMoreServersThanAreAsked(t *testing.T) {
	pod := testPod("Always", "a")
	pod.Spec.DNSPolicy = corev1.DNSClusterFirst
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2"}}
	if r, _ := podResolver(pod, []string{"10.96.0.10", "fd00::a"}, resolver{}); len(r.nameservers) != 3 || r.nameservers[0] != "10.96.0.10" {
		t.Errorf("got %q", r.nameservers)
	}
}
