package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"vicinity.dev/vicinity/internal/cli"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/test/rig"
)

// server is a vicinity-dns in the test's process.
type server struct {
	t        testing.TB
	instance *caddy.Instance
	address  string
	http     string // of ready
	// subnet is what queries have as their client subnet, nil for none.
	subnet *dns.EDNS0_SUBNET
}

// freePort is a port that nothing listens on.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start starts a server. In the Corefile PORT, READY and METRICS are ports, and KUBECONFIG is
// the lines that a connection to the API server takes.
func start(t testing.TB, kubeconfig, corefile string) *server {
	t.Helper()
	caddy.Quiet, dnsserver.Quiet = true, true
	s := &server{t: t}
	port, ready := freePort(t), freePort(t)
	s.address, s.http = fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("http://127.0.0.1:%d", ready)
	corefile = strings.NewReplacer("PORT", fmt.Sprint(port), "READY", fmt.Sprintf("127.0.0.1:%d", ready), "KUBECONFIG", "kubeconfig "+kubeconfig).Replace(corefile)
	instance, err := caddy.Start(caddy.CaddyfileInput{Filepath: "Corefile", Contents: []byte(corefile), ServerTypeName: "dns"})
	if err != nil {
		t.Fatal(err)
	}
	s.instance = instance
	t.Cleanup(func() {
		s.instance.ShutdownCallbacks()
		if err := s.instance.Stop(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// query asks from an address of this machine, by UDP or TCP.
func (s *server) query(from, name string, qtype uint16, tcp bool, change ...func(*dns.Msg)) *dns.Msg {
	s.t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, qtype)
	if s.subnet != nil {
		m.SetEdns0(1232, false)
		m.IsEdns0().Option = append(m.IsEdns0().Option, s.subnet)
	}
	for _, do := range change {
		do(m)
	}
	client := &dns.Client{Timeout: 5 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}}
	if tcp {
		client.Net, client.Dialer.LocalAddr = "tcp", &net.TCPAddr{IP: net.ParseIP(from)}
	}
	got, _, err := client.Exchange(m, s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	got.Compress = true // as it came, for its length
	return got
}

// addresses are those of an answer, or its code and what it says instead.
func addresses(m *dns.Msg) string {
	var words []string
	for _, rr := range m.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			words = append(words, rr.A.String())
		case *dns.CNAME:
			words = append(words, "->"+rr.Target)
		}
	}
	slices.Sort(words)
	for _, rr := range m.Ns {
		if rr.Header().Rrtype != dns.TypeNS {
			words = append(words, strings.ToLower(dns.TypeToString[rr.Header().Rrtype]))
		}
	}
	if m.Rcode != dns.RcodeSuccess {
		words = append(words, dns.RcodeToString[m.Rcode])
	}
	return strings.Join(words, " ")
}

// await waits until a client gets an answer.
func (s *server) await(from, name, want string) {
	s.t.Helper()
	var got string
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got = addresses(s.query(from, name, dns.TypeA, false)); got == want {
			return
		}
	}
	s.t.Fatalf("%s from %s: got %q, want %q", name, from, got, want)
}

func (s *server) ready() bool {
	response, err := http.Get(s.http + "/ready")
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode == http.StatusOK
}

// kubeconfig writes one for a configuration, with the server at another address if it is given.
func kubeconfig(t testing.TB, config *rest.Config, at string) string {
	t.Helper()
	made := clientcmdapi.NewConfig()
	cluster := &clientcmdapi.Cluster{Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData}
	if at != "" {
		cluster.Server, cluster.TLSServerName = "https://"+at, "localhost"
	}
	made.Clusters["lab"] = cluster
	made.AuthInfos["lab"] = &clientcmdapi.AuthInfo{
		ClientCertificate: config.CertFile, ClientCertificateData: config.CertData, ClientKey: config.KeyFile, ClientKeyData: config.KeyData, Token: config.BearerToken,
	}
	made.Contexts["lab"] = &clientcmdapi.Context{Cluster: "lab", AuthInfo: "lab"}
	made.CurrentContext = "lab"
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*made, file); err != nil {
		t.Fatal(err)
	}
	return file
}

