package controlplane

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// The certificates of a lab, as file names without .crt and .key. There are three
// authorities: one for clients and servers of the API, one for requests of the aggregator,
// and one for etcd, which must not be open to all clients of the API.
const (
	caName             = "ca"
	frontProxyCAName   = "front-proxy-ca"
	frontProxyName     = "front-proxy-client"
	etcdCAName         = "etcd-ca"
	etcdServerName     = "etcd"
	etcdClientName     = "apiserver-etcd-client"
	apiServerName      = "apiserver"
	kubeletClientName  = "apiserver-kubelet-client"
	serviceAccountName = "service-account"
)

// The users of the lab's API. The API server itself grants the rights of system users.
const (
	userAdmin             = "admin"
	userControllerManager = "system:kube-controller-manager"
	userScheduler         = "system:kube-scheduler"
	userProxy             = "system:kube-proxy"
	userKubelet           = "vicinity:lab-kubelet"
	userAgent             = "vicinity:lab-agent"
	userStorage           = "vicinity:lab-storage"
	userKubeletClient     = "kube-apiserver-kubelet-client"

	// groupMasters may do anything.
	groupMasters = "system:masters"
	// groupNodes has its own priority level in the API server.
	groupNodes = "system:nodes"
)

// makePKI makes missing certificates. It keeps existing ones, which may be in use.
func makePKI(pki string, s shape.Shape) error {
	if err := os.MkdirAll(pki, 0o700); err != nil {
		return err
	}
	ca, err := ensureAuthority(filepath.Join(pki, caName), "vicinity-lab-"+s.Name)
	if err != nil {
		return err
	}
	frontProxyCA, err := ensureAuthority(filepath.Join(pki, frontProxyCAName), "vicinity-lab-"+s.Name+"-front-proxy")
	if err != nil {
		return err
	}
	etcdCA, err := ensureAuthority(filepath.Join(pki, etcdCAName), "vicinity-lab-"+s.Name+"-etcd")
	if err != nil {
		return err
	}
	local := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}
	for _, leaf := range []struct {
		authority *Authority
		file      string
		identity  Identity
	}{
		{etcdCA, etcdServerName, Identity{Name: Etcd, DNS: []string{"localhost"}, IPs: local, Peer: true}},
		{etcdCA, etcdClientName, Identity{Name: etcdClientName}},
		{frontProxyCA, frontProxyName, Identity{Name: frontProxyName}},
		{ca, kubeletClientName, Identity{Name: userKubeletClient}},
		{ca, apiServerName, apiServerIdentity(s)},
		{ca, ControllerManager, Identity{Name: ControllerManager, DNS: []string{"localhost"}, IPs: local}},
		{ca, Scheduler, Identity{Name: Scheduler, DNS: []string{"localhost"}, IPs: local}},
	} {
		if err := ensureLeaf(filepath.Join(pki, leaf.file), leaf.authority, leaf.identity); err != nil {
			return err
		}
	}
	return ensureServiceAccountKey(filepath.Join(pki, serviceAccountName))
}

// apiServerIdentity returns an identity with all addresses of the API server: the Service's, its
// own, and the gateway's.
func apiServerIdentity(s shape.Shape) Identity {
	id := Identity{
		Name: KubeAPIServer,
		DNS: []string{
			"kubernetes", "kubernetes.default", "kubernetes.default.svc",
			"kubernetes.default.svc.cluster.local", "localhost",
		},
		IPs: []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()},
	}
	id.IPs = append(id.IPs, s.FabricAddrs()...)
	for _, cidr := range s.ServiceCIDRs() {
		id.IPs = append(id.IPs, cidr.Addr().Next())
	}
	return id
}

func ensureAuthority(base, name string) (*Authority, error) {
	authority, err := openAuthority(base)
	if errors.Is(err, fs.ErrNotExist) {
		return newAuthority(base, name)
	}
	return authority, err
}

func ensureLeaf(base string, authority *Authority, id Identity) error {
	if _, err := os.Stat(base + ".crt"); err == nil {
		return nil
	}
	pair, err := authority.Issue(id)
	if err != nil {
		return err
	}
	return pair.write(base)
}

// ensureServiceAccountKey makes base.key, which signs service account tokens, and base.pub,
// which verifies them.
func ensureServiceAccountKey(base string) error {
	if _, err := os.Stat(base + ".pub"); err == nil {
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making the service account key: %w", err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("writing the service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return fmt.Errorf("writing the service account key: %w", err)
	}
	if err := state.WriteFile(base+".key", pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}), 0o600); err != nil {
		return err
	}
	return state.WriteFile(base+".pub", pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), 0o644)
}
