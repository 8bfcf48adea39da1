package fabric

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Connection is an entry of a node's connection tracking, with the endpoint that a proxy's
// rules chose for it.
type Connection struct {
	Protocol string `json:"protocol"`
	// State is the state of a TCP connection, as the kernel names it.
	State string `json:"state,omitempty"`
	// From and To are as the client sees them: To may be a cluster IP.
	From netip.AddrPort `json:"from"`
	To   netip.AddrPort `json:"to"`
	// Endpoint is the address that answers.
	Endpoint netip.AddrPort `json:"endpoint"`
	// TimeoutSeconds is when the entry expires.
	TimeoutSeconds uint32 `json:"timeoutSeconds"`
}

var tcpStates = []string{
	"NONE", "SYN_SENT", "SYN_RECV", "ESTABLISHED", "FIN_WAIT", "CLOSE_WAIT", "LAST_ACK", "TIME_WAIT", "CLOSE", "SYN_SENT2",
}

// Connections lists the tracked connections of a node, sorted by the clients' addresses.
// The list is not atomic.
func (f *Fabric) Connections(nodeName string) ([]Connection, error) {
	node, err := f.node(nodeName)
	if err != nil {
		return nil, err
	}
	var connections []Connection
	err = InNamespace(f.nodeNamespace(node), func() error {
		for _, family := range []netlink.InetFamily{unix.AF_INET, unix.AF_INET6} {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
			// An interrupted dump may lack what changed in the meantime, as any dump may.
			if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
				return fmt.Errorf("reading the tracked connections of node %s: %w", nodeName, err)
			}
			for _, flow := range flows {
				connections = append(connections, connectionOf(flow))
			}
		}
		return nil
	})
	slices.SortFunc(connections, func(a, b Connection) int {
		return cmp.Or(a.From.Compare(b.From), a.To.Compare(b.To), cmp.Compare(a.Protocol, b.Protocol))
	})
	return connections, err
}

func connectionOf(flow *netlink.ConntrackFlow) Connection {
	c := Connection{
		Protocol:       protocolName(flow.Forward.Protocol),
		From:           addrPort(flow.Forward.SrcIP, flow.Forward.SrcPort),
		To:             addrPort(flow.Forward.DstIP, flow.Forward.DstPort),
		Endpoint:       addrPort(flow.Reverse.SrcIP, flow.Reverse.SrcPort),
		TimeoutSeconds: flow.TimeOut,
	}
	if tcp, ok := flow.ProtoInfo.(*netlink.ProtoInfoTCP); ok && int(tcp.State) < len(tcpStates) {
		c.State = tcpStates[tcp.State]
	}
	return c
}

func protocolName(number uint8) string {
	switch number {
	case unix.IPPROTO_TCP:
		return "TCP"
	case unix.IPPROTO_UDP:
		return "UDP"
	case unix.IPPROTO_SCTP:
		return "SCTP"
	case unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6:
		return "ICMP"
	}
	return fmt.Sprint(number)
}

func addrPort(ip []byte, port uint16) netip.AddrPort {
	address, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(address.Unmap(), port)
}
