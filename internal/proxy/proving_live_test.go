package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http/httptest"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/proxy/cluster"
	"vicinity.dev/vicinity/internal/proxy/cluster/clustertest"
	nftables "vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/namespacetest"
	"vicinity.dev/vicinity/internal/proxy/pace"
	"vicinity.dev/vicinity/internal/proxy/probe"
	"vicinity.dev/vicinity/internal/proxy/ruleset"
	"vicinity.dev/vicinity/internal/proxy/view"
)

// netspace is a network namespace like that of a node: with addresses of its own, a default
// route, and nothing at the other end of it.
type netspace struct{ *namespacetest.Namespace }

func newNetspace(t *testing.T) *netspace {
	t.Helper()
	n := &netspace{namespacetest.New(t)}
	n.Must(t, func() error {
		wire := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "far"}
		if err := errors.Join(netlink.LinkAdd(wire), netlink.LinkSetUp(wire)); err != nil {
			return err
		}
		far, err := netlink.LinkByName("far")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(far); err != nil {
			return err
		}
		for _, one := range []struct{ address, gateway, all string }{
			{"192.0.2.1/24", "192.0.2.254", "0.0.0.0/0"}, {"2001:db8::1/64", "2001:db8::254", "::/0"},
		} {
			address, err := netlink.ParseAddr(one.address)
			if err != nil {
				return err
			}
			_, all, err := net.ParseCIDR(one.all)
			if err != nil {
				return err
			}
			// The kernel is not asked whether others have it, as nobody can listen at it meanwhile.
			address.Flags = unix.IFA_F_NODAD
			if err := netlink.AddrAdd(wire, address); err != nil {
				return err
			}
			if err := netlink.RouteAdd(&netlink.Route{LinkIndex: wire.Index, Dst: all, Gw: net.ParseIP(one.gateway)}); err != nil {
				return err
			}
		}
		return nil
	})
	return n
}

func (n *netspace) nft(t *testing.T, arguments ...string) {
	t.Helper()
	n.Must(t, func() error {
		if out, err := exec.Command("nft", arguments...).CombinedOutput(); err != nil {
			return fmt.Errorf("nft %s: %w: %s", strings.Join(arguments, " "), err, out)
		}
		return nil
	})
}

// liveProbe is a proxy in a namespace with the kernel's own rules, whose node is probed.
type liveProbe struct {
	*netspace
	t      *testing.T
	server *fakeServer
	probe  *corev1.Service
}

