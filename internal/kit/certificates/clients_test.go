package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// issue returns a certificate, signed by the given authority or by itself.
func issue(t *testing.T, by *tls.Certificate) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: by == nil, BasicConstraintsValid: true, DNSNames: []string{"example.com"},
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	parent, signer := template, any(key)
	if by != nil {
		parent, signer = by.Leaf, by.PrivateKey
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

func writeAuthority(t *testing.T, file string, authority *tls.Certificate) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
}

// With authorities configured, only clients with one of their certificates get an answer.
func TestClientsAreKnown(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "ca.crt")
	authority, other := issue(t, nil), issue(t, nil)
	writeAuthority(t, file, authority)
	clients, err := ReadClients(file, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Leaf)
	for _, test := range []struct {
		name     string
		clients  *Clients
		with     *tls.Certificate
		answered bool
	}{
		{"no authorities", nil, nil, true},
		{"the API server", clients, issue(t, authority), true},
		{"a pod without a certificate", clients, nil, false},
		{"a certificate of another authority", clients, issue(t, other), false},
	} {
		c, err := New(Options{Secret: types.NamespacedName{Namespace: "vicinity-system", Name: "webhook"}, Names: []string{"a"}, Clients: test.clients})
		if err != nil {
			t.Fatal(err)
		}
		c.current.Store(issue(t, authority))
		asked := false
		server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
		server.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		server.Config.ErrorLog = nil
		c.Configure(server.TLS)
		server.StartTLS()
		config := &tls.Config{RootCAs: roots, ServerName: "example.com", MinVersion: tls.VersionTLS12}
		if test.with != nil {
			config.Certificates = []tls.Certificate{*test.with}
		}
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
		response, err := client.Get(server.URL)
		if err == nil {
			_, _ = io.Copy(io.Discard, response.Body)
			_ = response.Body.Close()
		}
		server.Close()
		if asked != test.answered || (err == nil) != test.answered {
			t.Errorf("%s: answered %t, %v", test.name, asked, err)
		}
	}
	if _, err := ReadClients(filepath.Join(folder, "none"), logr.Discard()); err == nil {
		t.Error("a missing file gives no error")
	}
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if clients.authorities() != clients.pool {
		t.Error("a file without a certificate removes the authorities")
	}
	if _, err := ReadClients(file, logr.Discard()); err == nil || !strings.Contains(err.Error(), "has no certificate in PEM") {
		t.Errorf("a file without a certificate: %v", err)
	}
}

// Authorities change without a restart.
func TestAuthoritiesOfClientsChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	first, second := issue(t, nil), issue(t, nil)
	writeAuthority(t, file, first)
	var logged []string
	clients, err := ReadClients(file, funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	c := &Certificates{options: Options{Clients: clients}}
	shows := func(by *tls.Certificate) error {
		return c.verifyClient(tls.ConnectionState{PeerCertificates: []*x509.Certificate{issue(t, by).Leaf}})
	}
	for _, now := range []struct{ in, out *tls.Certificate }{{first, second}, {second, first}} {
		writeAuthority(t, file, now.in)
		if err := shows(now.in); err != nil {
			t.Errorf("a certificate of an authority in the file: %v", err)
		}
		if err := shows(now.out); err == nil {
			t.Error("a certificate of an authority that is not in the file is accepted")
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := shows(second); err != nil {
		t.Errorf("without the file: %v", err)
	}
	if err := shows(second); err != nil || len(logged) != 1 || !strings.Contains(logged[0], "stay trusted") || !strings.Contains(logged[0], file) {
		t.Errorf("the log about the missing file is %q, want one line: %v", logged, err)
	}
	writeAuthority(t, file, first)
	if err := shows(first); err != nil || len(logged) != 2 || !strings.Contains(logged[1], "readable again") {
		t.Errorf("the log about the file's return is %q: %v", logged, err)
	}
	if err := c.verifyClient(tls.ConnectionState{}); err == nil {
		t.Error("a client without a certificate is accepted")
	}
}

// The readiness check of the controller connects to its own webhooks, which accept it.
func TestReadinessWithClients(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	authority := issue(t, nil)
	writeAuthority(t, file, authority)
	clients, err := ReadClients(file, logr.Discard())
	if err != nil {
		t.Fatal(err)
	}
	c := &Certificates{options: Options{Clients: clients}}
	config := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: []string{"h2"}}
	c.Configure(config)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan error, 1)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			seen <- connection.(*tls.Conn).HandshakeContext(t.Context())
			_ = connection.Close()
		}
	}()
	check := c.Serving(listener.Addr().(*net.TCPAddr).Port)
	request := httptest.NewRequest(http.MethodGet, "/readyz", nil)
	if err := check(request); err == nil || <-seen == nil {
		t.Error("ready without a certificate")
	}
	c.current.Store(issue(t, issue(t, nil)))
	if err := errors.Join(check(request), <-seen); err != nil {
		t.Error(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := check(request); err == nil {
		t.Error("ready without a server")
	}
}

// secretOf returns a Secret with a certificate.
func secretOf(t *testing.T, certificate *tls.Certificate) *corev1.Secret {
	t.Helper()
	key, err := x509.MarshalECPrivateKey(certificate.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	return &corev1.Secret{Data: map[string][]byte{
		corev1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Certificate[0]}),
		corev1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key}),
	}}
}

