package cri

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

type node struct {
	runtimeapi.UnimplementedRuntimeServiceServer
	runtimeapi.UnimplementedImageServiceServer

	shape.Node
	runtime   *host
	shape     shape.Shape
	network   *fabric.Fabric
	slots     fabric.Slots
	streaming streaming.Server

	stop func()

	mu         sync.Mutex
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

// newNode returns the runtime of a node, with the containers that an earlier runtime started.
func newNode(r *host, s shape.Shape, one shape.Node) (*node, error) {
	n := &node{
		Node: one, runtime: r, shape: s, stop: func() {},
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
	}
	var err error
	if n.network, err = fabric.Open(s); err != nil {
		return nil, err
	}
	return n, n.adopt()
}

func (n *node) namespace() string { return shape.NodeNamespace(n.shape.Name, n.Index) }

// Socket is the name of the CRI's socket in a node's folder.
const Socket = "cri.sock"

// Dial checks that the runtime of a node accepts connections.
func Dial(ctx context.Context, d state.Dir, name string) error {
	folder, err := os.Open(d.Node(name))
	if err != nil {
		return err
	}
	defer folder.Close()
	conn, err := new(net.Dialer).DialContext(ctx, "unix", descriptorPath(folder, Socket))
	if err != nil {
		return err
	}
	return conn.Close()
}

func (n *node) serve(ctx context.Context, work *sync.WaitGroup) error {
	folder := n.runtime.State.Node(n.Name)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(folder, Socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	streams, err := n.listenForStreams()
	if err != nil {
		return err
	}
	// Through a descriptor, since the folder's path may be too long for a socket.
	open, err := os.Open(folder)
	if err != nil {
		return errors.Join(err, streams.Close())
	}
	defer open.Close()
	listener, err := net.Listen("unix", descriptorPath(open, Socket))
	if err != nil {
		return errors.Join(err, streams.Close())
	}
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, n)
	runtimeapi.RegisterImageServiceServer(server, n)
	streamServer := &http.Server{Handler: n.streaming, ReadHeaderTimeout: 10 * time.Second}
	work.Go(func() {
		if err := server.Serve(listener); err != nil {
			n.runtime.Log.Error("CRI ended", "node", n.Name, "error", err)
		}
	})
	work.Go(func() {
		if err := streamServer.Serve(streams); !errors.Is(err, http.ErrServerClosed) {
			n.runtime.Log.Error("streams ended", "node", n.Name, "error", err)
		}
	})
	n.stop = sync.OnceFunc(func() {
		server.Stop()
		_ = streamServer.Close()
	})
	// The process ends after it.
	work.Go(func() {
		<-ctx.Done()
		n.stop()
	})
	return nil
}

// listenForStreams listens in the node's network, where its kubelet runs.
func (n *node) listenForStreams() (net.Listener, error) {
	listener, err := fabric.Listen(n.namespace(), "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: listener.Addr().String()}
	n.streaming, err = streaming.NewServer(config, streams{n})
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener, nil
}

// remove ends all containers of a removed node, and deletes their records.
func (n *node) remove() {
	n.stop()
	n.mu.Lock()
	var ids []string
	for id := range n.sandboxes {
		ids = append(ids, id)
	}
	n.mu.Unlock()
	for _, id := range ids {
		if err := n.removeSandbox(context.Background(), id); err != nil {
			n.runtime.Log.Error("sandbox of a removed node cannot be removed", "node", n.Name, "sandbox", id, "error", err)
		}
	}
	if err := os.RemoveAll(n.runtime.State.Node(n.Name)); err != nil {
		n.runtime.Log.Error("folder of a removed node cannot be removed", "node", n.Name, "error", err)
	}
}

// Version names the runtime.
func (n *node) Version(context.Context, *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	return &runtimeapi.VersionResponse{Version: "0.1.0", RuntimeName: "vicinity", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status reports that the runtime works.
func (n *node) Status(context.Context, *runtimeapi.StatusRequest) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Status: &runtimeapi.RuntimeStatus{Conditions: []*runtimeapi.RuntimeCondition{
		{Type: runtimeapi.RuntimeReady, Status: true}, {Type: runtimeapi.NetworkReady, Status: true},
	}}}, nil
}

// RuntimeConfig names the cgroup driver, although there are no control groups.
func (n *node) RuntimeConfig(context.Context, *runtimeapi.RuntimeConfigRequest) (*runtimeapi.RuntimeConfigResponse, error) {
	return &runtimeapi.RuntimeConfigResponse{Linux: &runtimeapi.LinuxRuntimeConfiguration{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS}}, nil
}

// UpdateRuntimeConfig ignores the kubelet's settings.
func (n *node) UpdateRuntimeConfig(context.Context, *runtimeapi.UpdateRuntimeConfigRequest) (*runtimeapi.UpdateRuntimeConfigResponse, error) {
	return &runtimeapi.UpdateRuntimeConfigResponse{}, nil
}

// NodeVariable returns the entry that names the node in the environment of its containers.
func NodeVariable(node string) string { return "VICINITY_NODE=" + node }
