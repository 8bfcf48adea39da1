package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	nftables "vicinity.dev/vicinity/internal/proxy/kernel"
	"vicinity.dev/vicinity/internal/proxy/namespacetest"
)

// kernelWorld is a world whose rules are in a real kernel, in a network namespace where
// endpoints answer connections.
type kernelWorld struct {
	*world
	*namespacetest.Namespace
}

// The addresses of the namespace: those of the node, of endpoints, and those from which the
// answers are told apart.
const (
	victimEndpoint = "10.1.1.1"
	nodeAddress    = "192.0.2.1"
)

func newKernelWorld(t *testing.T) *kernelWorld {
	t.Helper()
	n := namespacetest.New(t)
	w := &kernelWorld{world: newWorld(t), Namespace: n}
	var conn *nftables.Conn
	n.Must(t, func() (err error) {
		if conn, err = nftables.Open(); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		for _, address := range []string{victimEndpoint, attackerEndpoint, nodeAddress} {
			one, parseErr := netlink.ParseAddr(address + "/32")
			err = errors.Join(err, parseErr, netlink.AddrAdd(lo, one))
		}
		_, all, parseErr := net.ParseCIDR("0.0.0.0/0")
		return errors.Join(err, parseErr, netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Scope: netlink.SCOPE_LINK, Src: net.ParseIP(nodeAddress)}))
	})
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	w.writer.kernel = conn
	for _, address := range []string{victimEndpoint, attackerEndpoint} {
		w.listen(address)
	}
	return w
}

// listen answers connections and packets to an endpoint with its address.
func (w *kernelWorld) listen(address string) {
	w.t.Helper()
	var listener net.Listener
	var packets net.PacketConn
	err := w.Do(func() (err error) {
		at, config := net.JoinHostPort(address, "8080"), &net.ListenConfig{}
		if listener, err = config.Listen(context.Background(), "tcp4", at); err != nil {
			return err
		}
		packets, err = config.ListenPacket(context.Background(), "udp4", at)
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _, _ = listener.Close(), packets.Close() })
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, address)
			_ = c.Close()
		}
	}()
	go func() {
		buffer := make([]byte, 16)
		for {
			_, from, err := packets.ReadFrom(buffer)
			if err != nil {
				return
			}
			_, _ = packets.WriteTo([]byte(address), from)
		}
	}()
}

// door is a port that clients connect to.
type door struct {
	network string // tcp or udp
	address string
	port    int
}

func (d door) String() string {
	return net.JoinHostPort(d.address, strconv.Itoa(d.port)) + "/" + d.network
}

