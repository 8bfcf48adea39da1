package kernel_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
)

// world is a node, endpoints that it reaches by one link, and a client that it reaches by
// another, each in a network namespace.
type world struct {
	addresses
	node, endpoints, client *namespace
	conn                    *kernel.Conn
}

// addresses has the addresses of a world.
type addresses struct {
	family ruleset.Family
	// pods has the addresses of pods: the endpoints, and one of the client.
	pods netip.Prefix
	// inner and outer are the node's addresses on its links, pod and stranger the client's.
	inner, outer, pod, stranger netip.Addr
	// strangers are many more addresses of the client.
	strangers      netip.Prefix
	bits, wideBits int
}

// worlds has the addresses of each family.
var worlds = []addresses{
	{
		family: ruleset.IPv4, strangers: netip.MustParsePrefix("198.18.0.0/15"), pods: netip.MustParsePrefix("10.128.0.0/9"),
		inner: netip.MustParseAddr("10.128.255.254"), outer: netip.MustParseAddr("192.0.2.254"),
		pod: netip.MustParseAddr("10.129.0.1"), stranger: netip.MustParseAddr("192.0.2.1"),
		bits: 16, wideBits: 24,
	},
	{
		family: ruleset.IPv6, strangers: netip.MustParsePrefix("2001:db8:1::/64"), pods: netip.MustParsePrefix("fd00:128::/33"),
		inner: netip.MustParseAddr("fd00:128::ffff"), outer: netip.MustParseAddr("2001:db8::ffff"),
		pod: netip.MustParseAddr("fd00:128:1::1"), stranger: netip.MustParseAddr("2001:db8::1"),
		bits: 64, wideBits: 64,
	},
}

// listeners is the number of addresses in the endpoints' namespace.
const listeners = 8

// endpoint is the n-th endpoint's address, from 1 on.
func (a addresses) endpoint(n int) netip.AddrPort {
	address := netip.MustParseAddr(fmt.Sprintf("10.128.0.%d", n))
	if a.family == ruleset.IPv6 {
		address = netip.MustParseAddr(fmt.Sprintf("fd00:128::%x", n))
	}
	return netip.AddrPortFrom(address, 8080)
}

// service is the n-th address of a Service.
func (a addresses) service(n int) netip.Addr {
	if a.family == ruleset.IPv6 {
		return netip.MustParseAddr(fmt.Sprintf("fd00:96::%x", n))
	}
	return netip.MustParseAddr(fmt.Sprintf("10.96.0.%d", n))
}

func (a addresses) config() ruleset.Config {
	return ruleset.Config{Family: a.family, ClusterCIDRs: []netip.Prefix{a.pods}}
}

// newWorld makes a world without rules.
func newWorld(t testing.TB, a addresses) *world {
	t.Helper()
	w := &world{addresses: a, node: newNamespace(t), endpoints: newNamespace(t), client: newNamespace(t)}
	for _, n := range []*namespace{w.node, w.endpoints, w.client} {
		// No other host has the addresses of links. Until the kernel has found that out, which takes
		// two seconds, it asks for no neighbour from them.
		n.Must(t, func() error { return setSysctl("net/ipv6/conf/default/accept_dad", "0") })
	}
	w.node.Must(t, func() error {
		return errors.Join(setSysctl("net/ipv4/ip_forward", "1"), setSysctl("net/ipv6/conf/all/forwarding", "1"))
	})
	link := func(other *namespace, name string, here []netip.Prefix, there ...netip.Prefix) {
		t.Helper()
		w.node.Must(t, func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: "eth0", PeerNamespace: netlink.NsFd(other.Fd())})
		})
		setUp(t, other, "eth0")
		setUp(t, w.node, name)
		addAddresses(t, w.node, name, here)
		addAddresses(t, other, "eth0", there)
	}
	var inside []netip.Prefix
	for n := range listeners {
		inside = append(inside, netip.PrefixFrom(a.endpoint(n+1).Addr(), a.bits))
	}
	link(w.endpoints, "endpoints", []netip.Prefix{netip.PrefixFrom(a.inner, a.bits)}, inside...)
	link(w.client, "client", []netip.Prefix{netip.PrefixFrom(a.outer, a.wideBits)},
		netip.PrefixFrom(a.stranger, a.wideBits), netip.PrefixFrom(a.pod, a.pod.BitLen()))
	w.endpoints.Must(t, func() error { return route("eth0", defaultOf(a), a.inner) })
	w.client.Must(t, func() error { return route("eth0", defaultOf(a), a.outer) })
	// The node has a route to the client's pod. It routes addresses of Services away, as if another host served them.
	w.node.Must(t, func() error {
		return errors.Join(route("client", netip.PrefixFrom(a.pod, a.pod.BitLen()), a.stranger), route("endpoints", defaultOf(a), a.endpoint(1).Addr()))
	})
	w.conn = w.node.open(t)
	return w
}