// newLiveProbe starts a proxy in a namespace, with something to acknowledge.
func newLiveProbe(t *testing.T, n *netspace) *liveProbe {
	server := &fakeServer{t: t, api: clustertest.NewAPI()}
	web := httptest.NewServer(server)
	t.Cleanup(web.Close)
	node := aNode("a")
	node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "2001:db8::1"})
	service := probeService()
	service.Namespace, service.Name = "system", "vicinity-proxy-probe"
	service.Spec.ClusterIPs = append(service.Spec.ClusterIPs, "fd00:96::99")
	service.Spec.IPFamilies = append(service.Spec.IPFamilies, corev1.IPv6Protocol)
	sources := server.api.Sources
	sources[cluster.ResourceNodes].Put(node)
	sources[cluster.ResourceServices].Put(service)
	sources[cluster.ResourceServices].Put(inHandOver("web", "10.96.0.1"))
	sources[cluster.ResourceGroups].Put(handedOver(aGroup("web", "web-1", "10.1.1.1")))

	var conn *nftables.Conn
	n.Must(t, func() (err error) {
		conn, err = nftables.Open()
		return err
	})
	t.Cleanup(func() { _ = conn.Close() })
	p, err := New(Options{
		NodeName: "node-a", API: &rest.Config{Host: web.URL, QPS: 1000, Burst: 1000}, Settings: view.Settings{MasqueradeMark: ruleset.DefaultMasqueradeMark},
		MinSyncPeriod: time.Millisecond, SyncPeriod: time.Hour, LeaseNamespace: "system", ProbeService: service.Name, Kernel: conn,
		Tracker: &fakeTracker{deleted: map[ruleset.Stale]int{}}, Registry: prometheus.NewPedanticRegistry(), Log: logr.Discard(),
	})
	if err != nil {
		t.Fatal(err)
	}
	p.keeper.Budget = pace.Budget{Burst: 1000, Every: time.Millisecond} // the test waits for what the Lease says
	// Between probes that pass there is much time, so that what is acknowledged at once is
	// so on the word of a probe that was asked for.
	v := p.programmer.proving
	v.prober = probe.New(probe.Options{
		Node: "node-a", Port: probe.DefaultPort, Tried: p.metrics.probed, Unserved: func() {},
		Pace: probe.Pace{Every: time.Hour, Again: 10 * time.Millisecond, Retry: 50 * time.Millisecond, Timeout: 500 * time.Millisecond, Fresh: time.Millisecond},
		Changed: func() {
			select {
			case v.results <- struct{}{}:
			default:
			}
		},
		Listen: func(at netip.AddrPort) (l net.Listener, err error) {
			err = n.Do(func() error {
				l, err = net.Listen("tcp", at.String())
				return err
			})
			return l, err
		},
		Dial: func(ctx context.Context, from netip.Addr, to netip.AddrPort) (c net.Conn, err error) {
			err = n.Do(func() error {
				d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
				c, err = d.DialContext(ctx, "tcp", to.String())
				return err
			})
			return c, err
		},
		Routed: func(_, to netip.Addr) bool {
			return n.Do(func() error {
				_, err := netlink.RouteGet(to.AsSlice())
				return err
			}) == nil
		},
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return &liveProbe{netspace: n, t: t, server: server, probe: service}
}

// failure is what the Lease says of the last probe.
func (p *liveProbe) failure() string {
	p.server.mu.Lock()
	defer p.server.mu.Unlock()
	if p.server.lease == nil {
		return ""
	}
	return p.server.lease.Annotations[v1alpha1.AnnotationProbeFailure]
}

func (p *liveProbe) acknowledged() uint64 { return versionNumber(p.server.programmed()) }

// change has the API say something new that is to be acknowledged.
func (p *liveProbe) change(address string) {
	p.server.api.Sources[cluster.ResourceGroups].Put(handedOver(aGroup("web", "web-1", address)))
}

// A node that somebody else's rules keep from ours acknowledges nothing, and says why; once
// they are gone it acknowledges what there is.
func TestProbeInAKernel(t *testing.T) {
	n := newNetspace(t)
	foreign := func(family, address string) string {
		return fmt.Sprintf("table %[1]s foreign { chain early { type nat hook output priority -102; %[1]s daddr %[2]s dnat to %[3]s; }; }",
			family, address, map[string]string{"ip": "192.0.2.77", "ip6": "2001:db8::77"}[family])
	}
	// It is there before the proxy is.
	n.nft(t, foreign("ip", "10.96.9.9"))
	p := newLiveProbe(t, n)
	eventually(t, "the probe fails", func() bool {
		return strings.Contains(p.failure(), "10.96.9.9:80 does not end at vicinity-proxy")
	})
	if got := p.acknowledged(); got != 0 {
		t.Fatalf("version %d is acknowledged beside rules that come first", got)
	}
	n.nft(t, "delete table ip foreign")
	eventually(t, "what there is is acknowledged", func() bool { return p.acknowledged() == 1 && p.failure() == "" })

	// A new version is acknowledged by a new probe, of both families.
	p.change("10.1.1.2")
	eventually(t, "a new version is acknowledged", func() bool { return p.acknowledged() == 2 })
	n.nft(t, foreign("ip6", "fd00:96::99"))
	p.change("10.1.1.3")
	eventually(t, "the probe of IPv6 fails", func() bool {
		return strings.Contains(p.failure(), "[fd00:96::99]:80 does not end at vicinity-proxy")
	})
	if got := p.acknowledged(); got != 0 {
		t.Errorf("version %d is acknowledged", got)
	}
	n.nft(t, "delete table ip6 foreign") // which fails if anybody has touched it
	eventually(t, "the new version is acknowledged", func() bool { return p.acknowledged() == 3 && p.failure() == "" })
	eventually(t, "it is told", func() bool {
		p.server.mu.Lock()
		defer p.server.mu.Unlock()
		reasons := map[string]int{}
		for i := range p.server.events {
			if p.server.events[i].Regarding.Name == p.probe.Name {
				reasons[p.server.events[i].Reason]++
			}
		}
		return reasons["RulesBypassed"] == 2 && reasons["RulesTraversed"] == 2
	})
}

// A node may have routes to pods and Services alone, so that what something else translates
// goes nowhere; and it may have none to Services, by which nothing can be probed.
func TestProbeOnANodeWithFewRoutes(t *testing.T) {
	n := newNetspace(t)
	route := func(change func(*netlink.Route) error, to string) {
		t.Helper()
		n.Must(t, func() error {
			wire, err := netlink.LinkByName("eth0")
			if err != nil {
				return err
			}
			_, prefix, err := net.ParseCIDR(to)
			if err != nil {
				return err
			}
			return change(&netlink.Route{LinkIndex: wire.Attrs().Index, Dst: prefix, Gw: net.ParseIP("192.0.2.254")})
		})
	}
	route(netlink.RouteAdd, "10.96.0.0/12")
	route(netlink.RouteDel, "0.0.0.0/0")
	n.nft(t, "table ip foreign { chain early { type nat hook output priority -102; ip daddr 10.96.9.9 dnat to 198.51.100.77; }; }")
	p := newLiveProbe(t, n)
	eventually(t, "the probe fails", func() bool { return strings.HasSuffix(p.failure(), "there is no answer") })
	if got := p.acknowledged(); got != 0 {
		t.Errorf("version %d is acknowledged", got)
	}
	route(netlink.RouteDel, "10.96.0.0/12")
	eventually(t, "there is nothing to probe by", func() bool { return p.acknowledged() == 1 && p.failure() == "" })
}

// What docs/coexistence.md says of rules of others: which of them a probe passes.
func TestProbeBesideRulesOfOthers(t *testing.T) {
	n := newNetspace(t)
	p := newLiveProbe(t, n)
	eventually(t, "what there is is acknowledged", func() bool { return p.acknowledged() == 1 })
	for i, test := range []struct {
		name, rules string
		failure     string // empty if probes pass
	}{
		{
			"kube-proxy refuses what has no endpoints", "table ip foreign { chain filter-output { type filter hook output priority 0; ip daddr 10.96.9.9 reject; }; }", "",
		},
		{
			"kube-proxy or Docker translates at the priority of iptables",
			"table ip foreign { chain OUTPUT { type nat hook output priority -100; ip daddr 10.96.9.9 dnat to 192.0.2.77; }; }", "",
		},
		{
			"a firewall drops what is forwarded, and what comes in by another interface than lo",
			"table inet foreign { chain in { type filter hook input priority 10; policy drop; iif lo accept; }; chain forward { type filter hook forward priority 0; policy drop; }; }", "",
		},
		{
			"a firewall that accepts what was translated, as firewalld does",
			"table inet foreign { chain in { type filter hook input priority 10; policy drop; ct state established,related accept; ct status dnat accept; }; }", "",
		},
		{
			"something translates first", "table ip foreign { chain early { type nat hook output priority -102; ip daddr 10.96.9.9 dnat to 192.0.2.77; }; }",
			"a connection of the node to 10.96.9.9:80 does not end at vicinity-proxy",
		},
		{
			"something translates first, to where a router knows no way",
			`table ip foreign { chain early { type nat hook output priority -102; ip daddr 10.96.9.9 dnat to 192.0.2.77; };
				chain router { type filter hook output priority 0; ip daddr 192.0.2.77 reject with icmp type net-unreachable; }; }`,
			"a connection of the node to 10.96.9.9:80 does not end at vicinity-proxy, where its rules lead it: network is unreachable",
		},
		{
			"connections are not tracked", "table ip foreign { chain raw { type filter hook output priority -300; ip daddr 10.96.9.9 notrack; }; }",
			"a connection of the node to 10.96.9.9:80 does not end at vicinity-proxy",
		},
		{
			"a firewall drops before it is translated", "table ip foreign { chain early { type filter hook output priority -150; ip daddr 10.96.0.0/12 drop; }; }",
			"a connection of the node to 10.96.9.9:80 does not end at vicinity-proxy, where its rules lead it: there is no answer",
		},
		{
			"a firewall drops what the node sends to itself", "table ip foreign { chain in { type filter hook input priority 0; tcp dport 10268 drop; }; }",
			"the node does not reach its own address 192.0.2.1:10268, where vicinity-proxy listens: a packet filter of the node may drop what comes to it",
		},
	} {
		n.nft(t, test.rules)
		before := p.acknowledged()
		p.change(fmt.Sprintf("10.1.2.%d", i+1))
		if test.failure == "" {
			eventually(t, test.name+": it is acknowledged", func() bool { return p.acknowledged() > before })
		} else {
			eventually(t, test.name+": the probe fails", func() bool { return strings.HasPrefix(p.failure(), test.failure) })
			if got := p.acknowledged(); got != 0 {
				t.Errorf("%s: version %d is acknowledged", test.name, got)
			}
		}
		n.nft(t, "delete table "+strings.Join(strings.Fields(test.rules)[1:3], " "))
		eventually(t, test.name+": it is acknowledged without them", func() bool { return p.acknowledged() > before && p.failure() == "" })
	}
}

// What docs/coexistence.md says of iptables: the rules of vicinity-proxy come before the chain
// of kube-proxy's iptables mode, which translates the same address, and an address with
// NOTRACK is not translated by them.
func TestProbeBesideIptables(t *testing.T) {
	for _, family := range []struct {
		program             string
		probed, other, node netip.Addr
	}{
		{"iptables", netip.MustParseAddr("10.96.9.9"), netip.MustParseAddr("10.96.9.10"), netip.MustParseAddr("192.0.2.1")},
		{"ip6tables", netip.MustParseAddr("fd00:96::99"), netip.MustParseAddr("fd00:96::9a"), netip.MustParseAddr("2001:db8::1")},
	} {
		for _, variant := range []string{"nft", "legacy"} {
			program := family.program + "-" + variant
			t.Run(program, func(t *testing.T) {
				t.Parallel()
				n := newNetspace(t)
				path, err := exec.LookPath(program)
				if err != nil {
					t.Skipf("%s is not installed; apt-get install iptables", program)
				}
				iptables := func(arguments ...any) {
					t.Helper()
					line := fmt.Sprintln(arguments...)
					n.Must(t, func() error {
						// Another program may hold the lock of iptables-legacy.
						if out, err := exec.Command(path, append([]string{"-w"}, strings.Fields(line)...)...).CombinedOutput(); err != nil {
							return fmt.Errorf("%s %s: %w: %s", program, line, err, out)
						}
						return nil
					})
				}
				var listener net.Listener
				n.Must(t, func() (err error) {
					listener, err = net.Listen("tcp", netip.AddrPortFrom(family.node, 0).String())
					return err
				})
				t.Cleanup(func() { _ = listener.Close() })
				p := newLiveProbe(t, n)
				eventually(t, "what there is is acknowledged", func() bool { return p.acknowledged() == 1 })

				iptables("-t nat -N KUBE-SERVICES")
				iptables("-t nat -A OUTPUT -j KUBE-SERVICES")
				for _, address := range []netip.Addr{family.probed, family.other} {
					iptables("-t nat -A KUBE-SERVICES -d", address, "-p tcp -j DNAT --to-destination", listener.Addr())
				}
				// The chain translates: a connection is made to an address that vicinity-proxy does not serve.
				n.Must(t, func() error {
					conn, err := net.DialTimeout("tcp", netip.AddrPortFrom(family.other, 80).String(), 30*time.Second)
					if err != nil {
						return fmt.Errorf("connecting through KUBE-SERVICES: %w", err)
					}
					return conn.Close()
				})
				p.change("10.1.1.2")
				eventually(t, "it is acknowledged beside KUBE-SERVICES", func() bool { return p.acknowledged() == 2 && p.failure() == "" })

				iptables("-t raw -A OUTPUT -d", family.probed, "-j NOTRACK")
				p.change("10.1.1.3")
				failure := fmt.Sprintf("a connection of the node to %s does not end at vicinity-proxy", netip.AddrPortFrom(family.probed, 80))
				eventually(t, "the probe fails", func() bool { return strings.HasPrefix(p.failure(), failure) })
				if got := p.acknowledged(); got != 0 {
					t.Errorf("version %d is acknowledged", got)
				}
				iptables("-t raw -F OUTPUT")
				eventually(t, "it is acknowledged without NOTRACK", func() bool { return p.acknowledged() == 3 && p.failure() == "" })
			})
		}
	}
}
