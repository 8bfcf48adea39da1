package controlplane

import (
	"crypto/tls"
	"crypto/x509"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

func newTestControlPlane(t *testing.T) *ControlPlane {
	t.Helper()
	s := shape.Default()
	dir, err := state.Create(t.TempDir(), s.Name)
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Dir: dir, Shape: s, Port: firstPort, Program: "kubernetes", Gateway: []string{"gateway", "serve"}, Runtime: []string{"runtime", "serve"}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// certificate reads a certificate of a lab.
func certificate(t *testing.T, c *ControlPlane, name string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(c.config.Dir.PKI(name+".crt"), c.config.Dir.PKI(name+".key"))
	if err != nil {
		t.Fatal(err)
	}
	return pair.Leaf
}

func trust(authority *x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	return pool
}

// TestClientCertificates checks that only the right authority admits each client: etcd must not be
// open to clients of the API.
func TestClientCertificates(t *testing.T) {
	c := newTestControlPlane(t)
	authorities := []string{caName, frontProxyCAName, etcdCAName}
	for client, authority := range map[string]string{
		frontProxyName:    frontProxyCAName,
		kubeletClientName: caName,
		etcdClientName:    etcdCAName,
	} {
		for _, other := range authorities {
			_, err := certificate(t, c, client).Verify(x509.VerifyOptions{
				Roots: trust(certificate(t, c, other)), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
			})
			if (err == nil) != (other == authority) {
				t.Errorf("%s as a client of %s: %v", client, other, err)
			}
		}
	}
	_, err := certificate(t, c, apiServerName).Verify(x509.VerifyOptions{
		Roots: trust(certificate(t, c, caName)), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err == nil {
		t.Error("the API server's certificate is valid for clients, too")
	}
}

// TestKeysAreUnreadable checks that other users of the machine cannot read the lab's keys.
func TestKeysAreUnreadable(t *testing.T) {
	c := newTestControlPlane(t)
	err := filepath.WalkDir(c.config.Dir.Path(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || strings.HasSuffix(path, ".crt") || strings.HasSuffix(path, ".pub") {
			return err
		}
		info, err := entry.Info()
		if err == nil && info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s, want -rw-------", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
