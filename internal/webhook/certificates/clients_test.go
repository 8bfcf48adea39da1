package certificates

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// Who has no certificate of the authorities is not answered, where there are any.
func TestClientsAreKnown(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "ca.crt")
	authority, other := issue(t, nil), issue(t, nil)
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority.Certificate[0]}), 0o600); err != nil {
		t.Fatal(err)
	}
	clients, err := ReadClients(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		name     string
		clients  *x509.CertPool
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
		config := &tls.Config{RootCAs: clients, ServerName: "example.com", MinVersion: tls.VersionTLS12}
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
	if _, err := ReadClients(filepath.Join(folder, "none")); err == nil {
		t.Error("a file that is not there is read")
	}
	if err := os.WriteFile(file, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadClients(file); err == nil || !strings.Contains(err.Error(), "has no certificate in PEM") {
		t.Errorf("a file without a certificate: %v", err)
	}
}
