package controlplane

import (
	"bytes"
	"crypto/x509"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"vicinity.dev/vicinity/lab/shape"
)

// certificate reads a certificate of a lab.
func certificate(t *testing.T, c *ControlPlane, name string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(c.config.Dir.PKI(name + ".crt"))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := decode(text, x509.ParseCertificate)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

func trust(authority *x509.Certificate) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(authority)
	return pool
}

// TestServers checks that each server is who its clients will ask for, in all years
// that a lab may last.
func TestServers(t *testing.T) {
	c := newTestControlPlane(t, shapes(t)["ha"])
	for _, server := range []struct {
		certificate, authority string
		hosts                  []string
	}{
		{apiServerName, caName, []string{
			"127.0.0.1", "172.30.0.1", "172.30.0.2", "fd00:172:30::1", "10.96.0.1", "fd00:10:96::1",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local", "localhost",
		}},
		{ControllerManager, caName, []string{"127.0.0.1", "localhost"}},
		{Scheduler, caName, []string{"127.0.0.1", "localhost"}},
		{etcdServerName, etcdCAName, []string{"127.0.0.1", "localhost"}},
	} {
		for _, host := range server.hosts {
			for _, after := range []time.Duration{0, 9 * 365 * 24 * time.Hour} {
				_, err := certificate(t, c, server.certificate).Verify(x509.VerifyOptions{
					DNSName: host, Roots: trust(certificate(t, c, server.authority)), CurrentTime: time.Now().Add(after),
					KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
				})
				if err != nil {
					t.Errorf("%s as %s after %s: %v", server.certificate, host, after, err)
				}
			}
		}
	}
}

// TestClients checks which authority lets each client in, and that no other does: etcd
// must not be open to whoever may speak to the API.
func TestClients(t *testing.T) {
	c := newTestControlPlane(t, shape.Default())
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
		t.Error("the certificate of the API server is good for a client too")
	}
}

// TestKubeconfigs checks who each file makes its reader, and where it sends them.
func TestKubeconfigs(t *testing.T) {
	c := newTestControlPlane(t, shapes(t)["ha"])
	dir := c.config.Dir
	for path, want := range map[string]struct {
		server, user string
		groups       []string
	}{
		dir.Kubeconfig(): {"https://127.0.0.1:20000", "admin", []string{"system:masters"}},
		dir.ComponentKubeconfig(ControllerManager): {"https://172.30.0.1:7443", "system:kube-controller-manager", nil},
		dir.ComponentKubeconfig(Scheduler):         {"https://172.30.0.1:7443", "system:kube-scheduler", nil},
		dir.ComponentKubeconfig(KubeProxy):         {"https://172.30.0.1:7443", "system:kube-proxy", nil},
		dir.ComponentKubeconfig(Kubelet):           {"https://172.30.0.1:7443", "vicinity:lab-kubelet", []string{"system:nodes"}},
		dir.ComponentKubeconfig(Agent):             {"https://172.30.0.1:7443", "vicinity:lab-agent", []string{"system:nodes"}},
		dir.ComponentKubeconfig(Storage):           {"https://172.30.0.1:7443", "vicinity:lab-storage", nil},
	} {
		config, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if config.Host != want.server {
			t.Errorf("%s: the server is %s, want %s", path, config.Host, want.server)
		}
		user, err := decode(config.CertData, x509.ParseCertificate)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if user.Subject.CommonName != want.user || !slices.Equal(user.Subject.Organization, want.groups) {
			t.Errorf("%s: the user is %s, want %s of %v", path, user.Subject, want.user, want.groups)
		}
	}
}

// TestMadeOnce makes a control plane twice: certificates and kubeconfigs stay, since
// what runs uses them.
func TestMadeOnce(t *testing.T) {
	c := newTestControlPlane(t, shape.Default())
	before := contents(t, c.config.Dir.Path())
	if _, err := New(c.config); err != nil {
		t.Fatal(err)
	}
	after := contents(t, c.config.Dir.Path())
	if len(before) != len(after) {
		t.Errorf("%d files became %d", len(before), len(after))
	}
	for path, old := range before {
		if !bytes.Equal(old, after[path]) {
			t.Errorf("%s was made anew", path)
		}
	}
}

// TestPrivate checks that nobody else on the machine can read what opens the lab.
func TestPrivate(t *testing.T) {
	c := newTestControlPlane(t, shape.Default())
	for path := range contents(t, c.config.Dir.Path()) {
		if strings.HasSuffix(path, ".crt") || strings.HasSuffix(path, ".pub") {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %s, want only its owner to read it", path, info.Mode())
		}
	}
}

// contents are all files below a folder.
func contents(t *testing.T, folder string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	if err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		all[path], err = os.ReadFile(path)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// TestIssue issues a certificate for a node that serves, as a kubelet does.
func TestIssue(t *testing.T) {
	c := newTestControlPlane(t, shape.Default())
	ca, err := OpenAuthority(c.config.Dir.PKI(""))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := ca.Issue(Identity{Name: "system:node:a-1", IPs: []netip.Addr{netip.MustParseAddr("172.30.1.2")}})
	if err != nil {
		t.Fatal(err)
	}
	node, err := decode(pair.Certificate, x509.ParseCertificate)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := node.Verify(x509.VerifyOptions{DNSName: "172.30.1.2", Roots: trust(certificate(t, c, caName))}); err != nil {
		t.Errorf("the node's certificate: %v", err)
	}
	if _, err := OpenAuthority(t.TempDir()); err == nil || !os.IsNotExist(err) {
		t.Errorf("opening an authority that is not there: %v", err)
	}
	broken := t.TempDir()
	for _, file := range []string{"ca.crt", "ca.key"} {
		if err := os.WriteFile(filepath.Join(broken, file), []byte("no PEM"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := OpenAuthority(broken); err == nil || !strings.HasSuffix(err.Error(), "ca.crt: is not PEM") {
		t.Errorf("opening an authority that is broken: %v", err)
	}
}