// kubeProxy has other rules, at the priority of kube-proxy, lead doors to the victim.
func (w *kernelWorld) kubeProxy(doors ...door) {
	w.t.Helper()
	rules := "table ip kube-proxy {\nchain output {\ntype nat hook output priority -100\n"
	for _, d := range doors {
		rules += fmt.Sprintf("ip daddr %s %s dport %d dnat to %s:8080\n", d.address, d.network, d.port, victimEndpoint)
	}
	err := w.Do(func() error {
		nft := exec.CommandContext(w.t.Context(), "nft", "-f", "-")
		nft.Stdin = strings.NewReader(rules + "}\n}\n")
		out, err := nft.CombinedOutput()
		if err != nil {
			return fmt.Errorf("nft: %w: %s", err, out)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

// answers are how many of some connections to a door were answered, by endpoint.
func (w *kernelWorld) answers(d door) map[string]int {
	w.t.Helper()
	answers := map[string]int{}
	err := w.Do(func() error {
		// A packet from a port of before would follow its connection, and ask no rule.
		if err := netlink.ConntrackTableFlush(netlink.ConntrackTable); err != nil {
			return err
		}
		for range 10 {
			text, err := d.ask(w.t.Context())
			if err != nil {
				text = "nobody"
			}
			answers[text]++
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return answers
}

// ask connects to a door and reads the answer.
func (d door) ask(ctx context.Context) (text string, err error) {
	const patience = 2 * time.Second
	dialer := net.Dialer{Timeout: patience}
	c, err := dialer.DialContext(ctx, d.network+"4", net.JoinHostPort(d.address, strconv.Itoa(d.port)))
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if d.network == "udp" {
		if _, err := io.WriteString(c, "?"); err != nil {
			return "", err
		}
	}
	answer := make([]byte, len(nodeAddress+victimEndpoint))
	n, err := c.Read(answer)
	return string(answer[:n]), err
}

// withDNS gives a Service of TCP a second port, UDP 53, with the same node port.
func withDNS(s *corev1.Service) {
	s.Spec.Ports[0].Name = "http"
	s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: "dns", Port: 53, Protocol: corev1.ProtocolUDP, NodePort: s.Spec.Ports[0].NodePort})
}

// endpointOf is what leads the ports of withDNS to an endpoint: a group, or for a Service
// without groups an EndpointSlice.
func endpointOf(service *corev1.Service, byGroups bool, address string) metav1.Object {
	if !byGroups {
		slice := of(service.Namespace, sliceAt(service.Name, service.Name+"-1", address))
		slice.Endpoints[0].NodeName = new("node-a")
		slice.Ports = []discoveryv1.EndpointPort{
			{Name: new("http"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolTCP)},
			{Name: new("dns"), Port: new(int32(8080)), Protocol: new(corev1.ProtocolUDP)},
		}
		return slice
	}
	group := of(service.Namespace, aGroup(service.Name, service.Name+"-1", address))
	group.Spec.Endpoints[0].Node = "node-a"
	group.Spec.Ports = []v1alpha1.GroupPort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 8080}, {Name: "dns", Protocol: corev1.ProtocolUDP, Port: 8080}}
	return group
}

// Connections by TCP and by UDP reach the Service whose cluster IP or NodePort they are for,
// whether kube-proxy serves it, the rules by groups, or the rules in the place of kube-proxy,
// and not the older Service of a tenant that claims the same address and ports.
func TestConnectionsReachWhoHasTheAddress(t *testing.T) {
	const clusterIP, nodePort = "10.96.0.20", 30053
	for _, test := range []struct {
		name, address string
		// tcp and udp are the ports that the tenant claims.
		tcp, udp int
		form     func(*corev1.Service)
		allowed  string // by --external-ips
	}{
		{name: "a cluster IP", address: clusterIP, tcp: 80, udp: 53, form: func(s *corev1.Service) { s.Spec.ExternalIPs = []string{clusterIP} }},
		{name: "as a load balancer's", address: clusterIP, tcp: 80, udp: 53, form: func(s *corev1.Service) {
			s.Spec.Type, s.Status.LoadBalancer.Ingress = corev1.ServiceTypeLoadBalancer, []corev1.LoadBalancerIngress{{IP: clusterIP}}
		}},
		{name: "with Local", address: clusterIP, tcp: 80, udp: 53, form: func(s *corev1.Service) {
			s.Spec.ExternalIPs, s.Spec.ExternalTrafficPolicy = []string{clusterIP}, corev1.ServiceExternalTrafficPolicyLocal
		}},
		{name: "a node port", address: nodeAddress, tcp: nodePort, udp: nodePort, form: func(s *corev1.Service) { s.Spec.ExternalIPs = []string{nodeAddress} }},
		{name: "a node port where nodes' addresses are allowed", address: nodeAddress, tcp: nodePort, udp: nodePort, allowed: "192.0.2.0/24", form: func(s *corev1.Service) {
			s.Spec.ExternalIPs = []string{nodeAddress}
		}},
	} {
		for _, servedBy := range []string{"kube-proxy", "groups", "all services"} {
			t.Run(test.name+"/"+servedBy, func(t *testing.T) {
				w := newKernelWorld(t)
				w.settings.AllServices = servedBy == "all services"
				if test.allowed != "" {
					w.settings.ExternalIPs.Prefixes = []netip.Prefix{netip.MustParsePrefix(test.allowed)}
				}
				taker := of("tenant", aService("taker", "10.96.0.66"))
				taker.CreationTimestamp = metav1.NewTime(start.Add(-time.Hour))
				withDNS(taker)
				taker.Spec.Ports[0].Port, taker.Spec.Ports[1].Port = int32(test.tcp), int32(test.udp)
				test.form(taker)
				victim := of("bank", aService("accounts", clusterIP))
				victim.CreationTimestamp = metav1.NewTime(start)
				victim.Spec.Type, victim.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, nodePort
				withDNS(victim)
				doors := []door{{"tcp", test.address, test.tcp}, {"udp", test.address, test.udp}}
				switch servedBy {
				case "kube-proxy":
					delete(victim.Labels, v1alpha1.LabelServiceProxyName)
					w.kubeProxy(doors...)
				case "all services":
					// Neither asks for vicinity-proxy.
					delete(victim.Labels, v1alpha1.LabelServiceProxyName)
					delete(taker.Labels, v1alpha1.LabelServiceProxyName)
				}
				if servedBy != "kube-proxy" {
					w.put(endpointOf(victim, servedBy == "groups", victimEndpoint))
				}
				w.put(taker, endpointOf(taker, !w.settings.AllServices, attackerEndpoint), victim)
				w.run(time.Second)
				for _, d := range doors {
					if got := w.answers(d); got[victimEndpoint] != 10 {
						t.Errorf("%s is answered by %v", d, got)
					}
				}
				for _, d := range []door{{"tcp", "10.96.0.66", test.tcp}, {"udp", "10.96.0.66", test.udp}} {
					if got := w.answers(d); got[attackerEndpoint] != 10 {
						t.Errorf("%s, the tenant's own cluster IP, is answered by %v", d, got)
					}
				}
			})
		}
	}
}

// An address of nobody is the tenant's until a Service comes that has it, and what the
// kernel does changes with that.
func TestConnectionsFollowWhoComes(t *testing.T) {
	for _, allServices := range []bool{false, true} {
		t.Run(fmt.Sprintf("all services %t", allServices), func(t *testing.T) {
			w := newKernelWorld(t)
			w.settings.AllServices = allServices
			taker := of("tenant", aService("taker", "10.96.0.66"))
			taker.Spec.ExternalIPs = []string{"10.96.0.20"}
			withDNS(taker)
			w.put(taker, endpointOf(taker, true, attackerEndpoint))
			w.run(time.Second)
			doors := []door{{"tcp", "10.96.0.20", 80}, {"udp", "10.96.0.20", 53}}
			for _, d := range doors {
				if got := w.answers(d); got[attackerEndpoint] != 10 {
					t.Fatalf("%s, an address of nobody, is answered by %v", d, got)
				}
			}
			victim := of("bank", aService("accounts", "10.96.0.20"))
			delete(victim.Labels, v1alpha1.LabelServiceProxyName)
			withDNS(victim)
			if allServices {
				w.put(endpointOf(victim, false, victimEndpoint))
			} else {
				w.kubeProxy(doors...)
			}
			w.put(victim)
			w.step(t.Context())
			for _, d := range doors {
				if got := w.answers(d); got[victimEndpoint] != 10 {
					t.Errorf("with the victim %s is answered by %v", d, got)
				}
			}
		})
	}
}

// EndpointSlices and EndpointGroups that a tenant writes by hand lead clients of its Service to
// any address, such as a pod of another namespace. Clients of other Services do not notice.
func TestEndpointsByHandLeadAnywhere(t *testing.T) {
	for name, put := range map[string]func(w *kernelWorld, taker *corev1.Service){
		"a slice": func(w *kernelWorld, taker *corev1.Service) {
			w.settings.AllServices = true
			delete(taker.Labels, v1alpha1.LabelServiceProxyName)
			w.put(taker, of("tenant", sliceAt("taker", "by-hand", victimEndpoint)))
		},
		"a group": func(w *kernelWorld, taker *corev1.Service) {
			w.put(taker, of("tenant", aGroup("taker", "by-hand", victimEndpoint)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newKernelWorld(t)
			// The other endpoint of the namespace is that of another Service here.
			w.put(of("bank", aService("accounts", "10.96.0.20")), of("bank", aGroup("accounts", "accounts-1", attackerEndpoint)))
			put(w, of("tenant", aService("taker", "10.96.0.66")))
			w.run(time.Second)
			if got := w.answers(door{"tcp", "10.96.0.66", 80}); got[victimEndpoint] != 10 {
				t.Errorf("the tenant's Service is answered by %v", got)
			}
			if got := w.answers(door{"tcp", "10.96.0.20", 80}); got[attackerEndpoint] != 10 {
				t.Errorf("another Service is answered by %v", got)
			}
		})
	}
}
