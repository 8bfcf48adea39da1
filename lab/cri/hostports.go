package cri

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"vicinity.dev/vicinity/lab/fabric"
)

// Ports of a node that lead to its pods are rules in the node's namespace, one for each
// port and family in either chain:
//
//	table inet vicinity-host-ports {
//		chain prerouting {
//			type nat hook prerouting priority dstnat
//			ip daddr NODE tcp dport PORT dnat ip to POD:PORT comment "UID TCP NODE:PORT"
//		}
//		chain output {
//			type nat hook output priority dstnat
//			...
//		}
//		chain postrouting {
//			type nat hook postrouting priority srcnat
//			ip saddr POD ip daddr POD masquerade comment "UID"
//		}
//	}
//
// The last is for a pod that reaches itself by the node. A port of 127.0.0.1 has a rule in the
// output chain only, and its traffic is masqueraded too. The kernel alone knows which
// rules there are: runtimes come and go, and traffic goes on.

var hostPortTable = nftables.Table{Family: nftables.TableFamilyINet, Name: "vicinity-host-ports"}

// hostPort is a port of a node that leads to a port of a pod.
type hostPort struct {
	protocol runtimeapi.Protocol
	node     netip.AddrPort
	pod      netip.AddrPort
}

// String identifies the port of the node: two pods must not share it.
func (p hostPort) String() string { return fmt.Sprintf("%s %s", p.protocol, p.node) }

var protocolNumbers = map[runtimeapi.Protocol]byte{
	runtimeapi.Protocol_TCP: unix.IPPROTO_TCP, runtimeapi.Protocol_UDP: unix.IPPROTO_UDP, runtimeapi.Protocol_SCTP: unix.IPPROTO_SCTP,
}

// loopback is the node for its own processes. IPv6 has nothing like route_localnet, so ::1 does
// not lead to pods.
var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// hostPorts returns the node's ports that a pod asks for, given the addresses of both.
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

func (n *node) openPorts(s *sandbox) error {
	ports := hostPorts(s.Config.PortMappings, n.shape.NodeAddrs(n.Node), s.Addresses)
	if len(ports) == 0 {
		return nil
	}
	err := n.inHostPorts(func(conn *nftables.Conn, chains []*nftables.Chain) error {
		// The output chain: that of packets from outside lacks the ports of 127.0.0.1.
		rules, err := conn.GetRules(chains[1].Table, chains[1])
		if err != nil {
			return err
		}
		for _, p := range ports {
			for _, rule := range rules {
				if comment, _ := userdata.GetString(rule.UserData, userdata.TypeComment); strings.HasSuffix(comment, " "+p.String()) {
					return fmt.Errorf("%s is another pod's", p)
				}
			}
			redirecting := chains[:2]
			if p.node.Addr() == loopback {
				redirecting = chains[1:2]
			}
			for _, chain := range redirecting {
				addHostPort(conn, chain, fmt.Sprintf("%s %s", s.uid(), p), p.exprs())
			}
			addHostPort(conn, chains[2], s.uid(), p.exprsOfReturn())
		}
		return routeLoopback(ports)
	})
	if err != nil {
		return fmt.Errorf("opening the pod's ports on node %s: %w", n.Name, err)
	}
	return nil
}

// routeLoopback lets the node's traffic for 127.0.0.1 leave it, if ports need that. It is called
// in the node's namespace.
func routeLoopback(ports []hostPort) error {
	if !slices.ContainsFunc(ports, func(p hostPort) bool { return p.node.Addr() == loopback }) {
		return nil
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/conf/all/route_localnet", []byte("1"), 0); err != nil {
		return fmt.Errorf("routing traffic for %s to pods: %w", loopback, err)
	}
	return nil
}

