package lab

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// ListenTLS listens on a free port that the API server of a lab with a network reaches, for
// webhooks of tests. Clients verify its certificate by the authority, which is PEM.
func (c *Cluster) ListenTLS() (listener net.Listener, authority []byte, err error) {
	s := c.Shape()
	ca, err := controlplane.OpenAuthority(c.dir.PKI(""))
	if err != nil {
		return nil, nil, fmt.Errorf("opening the authority of lab %q: %w", s.Name, err)
	}
	pair, err := ca.Issue(controlplane.Identity{Name: "vicinity-lab-test", IPs: []netip.Addr{shape.APIServer}})
	if err != nil {
		return nil, nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the certificate of a listener: %w", err)
	}
	listener, err = fabric.Listen(shape.FabricNamespace(s.Name), "tcp", netip.AddrPortFrom(shape.APIServer, 0).String())
	if err != nil {
		return nil, nil, err
	}
	return tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12}), ca.PEM, nil
}