// relay passes connections on until it is cut.
type relay struct {
	net.Listener
	cut func()
}

func newRelay(t testing.TB, to string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			from, err := l.Accept()
			if err != nil {
				return
			}
			onward, err := net.Dial("tcp", to)
			if err != nil {
				_ = from.Close()
				continue
			}
			context.AfterFunc(ctx, func() { _, _ = from.Close(), onward.Close() })
			go func() { _, _ = io.Copy(onward, from); _ = onward.Close() }()
			go func() { _, _ = io.Copy(from, onward); _ = from.Close() }()
		}
	}()
	return &relay{l, cancel}
}

// node is one in a zone, with a range of pods.
func node(name, zone string, n int) string {
	return fmt.Sprintf("{apiVersion: v1, kind: Node, metadata: {name: node-%[1]s, labels: {topology.kubernetes.io/zone: %[2]s, kubernetes.io/hostname: node-%[1]s}}, spec: {podCIDR: 127.%[3]d.0.0/16, podCIDRs: [127.%[3]d.0.0/16]}}\n", name, zone, n)
}

// manifests has the zones a to c with a node each, whose pods ask from 127.<n>.0.0/16, and Services
// with endpoints on them.
func manifests(groups bool) string {
	var b strings.Builder
	endpoint := func(n int) string {
		return fmt.Sprintf(`{addresses: ["10.%d.0.1"], nodeName: node-%[2]s, zone: %[2]s, conditions: {ready: true}}`, n, []string{"", "a", "b", "c"}[n])
	}
	for i, zone := range []string{"a", "b", "c"} {
		b.WriteString("---\n" + node(zone, zone, i+1))
	}
	for name, tiers := range map[string]string{"soft": `["topology.kubernetes.io/zone", "*"]`, "hard": `["topology.kubernetes.io/zone"]`, "whole": ""} {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Service, metadata: {name: %s}, spec: {clusterIP: None, ports: [{name: http, port: 80}]}}\n", name)
		fmt.Fprintf(&b, "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s, service.kubernetes.io/headless: \"\"}}, addressType: IPv4, ports: [{name: http, port: 80, protocol: TCP}], endpoints: [%[2]s, %[3]s]}\n", name, endpoint(1), endpoint(2))
		if groups && tiers != "" {
			fmt.Fprintf(&b, "---\n{apiVersion: vicinity.dev/v1alpha1, kind: EndpointGroup, metadata: {name: %[1]s, labels: {vicinity.dev/service-name: %[1]s, service.kubernetes.io/headless: \"\"}}, spec: {service: %[1]s, addressType: IPv4, tiers: %[2]s, anyReady: true, endpoints: [{address: 10.1.0.1, zone: a, node: node-a}, {address: 10.2.0.1, zone: b, node: node-b}]}}\n", name, tiers)
		}
	}
	b.WriteString("---\n{apiVersion: v1, kind: Service, metadata: {name: vip}, spec: {ports: [{name: http, port: 80}]}}\n")
	return b.String()
}

const corefile = `.:PORT {
    ready READY
    errors
    vicinity cluster.local {
        KUBECONFIG
        startup_timeout 20s
    }
    cache 30
    kubernetes cluster.local in-addr.arpa {
        KUBECONFIG
        zonal
        startup_timeout 20s
    }
    loadbalance
}
`

const domain = ".default.svc.cluster.local."

