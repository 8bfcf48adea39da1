package main

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/miekg/dns"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"vicinity.dev/vicinity/test/rig"
)

// server is a vicinity-dns in the test's process.
type server struct {
	t        testing.TB
	instance *caddy.Instance
	address  string
}

// freePort returns an unused port.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// start starts a server. In the Corefile, PORT stands for its port, and KUBECONFIG for the line that
// connects to the API server.
func start(t testing.TB, kubeconfig, corefile string) *server {
	t.Helper()
	caddy.Quiet, dnsserver.Quiet = true, true
	s := &server{t: t}
	port := fmt.Sprint(freePort(t))
	s.address = "127.0.0.1:" + port
	corefile = strings.NewReplacer("PORT", port, "KUBECONFIG", "kubeconfig "+kubeconfig).Replace(corefile)
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

// query asks for addresses from an address of this machine.
func (s *server) query(from, name string, change ...func(*dns.Msg)) *dns.Msg {
	s.t.Helper()
	m := new(dns.Msg)
	m.SetQuestion(name, dns.TypeA)
	for _, do := range change {
		do(m)
	}
	client := &dns.Client{Timeout: 5 * time.Second, Dialer: &net.Dialer{LocalAddr: &net.UDPAddr{IP: net.ParseIP(from)}}}
	got, _, err := client.Exchange(m, s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// addresses returns the addresses of an answer, or else its code and other records.
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

func kubeconfig(t testing.TB, config *rest.Config) string {
	t.Helper()
	made := clientcmdapi.NewConfig()
	made.Clusters["lab"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthority: config.CAFile, CertificateAuthorityData: config.CAData}
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

// manifests has the zones a to c with a node each, whose pods have addresses in 127.<n>.0.0/16, and a
// Service with endpoints in two of them.
func manifests() string {
	var b strings.Builder
	endpoint := func(n int) string {
		return fmt.Sprintf(`{addresses: ["10.%d.0.1"], nodeName: node-%[2]s, zone: %[2]s, conditions: {ready: true}}`, n, []string{"", "a", "b", "c"}[n])
	}
	for i, zone := range []string{"a", "b", "c"} {
		fmt.Fprintf(&b, "---\n{apiVersion: v1, kind: Node, metadata: {name: node-%[1]s, labels: {topology.kubernetes.io/zone: %[1]s, kubernetes.io/hostname: node-%[1]s}}, spec: {podCIDR: 127.%[2]d.0.0/16, podCIDRs: [127.%[2]d.0.0/16]}}\n", zone, i+1)
	}
	b.WriteString("---\n{apiVersion: v1, kind: Service, metadata: {name: hard}, spec: {clusterIP: None, ports: [{name: http, port: 80}]}}\n")
	fmt.Fprintf(&b, "---\n{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {name: hard, labels: {kubernetes.io/service-name: hard, service.kubernetes.io/headless: \"\"}}, addressType: IPv4, ports: [{name: http, port: 80, protocol: TCP}], endpoints: [%s, %s]}\n", endpoint(1), endpoint(2))
	b.WriteString("---\n{apiVersion: vicinity.dev/v1alpha1, kind: EndpointGroup, metadata: {name: hard, labels: {vicinity.dev/service-name: hard, service.kubernetes.io/headless: \"\"}}, spec: {service: hard, addressType: IPv4, tiers: [\"topology.kubernetes.io/zone\"], anyReady: true, endpoints: [{address: 10.1.0.1, zone: a, node: node-a}, {address: 10.2.0.1, zone: b, node: node-b}]}}\n")
	return b.String()
}

const servedCorefile = `.:PORT {
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

// Answers pass the plugins around vicinity, with the API server of a lab.
func TestPluginsBeforeAndAfter(t *testing.T) {
	kubernetes := rig.Start(t)
	reach := kubeconfig(t, kubernetes.Config())
	kubernetes.Make("default", manifests())

	t.Run("aliases", func(t *testing.T) {
		zone := filepath.Join(t.TempDir(), "db.example")
		text := "$ORIGIN example.org.\n@ 3600 IN SOA ns hostmaster 1 7200 3600 1209600 3600\n@ IN NS ns\nwww IN CNAME hard" + domain + "\n"
		if err := os.WriteFile(zone, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := start(t, reach, strings.Replace(servedCorefile, "    cache 30\n", "    cache 30\n    file "+zone+" example.org\n    rewrite stop {\n        name exact short.example.org hard"+strings.TrimSuffix(domain, ".")+"\n        answer auto\n    }\n", 1))
		for range 2 { // the cache holds the alias with all of its addresses
			for _, tt := range []struct{ from, name, want string }{
				{"127.1.0.9", "www.example.org.", "->hard" + domain + " 10.1.0.1"},
				{"127.2.0.9", "www.example.org.", "->hard" + domain + " 10.2.0.1"},
				{"127.3.0.9", "www.example.org.", "->hard" + domain + " soa"},
				{"127.2.0.9", "short.example.org.", "10.2.0.1"},
				{"127.3.0.9", "short.example.org.", "soa"},
			} {
				got := s.query(tt.from, tt.name)
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
		s := start(t, reach, strings.Replace(servedCorefile, "    cache 30\n", "    cache 30\n    dnssec cluster.local {\n        key file "+keys.file+"\n    }\n", 1))
		for range 2 {
			for from, want := range map[string]string{"127.1.0.9": "10.1.0.1", "127.2.0.9": "10.2.0.1", "127.3.0.9": "nsec rrsig rrsig soa"} {
				m := s.query(from, "hard"+domain, func(m *dns.Msg) { m.SetEdns0(4096, true) })
				words := strings.Fields(addresses(m))
				slices.Sort(words)
				if got := strings.Join(words, " "); got != want {
					t.Errorf("from %s: got %q, want %q", from, got, want)
				}
				keys.verify(t, m)
			}
		}
	})
}