func addHostPort(conn *nftables.Conn, chain *nftables.Chain, comment string, exprs []expr.Any) {
	conn.AddRule(&nftables.Rule{
		Table: chain.Table, Chain: chain, Exprs: exprs,
		UserData: userdata.AppendString(nil, userdata.TypeComment, comment),
	})
}

func (n *node) closePorts(s *sandbox) error {
	if len(s.Config.PortMappings) == 0 {
		return nil
	}
	err := n.inHostPorts(func(conn *nftables.Conn, chains []*nftables.Chain) error {
		for _, chain := range chains {
			rules, err := conn.GetRules(chain.Table, chain)
			if err != nil {
				return err
			}
			for _, rule := range rules {
				comment, _ := userdata.GetString(rule.UserData, userdata.TypeComment)
				if uid, _, _ := strings.Cut(comment, " "); uid != s.uid() {
					continue
				}
				if err := conn.DelRule(rule); err != nil {
					return err
				}
			}
		}
		return nil
	})
	// The rules of a removed node went with its namespace.
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("closing the pod's ports on node %s: %w", n.Name, err)
	}
	return nil
}

// inHostPorts changes the rules in the node's namespace in one transaction. The chains are
// prerouting, output and postrouting.
func (n *node) inHostPorts(change func(*nftables.Conn, []*nftables.Chain) error) error {
	n.ports.Lock()
	defer n.ports.Unlock()
	return fabric.InNamespace(n.namespace(), func() error {
		conn, err := nftables.New(nftables.AsLasting())
		if err != nil {
			return err
		}
		defer func() { _ = conn.CloseLasting() }()
		table := hostPortTable
		conn.AddTable(&table)
		var chains []*nftables.Chain
		for _, c := range []nftables.Chain{
			{Name: "prerouting", Hooknum: nftables.ChainHookPrerouting, Priority: nftables.ChainPriorityNATDest},
			{Name: "output", Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest},
			{Name: "postrouting", Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource},
		} {
			c.Table, c.Type = &table, nftables.ChainTypeNAT
			chains = append(chains, conn.AddChain(&c))
		}
		// Rules can be read only once the chains exist.
		if err := conn.Flush(); err != nil {
			return err
		}
		if err := change(conn, chains); err != nil {
			return err
		}
		return conn.Flush()
	})
}

// exprs redirects traffic for the node's port to the pod's.
func (p hostPort) exprs() []expr.Any {
	family := uint32(unix.NFPROTO_IPV4)
	if p.node.Addr().Is6() {
		family = unix.NFPROTO_IPV6
	}
	return slices.Concat(
		to(p.node.Addr()),
		[]expr.Any{
			&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: 1},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{protocolNumbers[p.protocol]}},
			&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(p.node.Port())},
			&expr.Immediate{Register: 1, Data: p.pod.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(p.pod.Port())},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1, RegProtoMin: 2},
		})
}

// exprsOfReturn masquerades the traffic of a pod that reaches itself through the node, or of the
// node's own address 127.0.0.1: a pod drops packets that come from itself or from a loopback.
func (p hostPort) exprsOfReturn() []expr.Any {
	source := p.pod.Addr()
	if p.node.Addr() == loopback {
		source = loopback
	}
	return slices.Concat(from(source), to(p.pod.Addr()), []expr.Any{&expr.Masq{}})
}

// from and to match packets by source and destination address.
func from(addr netip.Addr) []expr.Any {
	if addr.Is6() {
		return matchAddr(addr, 8)
	}
	return matchAddr(addr, 12)
}

func to(addr netip.Addr) []expr.Any {
	if addr.Is6() {
		return matchAddr(addr, 24)
	}
	return matchAddr(addr, 16)
}

func matchAddr(addr netip.Addr, offset uint32) []expr.Any {
	family := byte(unix.NFPROTO_IPV4)
	if addr.Is6() {
		family = unix.NFPROTO_IPV6
	}
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: []byte{family}},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: uint32(addr.BitLen() / 8)},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: addr.AsSlice()},
	}
}
