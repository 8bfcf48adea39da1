package agent

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
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