// A new certificate is served at once. A deleted, empty or broken Secret changes nothing.
func TestRenewal(t *testing.T) {
	c := &Certificates{}
	l := &loader{certificates: c, folder: t.TempDir(), log: logr.Discard()}
	if _, err := c.get(nil); err == nil {
		t.Error("a certificate is served before the Secret has one")
	}
	first, second := issue(t, nil), issue(t, nil)
	for _, step := range []struct {
		name string
		load func()
		want *tls.Certificate
	}{
		{"the first", func() { l.load(secretOf(t, first)) }, first},
		{"renewed", func() { l.load(secretOf(t, second)) }, second},
		{"empty", func() { l.load(&corev1.Secret{}) }, second},
		{"broken", func() { l.load(&corev1.Secret{Data: map[string][]byte{corev1.TLSCertKey: []byte("x")}}) }, second},
		{"deleted", func() { l.logDeletion(nil) }, second},
	} {
		step.load()
		if got, err := c.get(nil); err != nil || !got.Leaf.Equal(step.want.Leaf) {
			t.Errorf("%s: served is %v, %v", step.name, got, err)
		}
	}
	if _, err := os.Stat(filepath.Join(l.folder, corev1.TLSCertKey)); err != nil {
		t.Errorf("the rotator's file is missing: %v", err)
	}
}

// roundTrip is a function that answers requests.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// Lists and watches of Secrets get the name of the one Secret. Other requests stay unchanged.
func TestOneSecretIsAskedFor(t *testing.T) {
	sent := ""
	s := selectSecret{secret: types.NamespacedName{Namespace: "system", Name: "webhook"}, next: roundTrip(func(request *http.Request) (*http.Response, error) {
		sent = request.URL.RequestURI()
		return nil, nil
	})}
	for _, test := range []struct{ method, asked, sent string }{
		{"GET", "/api/v1/namespaces/system/secrets?limit=500&resourceVersion=0", "/api/v1/namespaces/system/secrets?fieldSelector=metadata.name%3Dwebhook&limit=500&resourceVersion=0"},
		{"GET", "/prefix/api/v1/namespaces/system/secrets?watch=true", "/prefix/api/v1/namespaces/system/secrets?fieldSelector=metadata.name%3Dwebhook&watch=true"},
		{"GET", "/api/v1/namespaces/system/secrets/webhook", "/api/v1/namespaces/system/secrets/webhook"},
		{"GET", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?watch=true", "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations?watch=true"},
		{"PUT", "/api/v1/namespaces/system/secrets/webhook", "/api/v1/namespaces/system/secrets/webhook"},
	} {
		request, err := http.NewRequestWithContext(t.Context(), test.method, "https://api"+test.asked, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.RoundTrip(request); err != nil || sent != test.sent {
			t.Errorf("%s %s: sent %s, %v; want %s", test.method, test.asked, sent, err, test.sent)
		}
		if got := request.URL.RequestURI(); got != test.asked {
			t.Errorf("the client's own request is changed to %s", got)
		}
	}
}