func defaultOf(a addresses) netip.Prefix {
	if a.family == ruleset.IPv6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// setUp sets a link up.
func setUp(t testing.TB, n *namespace, name string) {
	t.Helper()
	n.Must(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return netlink.LinkSetUp(link)
	})
}

// addAddresses gives a link addresses, and waits until it has them: before, packets are
// lost.
func addAddresses(t testing.TB, n *namespace, name string, addresses []netip.Prefix) {
	t.Helper()
	waitFor(t, "link "+name+" is ready", func() bool {
		ready := false
		n.Must(t, func() error {
			link, err := netlink.LinkByName(name)
			ready = err == nil && link.Attrs().OperState == netlink.OperUp
			return err
		})
		return ready
	})
	n.Must(t, func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		for _, address := range addresses {
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(address), Flags: unix.IFA_F_NODAD}); err != nil {
				return fmt.Errorf("adding address %s to %s: %w", address, name, err)
			}
		}
		return nil
	})
	waitFor(t, "link "+name+" takes packets to its addresses", func() bool {
		missing := 0
		n.Must(t, func() error {
			for _, address := range addresses {
				routes, err := netlink.RouteGet(address.Addr().AsSlice())
				if err != nil || len(routes) == 0 || routes[0].Type != unix.RTN_LOCAL {
					missing++
				}
			}
			return nil
		})
		return missing == 0
	})
}

// route adds a route, in the namespace of this thread.
func route(name string, to netip.Prefix, via netip.Addr) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	err = netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(to), Gw: via.AsSlice()})
	if err != nil {
		return fmt.Errorf("adding a route to %s by %s: %w", to, via, err)
	}
	return nil
}

// serve has all endpoints answer on a port, each connection and each packet with the
// endpoint's address and the address that it came from.
func (w *world) serve(t testing.TB) {
	t.Helper()
	for n := range listeners {
		w.serveAt(t, w.endpoint(n+1))
	}
}

// serveAt makes an address of the endpoints' namespace answer as they do.
func (w *world) serveAt(t testing.TB, at netip.AddrPort) {
	t.Helper()
	listener, packets := w.endpoints.listen(t, at), w.endpoints.packets(t, at)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			fmt.Fprintf(conn, "%s %s\n", at, conn.RemoteAddr())
			if err := conn.Close(); err != nil {
				return
			}
		}
	}()
	go func() {
		buffer := make([]byte, 64)
		for {
			_, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			if _, err := packets.WriteTo(fmt.Appendf(nil, "%s %s\n", at, from), from); err != nil {
				return
			}
		}
	}()
}

// seen is a connection as an endpoint sees it.
type seen struct {
	endpoint, from netip.AddrPort
}

// answerTimeout bounds the wait for an immediate answer.
const answerTimeout = 20 * time.Second

// connect connects by TCP and asks who answers.
func (n *namespace) connect(from netip.Addr, to netip.AddrPort, timeout time.Duration) (seen, error) {
	d := net.Dialer{Timeout: timeout}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	conn, err := n.dial(d, "tcp", to)
	if err != nil {
		return seen{}, err
	}
	defer conn.Close()
	return ask(conn, timeout)
}

// send sends a packet of UDP and asks who answers.
func (n *namespace) send(from netip.Addr, to netip.AddrPort, timeout time.Duration) (seen, error) {
	return n.sendFrom(netip.AddrPortFrom(from, 0), to, timeout)
}

// sendFrom is send from a port.
func (n *namespace) sendFrom(from, to netip.AddrPort, timeout time.Duration) (seen, error) {
	var d net.Dialer
	if from.Addr().IsValid() {
		d.LocalAddr = net.UDPAddrFromAddrPort(from)
	}
	conn, err := n.dial(d, "udp", to)
	if err != nil {
		return seen{}, err
	}
	defer conn.Close()
	if _, err := conn.Write([]byte("?")); err != nil {
		return seen{}, err
	}
	return ask(conn, timeout)
}

func ask(conn net.Conn, timeout time.Duration) (seen, error) {
	if err := conn.SetReadDeadline(time.Now().Add(timeout)); err != nil {
		return seen{}, err
	}
	var endpoint, from string
	if _, err := fmt.Fscan(bufio.NewReader(conn), &endpoint, &from); err != nil {
		return seen{}, err
	}
	at, err := netip.ParseAddrPort(endpoint)
	if err != nil {
		return seen{}, err
	}
	source, err := netip.ParseAddrPort(from)
	return seen{at, source}, err
}
