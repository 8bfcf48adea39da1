package agent

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cri-streaming/pkg/streaming/portforward"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/fabric"
)

// apiServerName is the only client that may use a node's kubelet API. The API server
// authorizes the users that it forwards requests for.
const apiServerName = "kube-apiserver-kubelet-client"

var loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})

func (n *node) serve() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.Fake || n.server != nil || n.gone || n.stopped.Load() || n.object == nil {
		return
	}
	config, err := n.tls()
	if err != nil {
		n.agent.Log.Error("kubelet API has no certificate", "node", n.Name, "error", err)
		return
	}
	listener, err := fabric.Listen(n.namespace(), "tcp", net.JoinHostPort("", strconv.Itoa(kubeletPort)))
	if err != nil {
		n.agent.Log.Error("kubelet API cannot be served", "node", n.Name, "error", err)
		return
	}
	connections := newConnections(tls.NewListener(listener, config))
	server := &http.Server{Handler: n.handler(), ReadHeaderTimeout: 10 * time.Second, ConnContext: withConnection}
	n.server, n.connections = server, connections
	go func() {
		if err := server.Serve(connections); !errors.Is(err, http.ErrServerClosed) {
			n.agent.Log.Error("kubelet API ended", "node", n.Name, "error", err)
		}
	}()
	context.AfterFunc(n.ctx, n.unserve)
}

func (n *node) unserve() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.server != nil {
		_ = n.server.Close()
		// The server does not know the connections that streams took over.
		n.connections.closeAll()
		n.server, n.connections = nil, nil
	}
}

// tls returns a configuration with a certificate of the node, which accepts only the API
// server.
func (n *node) tls() (*tls.Config, error) {
	ca, err := controlplane.OpenAuthority(n.agent.State.PKI(""))
	if err != nil {
		return nil, err
	}
	id := controlplane.Identity{Name: "system:node:" + n.Name, Groups: []string{"system:nodes"}, DNS: []string{n.Name}, IPs: n.shape.NodeAddrs(n.Node)}
	id.IPs = append(id.IPs, loopback)
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

func (n *node) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "ok") })
	mux.HandleFunc("GET /pods", n.servePods)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", n.serveLogs)
	for _, uid := range []string{"", "/{uid}"} {
		mux.HandleFunc("/exec/{namespace}/{pod}"+uid+"/{container}", n.serveExec)
		mux.HandleFunc("/attach/{namespace}/{pod}"+uid+"/{container}", n.serveAttach)
		mux.HandleFunc("/portForward/{namespace}/{pod}"+uid, n.servePortForward)
	}
	return mux
}

// find finds the pod of a request, or answers that the node has no such pod.
func (n *node) find(w http.ResponseWriter, r *http.Request) (*worker, podView, bool) {
	found := n.agent.pods.workerOf(n, r.PathValue("namespace"), r.PathValue("pod"))
	if found != nil {
		if view := found.snap.get(); view.pod != nil {
			return found, view, true
		}
	}
	http.Error(w, fmt.Sprintf("pod %q not found", r.PathValue("pod")), http.StatusNotFound)
	return nil, podView{}, false
}

func (n *node) servePods(w http.ResponseWriter, _ *http.Request) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{Kind: "PodList", APIVersion: "v1"}, Items: []corev1.Pod{}}
	for _, worker := range n.agent.pods.workersOn(n.Name) {
		if view := worker.snap.get(); view.pod != nil {
			list.Items = append(list.Items, *view.pod)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(list); err != nil {
		n.agent.Log.Warn("pods cannot be listed", "node", n.Name, "error", err)
	}
}

func (n *node) serveLogs(w http.ResponseWriter, r *http.Request) {
	worker, view, ok := n.find(w, r)
	if !ok {
		return
	}
	name, pod := r.PathValue("container"), r.PathValue("pod")
	if findContainer(view.pod, name) == nil {
		http.Error(w, fmt.Sprintf("container %q not found in pod %q", name, pod), http.StatusNotFound)
		return
	}
	options, err := parseLogOptions(r.URL.Query(), n.agent.now())
	if err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	a := view.attempts[name].current
	switch {
	case options.previous:
		if a = view.attempts[name].previous; a == nil {
			http.Error(w, fmt.Sprintf("previous terminated container %q in pod %q not found", name, pod), http.StatusBadRequest)
			return
		}
	case a == nil:
		waiting := view.attempts[name].waiting
		if waiting == "" {
			waiting = "ContainerCreating"
		}
		http.Error(w, fmt.Sprintf("container %q in pod %q is waiting to start: %s", name, pod, waiting), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	stream := logStream{
		logOptions: options, path: worker.logPath(name, a.Number), to: w,
		ended: func() bool {
			now := worker.snap.get().current(name)
			return now == nil || now.Number != a.Number
		},
	}
	if options.follow {
		stream.to = flushing{w}
		w.WriteHeader(http.StatusOK)
		flushing{w}.flush()
	}
	if err := stream.copy(r.Context()); errors.Is(err, os.ErrNotExist) {
		// A container that could not be started has no log.
		return
	} else if err != nil && r.Context().Err() == nil {
		n.agent.Log.Warn("log cannot be sent", "pod", pod, "container", name, "error", err)
	}
}

// flushing sends each write at once.
type flushing struct{ http.ResponseWriter }

func (f flushing) flush() { _ = http.NewResponseController(f.ResponseWriter).Flush() }

// Write writes and flushes.
func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	f.flush()
	return n, err
}

// A kubelet's limits for streams.
const (
	streamIdle     = 4 * time.Hour
	streamCreation = remotecommand.DefaultStreamCreationTimeout
)

func (n *node) serveExec(w http.ResponseWriter, r *http.Request) {
	worker, view, ok := n.find(w, r)
	if !ok {
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, r, streams{worker}, view.pod.Name, string(view.pod.UID), r.PathValue("container"),
		r.URL.Query()["command"], options, streamIdle, streamCreation, remotecommand.SupportedStreamingProtocols)
}

func (n *node) serveAttach(w http.ResponseWriter, r *http.Request) {
	worker, view, ok := n.find(w, r)
	if !ok {
		return
	}
	options, err := remotecommand.NewOptions(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeAttach(w, r, streams{worker}, view.pod.Name, string(view.pod.UID), r.PathValue("container"),
		options, streamIdle, streamCreation, remotecommand.SupportedStreamingProtocols)
}

func (n *node) servePortForward(w http.ResponseWriter, r *http.Request) {
	worker, view, ok := n.find(w, r)
	if !ok {
		return
	}
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, streams{worker}, view.pod.Name, string(view.pod.UID), options,
		streamIdle, streamCreation, portforward.SupportedProtocols)
}
