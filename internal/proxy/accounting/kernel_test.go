package accounting

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/namespacetest"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// namespace is a network namespace with rules that send connections to fronts to
// endpoints, all of which are in it. Its connection tracking is its own.
type namespace struct {
	*namespacetest.Namespace
	t testing.TB
}

// The addresses of the namespace: fronts are nowhere, endpoints are on lo.
var (
	front4, front6   = netip.MustParseAddr("198.51.100.1"), netip.MustParseAddr("2001:db8:1::1")
	target4, target6 = netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8:2::1")
)

// Ports of all addresses of either kind.
const (
	frontPort  = 80
	targetPort = 8080
)

// newNamespace makes one for the time of a test.
func newNamespace(t testing.TB) *namespace {
	t.Helper()
	n := &namespace{namespacetest.New(t), t}
	n.must(addresses)
	n.translate(front4, target4)
	n.translate(front6, target6)
	return n
}

// addresses sets up the addresses and routes of the namespace of this thread.
func addresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, address := range []netip.Addr{front4, front6} {
		to := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: to}); err != nil {
			return err
		}
	}
	for _, address := range []netip.Addr{target4, target6} {
		own := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(address.BitLen(), address.BitLen())}
		if err := netlink.AddrAdd(lo, &netlink.Addr{IPNet: own, Flags: unix.IFA_F_NODAD}); err != nil {
			return err
		}
		if err := delivered(address); err != nil {
			return err
		}
	}
	return nil
}

// delivered waits until what comes for an address is delivered here: on a busy machine the
// kernel takes a while to see to that for an address of IPv6.
func delivered(address netip.Addr) error {
	for until := time.Now().Add(deadline); ; time.Sleep(time.Millisecond) {
		routes, err := netlink.RouteGet(address.AsSlice())
		if err == nil && len(routes) == 1 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("routes to %s are %v: %w", address, routes, err)
		}
	}
}

// must calls a function in the namespace that must not fail.
func (n *namespace) must(f func() error) {
	n.t.Helper()
	n.Must(n.t, f)
}

// translate sends TCP and UDP to a front to a target.
func (n *namespace) translate(front, target netip.Addr) {
	n.t.Helper()
	family, source, length := nftables.TableFamilyIPv4, uint32(16), uint32(4)
	if front.Is6() {
		family, source, length = nftables.TableFamilyIPv6, 24, 16
	}
	conn, err := nftables.New(nftables.WithNetNSFd(n.Fd()))
	if err != nil {
		n.t.Fatal(err)
	}
	table := conn.AddTable(&nftables.Table{Family: family, Name: "test"})
	chain := conn.AddChain(&nftables.Chain{
		Name: "output", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookOutput, Priority: nftables.ChainPriorityNATDest,
	})
	conn.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: source, Len: length},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: front.AsSlice()},
		&expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
		&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(frontPort)},
		&expr.Immediate{Register: 1, Data: target.AsSlice()},
		&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(targetPort)},
		&expr.NAT{Type: expr.NATTypeDestNAT, Family: uint32(family), RegAddrMin: 1, RegProtoMin: 2},
	}})
	if err := conn.Flush(); err != nil {
		n.t.Fatal(err)
	}
}

// set writes a switch of connection tracking.
func (n *namespace) set(name, value string) {
	n.t.Helper()
	n.must(func() error { return os.WriteFile(switchFile(DefaultSwitches, name), []byte(value), 0) })
}

// serve echoes what comes to the endpoint in TCP and UDP.
func (n *namespace) serve(target netip.Addr) {
	n.t.Helper()
	at := netip.AddrPortFrom(target, targetPort)
	var listener net.Listener
	var packets net.PacketConn
	n.must(func() (err error) {
		if listener, err = net.Listen("tcp", at.String()); err != nil {
			return err
		}
		packets, err = net.ListenPacket("udp", at.String())
		return err
	})
	n.t.Cleanup(func() {
		_ = listener.Close()
		_ = packets.Close()
	})
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	go func() {
		buffer := make([]byte, 64<<10)
		for {
			count, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo(buffer[:count], from)
		}
	}()
}

// dial connects to a port of an address.
func (n *namespace) dial(network string, address netip.Addr, port uint16) net.Conn {
	n.t.Helper()
	var conn net.Conn
	n.must(func() (err error) {
		conn, err = net.DialTimeout(network, netip.AddrPortFrom(address, port).String(), deadline)
		return err
	})
	if err := conn.SetDeadline(time.Now().Add(deadline)); err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

// echo sends bytes and waits until they are back.
func (n *namespace) echo(conn net.Conn, bytes int) {
	n.t.Helper()
	if _, err := conn.Write(make([]byte, bytes)); err != nil {
		n.t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, bytes)); err != nil {
		n.t.Fatal(err)
	}
}

// flush ends all connections for the kernel, which reports each.
func (n *namespace) flush() {
	n.t.Helper()
	n.must(func() error { return netlink.ConntrackTableFlush(netlink.ConntrackTable) })
}

// tracked is what another reader says of the connections to a front.
func (n *namespace) tracked(front netip.Addr) []*netlink.ConntrackFlow {
	n.t.Helper()
	family := netlink.InetFamily(unix.AF_INET)
	if front.Is6() {
		family = unix.AF_INET6
	}
	var to []*netlink.ConntrackFlow
	n.must(func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, family)
		for _, flow := range flows {
			if address, _ := netip.AddrFromSlice(flow.Forward.DstIP); address.Unmap() == front {
				to = append(to, flow)
			}
		}
		return err
	})
	return to
}

// elsewhere is the connection tracking of a namespace.
type elsewhere struct {
	conntrack
	*namespace
}

func (n *namespace) tracking() tracking { return elsewhere{conntrack{DefaultSwitches}, n} }

func (e elsewhere) listen() (r reports, err error) {
	err = e.Do(func() (err error) {
		r, err = e.conntrack.listen()
		return err
	})
	return r, err
}

func (e elsewhere) read(ctx context.Context, use func([]byte)) (used time.Duration, err error) {
	err = e.Do(func() (err error) {
		used, err = e.conntrack.read(ctx, use)
		return err
	})
	return used, err
}

func (e elsewhere) switches() (bytes, ends bool, err error) {
	err = e.Do(func() (err error) {
		bytes, ends, err = e.conntrack.switches()
		return err
	})
	return bytes, ends, err
}

func (e elsewhere) countBytes() error { return e.Do(e.conntrack.countBytes) }

// deadline is for what takes no time worth mentioning.
const deadline = 30 * time.Second

// resolve knows the fronts of the namespace.
func resolve(front ruleset.Front, target netip.Addr) (Flow, bool) {
	switch {
	case front.Port != frontPort:
	case front.Address == front4 && target == target4:
		return Flow{Namespace: "shop", Service: "four", DestinationZone: "zone-b"}, true
	case front.Address == front6 && target == target6:
		return Flow{Namespace: "shop", Service: "six", DestinationZone: "zone-a"}, true
	}
	return Flow{}, false
}
