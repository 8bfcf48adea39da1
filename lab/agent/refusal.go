package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/lab/controlplane"
)

// refused answers requests for logs and streams of a node without network.
const refused = "this node has no network, and its pods are objects of the API and nothing else: they print nothing and run nothing"

// refuser answers on the loopback device for all nodes without network, whose own addresses
// do not exist.
type refuser struct {
	once sync.Once
	port int
	err  error
}

// referToRefuser makes a node's object point to the refuser.
func (n *node) referToRefuser(object *corev1.Node) error {
	r := &n.agent.refuser
	r.once.Do(func() { r.port, r.err = n.serveRefusal() })
	if r.err != nil {
		return fmt.Errorf("answering for nodes without network: %w", r.err)
	}
	object.Status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: loopback.String()},
		{Type: corev1.NodeHostName, Address: n.Name},
	}
	object.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(r.port)
	return nil
}

// serveRefusal serves until the agent ends, and returns the port.
func (n *node) serveRefusal() (int, error) {
	config, err := n.tls()
	if err != nil {
		return 0, err
	}
	listener, err := tls.Listen("tcp", net.JoinHostPort(loopback.String(), "0"), config)
	if err != nil {
		return 0, err
	}
	server := &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, refused, http.StatusBadRequest) }),
	}
	go func() {
		if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			n.agent.Log.Error("refusals ended", "error", err)
		}
	}()
	context.AfterFunc(n.ctx, func() { _ = server.Close() })
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// apiServerName is the only client that may use a node's kubelet API. The API server
// authorizes the users that it forwards requests for.
const apiServerName = "kube-apiserver-kubelet-client"

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// tls returns a configuration with a certificate of the node, which accepts only the API
// server.
func (n *node) tls() (*tls.Config, error) {
	ca, err := controlplane.OpenAuthority(n.agent.State.PKI(""))
	if err != nil {
		return nil, err
	}
	id := controlplane.Identity{Name: "system:node:" + n.Name, Groups: []string{"system:nodes"}, DNS: []string{n.Name}, IPs: []netip.Addr{loopback}}
	pair, err := ca.Issue(id)
	if err != nil {
		return nil, err
	}
	certificate, err := tls.X509KeyPair(pair.Certificate, pair.Key)
	if err != nil {
		return nil, err
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(ca.PEM)
	return &tls.Config{
		Certificates: []tls.Certificate{certificate},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    clients,
		MinVersion:   tls.VersionTLS12,
		// Streams take over the connection, which HTTP/2 does not allow.
		NextProtos: []string{"http/1.1"},
		VerifyConnection: func(s tls.ConnectionState) error {
			if name := s.PeerCertificates[0].Subject.CommonName; name != apiServerName {
				return fmt.Errorf("client %q: only %q may ask a node", name, apiServerName)
			}
			return nil
		},
	}, nil
}
