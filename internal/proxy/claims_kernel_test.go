package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	nftables "vicinity.dev/vicinity/internal/proxy/kernel"
)

// kernelWorld is a world whose rules are in a real kernel, in a network namespace where
// endpoints answer connections.
type kernelWorld struct {
	*world
	// do calls a function on a thread in the namespace.
	do func(func() error) error
}

// The addresses of the namespace: those of the node, of endpoints, and those from which the
// answers are told apart.
const (
	victimEndpoint = "10.1.1.1"
	nodeAddress    = "192.0.2.1"
)

func newKernelWorld(t *testing.T) *kernelWorld {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: network namespaces")
	}
	w := &kernelWorld{world: newWorld(t)}
	var conn *nftables.Conn
	var namespace *os.File
	inNamespace(t, func() (err error) {
		if namespace, err = os.Open("/proc/thread-self/ns/net"); err != nil {
			return err
		}
		if conn, err = nftables.Open(); err != nil {
			return err
		}
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		err = netlink.LinkSetUp(lo)
		for _, address := range []string{victimEndpoint, attackerEndpoint, nodeAddress} {
			one, parseErr := netlink.ParseAddr(address + "/32")
			err = errors.Join(err, parseErr, netlink.AddrAdd(lo, one))
		}
		_, all, parseErr := net.ParseCIDR("0.0.0.0/0")
		return errors.Join(err, parseErr, netlink.RouteAdd(&netlink.Route{LinkIndex: lo.Attrs().Index, Dst: all, Scope: netlink.SCOPE_LINK, Src: net.ParseIP(nodeAddress)}))
	})
	t.Cleanup(func() {
		if err := errors.Join(conn.Close(), namespace.Close()); err != nil {
			t.Error(err)
		}
	})
	w.do = func(f func() error) error {
		done := make(chan error)
		go func() {
			runtime.LockOSThread() // the thread ends with the goroutine
			if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
				done <- err
				return
			}
			done <- f()
		}()
		return <-done
	}
	w.writer.kernel = conn
	for _, address := range []string{victimEndpoint, attackerEndpoint} {
		w.listen(address)
	}
	return w
}

// listen answers connections to an endpoint with its address.
func (w *kernelWorld) listen(address string) {
	w.t.Helper()
	var listener net.Listener
	err := w.do(func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp4", net.JoinHostPort(address, "8080"))
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = listener.Close() })
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
}

