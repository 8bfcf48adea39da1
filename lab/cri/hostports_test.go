package cri

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestHostPorts(t *testing.T) {
	node := []netip.Addr{netip.MustParseAddr("172.30.1.2"), netip.MustParseAddr("fd00:172::2")}
	addrs := []netip.Addr{netip.MustParseAddr("10.128.1.2"), netip.MustParseAddr("fd00:10::2")}
	mappings := []*runtimeapi.PortMapping{
		{ContainerPort: 80},
		{ContainerPort: 81, HostPort: 8081, Protocol: runtimeapi.Protocol_TCP},
		{ContainerPort: 53, HostPort: 5353, Protocol: runtimeapi.Protocol_UDP, HostIp: "172.30.1.2"},
		{ContainerPort: 54, HostPort: 5454, Protocol: runtimeapi.Protocol_UDP, HostIp: "127.0.0.1"},
		{ContainerPort: 55, HostPort: 5555, Protocol: runtimeapi.Protocol_TCP, HostIp: "::"},
	}
	var got []string
	for _, p := range hostPorts(mappings, node, addrs) {
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
}
