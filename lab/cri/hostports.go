package cri

import (
	_ "embed" // for the rules
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/fabric"
)

//go:embed hostports.nft
var hostPortRules string

type hostPort struct {
	protocol runtimeapi.Protocol
	node     netip.AddrPort
	pod      netip.AddrPort
}

var protocolNumbers = map[runtimeapi.Protocol]int{
	runtimeapi.Protocol_TCP: unix.IPPROTO_TCP, runtimeapi.Protocol_UDP: unix.IPPROTO_UDP, runtimeapi.Protocol_SCTP: unix.IPPROTO_SCTP,
}

// loopback is for the node's own processes. IPv6 has no route_localnet, so ::1 does not lead to pods.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// elements returns the elements of the rules for the port and for the masqueraded traffic.
func (p hostPort) elements() (port, returns string) {
	family, source := 4, p.pod.Addr()
	if source.Is6() {
		family = 6
	}
	if p.node.Addr() == loopback {
		source = loopback
	}
	port = fmt.Sprintf("inet vicinity-host-ports ports%d { %s . %d . %d : %s . %d }\n", family,
		p.node.Addr(), protocolNumbers[p.protocol], p.node.Port(), p.pod.Addr(), p.pod.Port())
	return port, fmt.Sprintf("inet vicinity-host-ports returns%d { %s . %s }\n", family, source, p.pod.Addr())
}

// hostPorts returns the host ports of a pod, given the addresses of the node and the pod.
func hostPorts(mappings []*runtimeapi.PortMapping, node, addrs []netip.Addr) []hostPort {
	var ports []hostPort
	for _, p := range mappings {
		if p.HostPort == 0 {
			continue
		}
		for i, addr := range addrs {
			at := []netip.Addr{node[i]}
			if addr.Is4() {
				at = append(at, loopback)
			}
			if only, err := netip.ParseAddr(p.HostIp); err == nil && !only.IsUnspecified() {
				at = slices.DeleteFunc(at, func(a netip.Addr) bool { return a != only })
			}
			for _, a := range at {
				ports = append(ports, hostPort{
					protocol: p.Protocol,
					node:     netip.AddrPortFrom(a, uint16(p.HostPort)),
					pod:      netip.AddrPortFrom(addr, uint16(p.ContainerPort)),
				})
			}
		}
	}
	return ports
}

func (n *node) hostPorts(s *sandbox) []hostPort {
	return hostPorts(s.Config.PortMappings, n.shape.NodeAddrs(n.Node), s.Addresses)
}

// openPorts forwards host ports to the pod. It fails if another pod has one.
func (n *node) openPorts(s *sandbox) error {
	ports, changes := n.hostPorts(s), ""
	if len(ports) == 0 {
		return nil
	}
	for _, p := range ports {
		port, returns := p.elements()
		changes += "create element " + port + "add element " + returns
	}
	// Recorded before the change: a runtime that ends in between must find them.
	s.PortsOpen = true
	if err := s.save(); err != nil {
		return err
	}
	err := fabric.InNamespace(n.namespace(), func() error {
		if err := changeRules(hostPortRules + changes); err != nil {
			s.PortsOpen = false
			return err
		}
		// This lets the node's traffic for 127.0.0.1 leave it.
		return os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0)
	})
	if err != nil {
		return fmt.Errorf("opening the pod's ports on node %s: %w", n.Name, err)
	}
	return nil
}

func (n *node) closePorts(s *sandbox) error {
	if !s.PortsOpen {
		return nil
	}
	changes := hostPortRules
	for _, p := range n.hostPorts(s) {
		// Deleting a missing element would be an error.
		port, returns := p.elements()
		changes += "add element " + port + "delete element " + port + "add element " + returns + "delete element " + returns
	}
	err := fabric.InNamespace(n.namespace(), func() error { return changeRules(changes) })
	// The rules of a removed node were removed with its namespace.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("closing the pod's ports on node %s: %w", n.Name, err)
	}
	return nil
}

// changeRules changes the rules of this thread's network namespace with nft, in one transaction.
func changeRules(changes string) error {
	nft := exec.Command("nft", "-f", "-")
	nft.Stdin = strings.NewReader(changes)
	if output, err := nft.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %s", err, output)
	}
	return nil
}
