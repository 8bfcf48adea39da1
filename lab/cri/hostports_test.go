package cri

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// The ports of a node lead to its pods from the node, by either of its addresses, and from the
// pod itself.
func TestHostPortsLeadToPods(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces, which needs root")
	}
	s, err := shape.FromOptions(shape.Options{Name: fmt.Sprintf("ports%d", os.Getpid()), Zones: []string{"a"}, NodesPerZone: []int{1}, Proxy: "none"})
	if err != nil {
		t.Fatal(err)
	}
	network, err := fabric.Up(s)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := network.Down(); err != nil {
			t.Error(err)
		}
	})
	n := &node{Node: s.Nodes()[0], shape: s}
	pod := podOnPorts("pod", s.PodAddrs(n.Node, 1),
		&runtimeapi.PortMapping{ContainerPort: 80, HostPort: 8080}, &runtimeapi.PortMapping{ContainerPort: 80, HostPort: 9090, HostIp: "127.0.0.1"})
	if _, err := network.AddPod(n.Name, "pod", pod.Addresses); err != nil {
		t.Fatal(err)
	}
	if err := n.openPorts(pod); err != nil {
		t.Fatal(err)
	}
	for _, taken := range []int32{8080, 9090} {
		second := podOnPorts("second", s.PodAddrs(n.Node, 2), &runtimeapi.PortMapping{ContainerPort: 80, HostPort: taken, HostIp: "127.0.0.1"})
		want := fmt.Sprintf("TCP 127.0.0.1:%d is another pod's", taken)
		if err := n.openPorts(second); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("a port of two pods: %v, want %q", err, want)
		}
	}
	inPod := shape.PodNamespace(s.Name, "pod")
	listener, err := fabric.Listen(inPod, "tcp", ":80")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	addrs := s.NodeAddrs(n.Node)
	for _, try := range []struct {
		from, to string
		refused  bool
	}{
		{n.namespace(), netip.AddrPortFrom(addrs[0], 8080).String(), false},
		{n.namespace(), netip.AddrPortFrom(addrs[1], 8080).String(), false},
		{n.namespace(), "127.0.0.1:8080", false},
		{n.namespace(), "127.0.0.1:9090", false},
		{n.namespace(), netip.AddrPortFrom(addrs[0], 9090).String(), true},
		{inPod, netip.AddrPortFrom(addrs[0], 8080).String(), false},
		{inPod, netip.AddrPortFrom(addrs[0], 9090).String(), true},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		conn, err := fabric.Dial(ctx, try.from, "tcp", try.to)
		cancel()
		if err == nil {
			_ = conn.Close()
		}
		if (err != nil) != try.refused {
			t.Errorf("from %s to %s: %v", try.from, try.to, err)
		}
	}
	if err := n.closePorts(pod); err != nil {
		t.Fatal(err)
	}
	if conn, err := fabric.Dial(t.Context(), n.namespace(), "tcp", "127.0.0.1:8080"); err == nil {
		_ = conn.Close()
		t.Error("a port that was closed leads to the pod")
	}
}

// podOnPorts is a pod that has ports of its node.
func podOnPorts(uid string, addrs []netip.Addr, ports ...*runtimeapi.PortMapping) *sandbox {
	return &sandbox{sandboxRecord: sandboxRecord{
		Addresses: addrs,
		Config:    &runtimeapi.PodSandboxConfig{Metadata: &runtimeapi.PodSandboxMetadata{Uid: uid}, PortMappings: ports},
	}}
}

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
		"TCP 172.30.1.2:8081 to 10.128.1.2:81", "TCP 127.0.0.1:8081 to 10.128.1.2:81", "TCP [fd00:172::2]:8081 to [fd00:10::2]:81",
		"UDP 172.30.1.2:5353 to 10.128.1.2:53",
		"UDP 127.0.0.1:5454 to 10.128.1.2:54",
		"TCP 172.30.1.2:5555 to 10.128.1.2:55", "TCP 127.0.0.1:5555 to 10.128.1.2:55", "TCP [fd00:172::2]:5555 to [fd00:10::2]:55",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