// TestServer runs the program's server with the API server of a lab.
func TestServer(t *testing.T) {
	kubernetes := rig.Start(t)
	reach := kubeconfig(t, kubernetes.Config(), "")

	t.Run("without Vicinity's resources", func(t *testing.T) {
		kubernetes := kubernetes.For(t)
		kubernetes.Undefine()
		kubernetes.Make("default", manifests(false))
		s := start(t, reach, corefile)
		s.await("127.1.0.9", "hard"+domain, "10.1.0.1 10.2.0.1")
		if !s.ready() {
			t.Error("it is not ready")
		}
	})

	kubernetes.Define()
	kubernetes.Make("default", manifests(true))

	t.Run("nearest", func(t *testing.T) {
		s := start(t, reach, corefile)
		for range 3 { // whatever the cache holds
			for _, tt := range []struct{ from, name, want string }{
				{"127.1.0.9", "soft", "10.1.0.1"},
				{"127.2.0.9", "soft", "10.2.0.1"},
				{"127.3.0.9", "soft", "10.1.0.1 10.2.0.1"},
				{"127.1.0.9", "hard", "10.1.0.1"},
				{"127.3.0.9", "hard", "soa"},
				{"127.0.0.1", "hard", "soa"},
				{"127.0.0.1", "soft", "10.1.0.1 10.2.0.1"},
				{"127.1.0.9", "whole", "10.1.0.1 10.2.0.1"},
				{"127.1.0.9", "b.pin._zone.soft", "10.2.0.1"},
			} {
				if got := addresses(s.query(tt.from, tt.name+domain, dns.TypeA, false)); got != tt.want {
					t.Errorf("%s from %s: got %q, want %q", tt.name, tt.from, got, tt.want)
				}
			}
		}
		if !s.ready() {
			t.Error("it is not ready")
		}
	})

	t.Run("as vicinity explain dns says", func(t *testing.T) {
		s := start(t, reach, corefile)
		for _, from := range []string{"127.1.0.9", "127.2.0.9", "127.3.0.9"} {
			for _, name := range []string{"soft", "hard", "whole", "b.pin._zone.soft"} {
				var out, errs bytes.Buffer
				args := []string{"explain", "dns", name, "--from", from, "--kubeconfig", reach, "-n", "default", "--type", "A", "-o", "json"}
				if code := cli.Main(t.Context(), args, strings.NewReader(""), &out, &errs); code != 0 {
					t.Fatalf("%s: code %d: %s", strings.Join(args, " "), code, errs.String())
				}
				var explained inspect.NameExplanation
				if err := json.Unmarshal(out.Bytes(), &explained); err != nil {
					t.Fatal(err)
				}
				var told []string
				for _, record := range explained.Answers[0].Records {
					told = append(told, record.Address)
				}
				if len(told) == 0 {
					told = []string{"soa"}
				}
				if got := addresses(s.query(from, name+domain, dns.TypeA, false)); got != strings.Join(told, " ") {
					t.Errorf("%s from %s: the server answers %q, explained is %q", name, from, got, told)
				}
			}
		}
	})

	t.Run("follows the API", func(t *testing.T) {
		kubernetes := kubernetes.For(t)
		s := start(t, reach, corefile)
		s.await("127.3.0.9", "hard"+domain, "soa")
		label := func(zone string) {
			kubernetes.Make("", node("c", zone, 3))
		}
		label("b")
		s.await("127.3.0.9", "hard"+domain, "10.2.0.1")
		label("c")
		s.await("127.3.0.9", "hard"+domain, "soa")
	})

	// A pod outside of all ranges, which moves and goes. A resolver asks for it.
	t.Run("follows PodLocators", func(t *testing.T) {
		kubernetes := kubernetes.For(t)
		s := start(t, reach, strings.Replace(corefile, "    vicinity cluster.local {\n", "    vicinity cluster.local {\n        client_subnet 127.0.0.1\n", 1))
		s.subnet = &dns.EDNS0_SUBNET{Code: dns.EDNS0SUBNET, Family: 1, SourceNetmask: 32, Address: net.ParseIP("10.9.0.9").To4()}
		locator := func(zone string) string {
			return "{apiVersion: vicinity.dev/v1alpha1, kind: PodLocator, metadata: {name: client}, ips: [10.9.0.9], nodeName: node-" + zone + ", nodeLabels: {topology.kubernetes.io/zone: " + zone + "}}"
		}
		s.await("127.0.0.1", "hard"+domain, "soa")
		kubernetes.Make("default", locator("a"))
		s.await("127.0.0.1", "hard"+domain, "10.1.0.1")
		kubernetes.Make("default", locator("b"))
		s.await("127.0.0.1", "hard"+domain, "10.2.0.1")
		if err := kubernetes.Delete(t.Context(), "default", locator("b")); err != nil {
			t.Fatal(err)
		}
		s.await("127.0.0.1", "hard"+domain, "soa")
	})

	t.Run("API server down", func(t *testing.T) {
		host := strings.TrimPrefix(kubernetes.Config().Host, "https://")
		between := newRelay(t, host)
		through := kubeconfig(t, kubernetes.Config(), between.Addr().String())
		s := start(t, through, corefile)
		s.await("127.1.0.9", "hard"+domain, "10.1.0.1")
		between.cut()
		for range 20 {
			if got := addresses(s.query("127.1.0.9", "hard"+domain, dns.TypeA, false)); got != "10.1.0.1" {
				t.Fatalf("got %q", got)
			}
		}
		if !s.ready() {
			t.Error("it is not ready any more")
		}
		// One that starts now knows nothing and says so.
		late := start(t, through, strings.ReplaceAll(corefile, "20s", "100ms"))
		for _, name := range []string{"hard", "soft", "whole", "vip"} {
			if got := addresses(late.query("127.1.0.9", name+domain, dns.TypeA, false)); !strings.HasSuffix(got, "SERVFAIL") {
				t.Errorf("%s: got %q", name, got)
			}
		}
		if late.ready() {
			t.Error("it is ready without an API server")
		}
	})

	t.Run("reload", func(t *testing.T) {
		watches := func() int {
			var b strings.Builder
			if err := pprof.Lookup("goroutine").WriteTo(&b, 2); err != nil {
				t.Fatal(err)
			}
			return strings.Count(b.String(), "plugin/vicinity.startWatching.func")
		}
		s := start(t, reach, corefile)
		before := watches()
		if before == 0 {
			t.Fatal("nothing is watched")
		}
		for range 3 {
			next, err := s.instance.Restart(nil)
			if err != nil {
				t.Fatal(err)
			}
			s.instance = next
			if got := addresses(s.query("127.1.0.9", "hard"+domain, dns.TypeA, false)); got != "10.1.0.1" {
				t.Errorf("got %q", got)
			}
		}
		if after := watches(); after != before {
			t.Errorf("%d goroutines watch after reloads, %d before", after, before)
		}
	})

	t.Run("aliases", func(t *testing.T) {
		zone := filepath.Join(t.TempDir(), "db.example")
		text := "$ORIGIN example.org.\n@ 3600 IN SOA ns hostmaster 1 7200 3600 1209600 3600\n@ IN NS ns\nwww IN CNAME hard" + domain + "\n"
		if err := os.WriteFile(zone, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := start(t, reach, strings.Replace(corefile, "    cache 30\n", "    cache 30\n    file "+zone+" example.org\n    rewrite stop {\n        name exact short.example.org hard"+strings.TrimSuffix(domain, ".")+"\n        answer auto\n    }\n", 1))
		for range 2 { // the cache holds the alias with all of its addresses
			for _, tt := range []struct{ from, name, want string }{
				{"127.1.0.9", "www.example.org.", "->hard" + domain + " 10.1.0.1"},
				{"127.2.0.9", "www.example.org.", "->hard" + domain + " 10.2.0.1"},
				{"127.3.0.9", "www.example.org.", "->hard" + domain + " soa"},
				{"127.2.0.9", "short.example.org.", "10.2.0.1"},
				{"127.3.0.9", "short.example.org.", "soa"},
			} {
				got := s.query(tt.from, tt.name, dns.TypeA, false)
				words := strings.Fields(addresses(got))
				slices.Sort(words)
				want := strings.Fields(tt.want)
				slices.Sort(want)
				if !slices.Equal(words, want) {
					t.Errorf("%s from %s: got %q, want %q", tt.name, tt.from, words, want)
				}
			}
		}
	})

	t.Run("signed", func(t *testing.T) {
		keys := signingKeys(t)
		s := start(t, reach, strings.Replace(corefile, "    cache 30\n", "    cache 30\n    dnssec cluster.local {\n        key file "+keys.file+"\n    }\n", 1))
		for range 2 {
			for from, want := range map[string]string{"127.1.0.9": "10.1.0.1", "127.2.0.9": "10.2.0.1", "127.3.0.9": "nsec rrsig rrsig soa"} {
				m := s.query(from, "hard"+domain, dns.TypeA, false, func(m *dns.Msg) { m.SetEdns0(4096, true) })
				words := strings.Fields(addresses(m))
				slices.Sort(words)
				if got := strings.Join(words, " "); got != want {
					t.Errorf("from %s: got %q, want %q", from, got, want)
				}
				keys.verify(t, m)
			}
		}
	})

	// A cache on a node asks for all clients of the node, from an address of the node.
	t.Run("node-local cache", func(t *testing.T) {
		kubernetes := kubernetes.For(t)
		s := start(t, reach, corefile)
		cache := start(t, reach, `cluster.local:PORT {
    ready READY
    errors
    cache {
        success 9984 5
        denial 9984 5
    }
    loop
    forward . `+s.address+` {
        force_tcp
    }
}
`)
		for range 2 {
			if got := addresses(cache.query("127.1.0.9", "hard"+domain, dns.TypeA, false)); got != "soa" {
				t.Errorf("from a cache that is nowhere: got %q", got)
			}
		}
		kubernetes.Make("", node("d", "b", 0))
		t.Cleanup(func() {
			if err := kubernetes.CoreV1().Nodes().Delete(context.Background(), "node-d", metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
		for _, from := range []string{"127.1.0.9", "127.2.0.9", "127.3.0.9"} {
			cache.await(from, "hard"+domain, "10.2.0.1")
		}
	})

	t.Run("a thousand endpoints", func(t *testing.T) {
		kubernetes := kubernetes.For(t)
		var endpoints, grouped []string
		for i := range 1000 {
			address := fmt.Sprintf("10.2.%d.%d", i/250+1, i%250+1)
			endpoints = append(endpoints, fmt.Sprintf(`{addresses: ["%s"], nodeName: node-b, zone: b, conditions: {ready: true}}`, address))
			grouped = append(grouped, fmt.Sprintf(`{address: %s, zone: b, node: node-b}`, address))
		}
		kubernetes.Make("default", fmt.Sprintf(`{apiVersion: v1, kind: Service, metadata: {name: large}, spec: {clusterIP: None, ports: [{name: http, port: 80}]}}
---
{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: large, labels: {kubernetes.io/service-name: large, service.kubernetes.io/headless: ""}}, addressType: IPv4, ports: [{name: http, port: 80, protocol: TCP}], endpoints: [%s]}
---
{apiVersion: vicinity.dev/v1alpha1, kind: EndpointGroup, metadata: {name: large, labels: {vicinity.dev/service-name: large, service.kubernetes.io/headless: ""}}, spec: {service: large, addressType: IPv4, tiers: ["topology.kubernetes.io/zone"], anyReady: true, endpoints: [%s]}}
`, strings.Join(endpoints, ", "), strings.Join(grouped, ", ")))
		s := start(t, reach, corefile)
		s.await("127.1.0.9", "large"+domain, "soa")
		for _, size := range []uint16{0, 1232, 4096} {
			m := s.query("127.2.0.9", "large"+domain, dns.TypeA, false, func(m *dns.Msg) {
				if size > 0 {
					m.SetEdns0(size, false)
				}
			})
			if !m.Truncated || len(m.Answer) == 0 || m.Len() > max(int(size), dns.MinMsgSize) {
				t.Errorf("size %d: %d records in %d bytes, truncated is %t", size, len(m.Answer), m.Len(), m.Truncated)
			}
		}
		for qtype, records := range map[uint16]int{dns.TypeA: 1000, dns.TypeSRV: 1000} {
			m := s.query("127.2.0.9", "large"+domain, qtype, true)
			// Over TCP SRV records with additional ones are more than a message holds.
			if qtype == dns.TypeA && (m.Truncated || len(m.Answer) != records) || m.Len() > dns.MaxMsgSize {
				t.Errorf("%s: %d records in %d bytes, truncated is %t", dns.TypeToString[qtype], len(m.Answer), m.Len(), m.Truncated)
			}
		}
		if got := addresses(s.query("127.1.0.9", "large"+domain, dns.TypeA, true)); got != "soa" {
			t.Errorf("elsewhere, over TCP: got %q", got)
		}
	})
}