// kubeProxy has other rules, at the priority of kube-proxy, lead a front to the victim.
func (w *kernelWorld) kubeProxy(address string, port int) {
	w.t.Helper()
	rules := fmt.Sprintf("table ip kube-proxy {\nchain output {\ntype nat hook output priority -100\nip daddr %s tcp dport %d dnat to %s:8080\n}\n}\n", address, port, victimEndpoint)
	err := w.do(func() error {
		nft := exec.CommandContext(w.t.Context(), "nft", "-f", "-")
		nft.Stdin = strings.NewReader(rules)
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

// answers are how many of some connections to a front were answered, by endpoint.
func (w *kernelWorld) answers(address string, port int) map[string]int {
	w.t.Helper()
	answers := map[string]int{}
	err := w.do(func() error {
		for range 10 {
			d := net.Dialer{Timeout: 2 * time.Second}
			c, err := d.DialContext(w.t.Context(), "tcp4", netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port)).String())
			if err != nil {
				answers["nobody"]++
				continue
			}
			text, err := io.ReadAll(c)
			if err = errors.Join(err, c.Close()); err != nil {
				return err
			}
			answers[string(text)]++
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return answers
}

// Connections reach the Service whose cluster IP or NodePort they are for, whoever serves
// it, and not the older Service of a tenant that claims the same address and port.
func TestConnectionsReachWhoHasTheAddress(t *testing.T) {
	for _, test := range []struct {
		name, address string
		port          int
		ours          bool // the victim is served by the rules, and not by kube-proxy
		form          func(*corev1.Service)
		allowed       string // by --external-ips
	}{
		{name: "a cluster IP of kube-proxy's", address: "10.96.0.20", port: 80, form: func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"10.96.0.20"} }},
		{name: "a cluster IP", address: "10.96.0.20", port: 80, ours: true, form: func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"10.96.0.20"} }},
		{name: "as a load balancer's", address: "10.96.0.20", port: 80, form: func(s *corev1.Service) {
			s.Spec.Type, s.Status.LoadBalancer.Ingress = corev1.ServiceTypeLoadBalancer, []corev1.LoadBalancerIngress{{IP: "10.96.0.20"}}
		}},
		{name: "with Local", address: "10.96.0.20", port: 80, form: func(s *corev1.Service) {
			s.Spec.ExternalIPs, s.Spec.ExternalTrafficPolicy = []string{"10.96.0.20"}, corev1.ServiceExternalTrafficPolicyLocal
		}},
		{name: "a node port of kube-proxy's", address: nodeAddress, port: 30053, form: func(s *corev1.Service) {
			s.Spec.ExternalIPs, s.Spec.Ports[0].Port = []string{nodeAddress}, 30053
		}},
		{name: "a node port where nodes' addresses are allowed", address: nodeAddress, port: 30053, ours: true, allowed: "192.0.2.0/24", form: func(s *corev1.Service) {
			s.Spec.ExternalIPs, s.Spec.Ports[0].Port = []string{nodeAddress}, 30053
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newKernelWorld(t)
			if test.allowed != "" {
				w.rules.externalIPs.Prefixes = []netip.Prefix{netip.MustParsePrefix(test.allowed)}
			}
			taker := of("tenant", aService("taker", "10.96.0.66"))
			taker.CreationTimestamp = metav1.NewTime(start.Add(-time.Hour))
			test.form(taker)
			group := of("tenant", aGroup("taker", "taker-1", attackerEndpoint))
			group.Spec.Endpoints[0].Node = "node-a"
			victim := of("bank", aService("accounts", "10.96.0.20"))
			victim.CreationTimestamp = metav1.NewTime(start)
			victim.Spec.Type, victim.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, 30053
			if !test.ours {
				delete(victim.Labels, v1alpha1.LabelServiceProxyName)
				w.kubeProxy(test.address, test.port)
			}
			w.put(taker, group, victim)
			if test.ours {
				w.put(of("bank", aGroup("accounts", "accounts-1", victimEndpoint)))
			}
			w.run(time.Second)
			if got := w.answers(test.address, test.port); got[victimEndpoint] != 10 {
				t.Errorf("%s:%d is answered by %v", test.address, test.port, got)
			}
			if got := w.answers("10.96.0.66", int(taker.Spec.Ports[0].Port)); got[attackerEndpoint] != 10 {
				t.Errorf("the tenant's own cluster IP is answered by %v", got)
			}
		})
	}
}

// An address of nobody is the tenant's until a Service comes that has it, and what the
// kernel does changes with that.
func TestConnectionsFollowWhoComes(t *testing.T) {
	w := newKernelWorld(t)
	taker := of("tenant", aService("taker", "10.96.0.66"))
	taker.Spec.ExternalIPs = []string{"10.96.0.20"}
	w.put(taker, of("tenant", aGroup("taker", "taker-1", attackerEndpoint)))
	w.run(time.Second)
	if got := w.answers("10.96.0.20", 80); got[attackerEndpoint] != 10 {
		t.Fatalf("an address of nobody is answered by %v", got)
	}
	victim := of("bank", aService("accounts", "10.96.0.20"))
	delete(victim.Labels, v1alpha1.LabelServiceProxyName)
	w.kubeProxy("10.96.0.20", 80)
	w.put(victim)
	w.step(t.Context())
	if got := w.answers("10.96.0.20", 80); got[victimEndpoint] != 10 {
		t.Errorf("with the victim it is answered by %v", got)
	}
}

// EndpointSlices and EndpointGroups that a tenant writes by hand lead clients of its Service to
// any address, such as a pod of another namespace. Clients of other Services do not notice.
func TestEndpointsByHandLeadAnywhere(t *testing.T) {
	for name, put := range map[string]func(w *kernelWorld, taker *corev1.Service){
		"a slice": func(w *kernelWorld, taker *corev1.Service) {
			w.rules.allServices = true
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
			if got := w.answers("10.96.0.66", 80); got[victimEndpoint] != 10 {
				t.Errorf("the tenant's Service is answered by %v", got)
			}
			if got := w.answers("10.96.0.20", 80); got[attackerEndpoint] != 10 {
				t.Errorf("another Service is answered by %v", got)
			}
		})
	}
}
