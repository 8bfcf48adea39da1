package agent

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestHostPorts(t *testing.T) {
	node := []netip.Addr{netip.MustParseAddr("172.30.1.2"), netip.MustParseAddr("fd00:172::2")}
	addrs := []netip.Addr{netip.MustParseAddr("10.128.1.2"), netip.MustParseAddr("fd00:10::2")}
	pod := testPod("Always", "a", "b")
	pod.Spec.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 80}, {ContainerPort: 81, HostPort: 8081, Protocol: "TCP"}}
	pod.Spec.Containers[1].Ports = []corev1.ContainerPort{
		{ContainerPort: 53, HostPort: 5353, Protocol: "UDP", HostIP: "172.30.1.2"},
		{ContainerPort: 54, HostPort: 5454, Protocol: "UDP", HostIP: "127.0.0.1"},
		{ContainerPort: 55, HostPort: 5555, Protocol: "TCP", HostIP: "::"},
	}
	var got []string
	for _, p := range hostPorts(pod, node, addrs) {
		got = append(got, fmt.Sprintf("%s to %s", p, p.pod))
	}
	want := []string{
		"TCP 172.30.1.2:8081 to 10.128.1.2:81", "TCP [fd00:172::2]:8081 to [fd00:10::2]:81",
		"UDP 172.30.1.2:5353 to 10.128.1.2:53",
		"TCP 172.30.1.2:5555 to 10.128.1.2:55", "TCP [fd00:172::2]:5555 to [fd00:10::2]:55",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	pod.Spec.HostNetwork = true
	if got := hostPorts(pod, node, node); len(got) > 0 {
		t.Errorf("in the host's network there are %v", got)
	}
}
