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
	"k8s.io/apimachinery/pkg/types"
)

// issue makes a certificate, of its own authority if none is given.
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

// Who has no certificate of the authorities is not answered, where there are any.
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
		{"nobody is asked who it is", nil, nil, true},
		{"the API server", clients, issue(t, authority), true},
		{"a pod without a certificate", clients, nil, false},
		{"one of another authority", clients, issue(t, other), false},
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
		t.Error("a file that is not there is read")
	}
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if clients.authorities() != clients.pool {
		t.Error("a file without a certificate takes the authorities away")
	}
	if _, err := ReadClients(file, logr.Discard()); err == nil || !strings.Contains(err.Error(), "has no certificate in PEM") {
		t.Errorf("a file without a certificate: %v", err)
	}
}

// An authority that comes or goes does so without a restart.
func TestAuthoritiesOfClientsChange(t *testing.T) {
	file := filepath.Join(t.TempDir(), "ca.crt")
	first, second := issue(t, nil), issue(t, nil)
	writeAuthority(t, file, first)
	var said []string
	clients, err := ReadClients(file, funcr.New(func(_, args string) { said = append(said, args) }, funcr.Options{}))
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
			t.Error("a certificate of an authority that is not in the file is taken")
		}
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if err := shows(second); err != nil {
		t.Errorf("the file is away: %v", err)
	}
	if err := shows(second); err != nil || len(said) != 1 || !strings.Contains(said[0], "stay trusted") || !strings.Contains(said[0], file) {
		t.Errorf("that the file is away is said once: %q, %v", said, err)
	}
	writeAuthority(t, file, first)
	if err := shows(first); err != nil || len(said) != 2 || !strings.Contains(said[1], "can be read again") {
		t.Errorf("that it is there again is said: %q, %v", said, err)
	}
	if err := c.verifyClient(tls.ConnectionState{}); err == nil {
		t.Error("a client without a certificate is taken")
	}
}

// The controller connects to its own webhooks to see whether it is ready, and is no stranger there.
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
		t.Error("without a certificate it is ready")
	}
	c.current.Store(issue(t, issue(t, nil)))
	if err := errors.Join(check(request), <-seen); err != nil {
		t.Error(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	if err := check(request); err == nil {
		t.Error("without a server it is ready")
	}
}
