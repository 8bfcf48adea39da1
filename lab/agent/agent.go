package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

type agent struct {
	// State is the lab's state folder.
	State   state.Dir
	Log     *slog.Logger
	client  kubernetes.Interface
	version string
	fakes   *fakes

	mu    sync.Mutex
	shape shape.Shape
	nodes map[string]*node
	leaseRenewal
}

// Run stands in for the nodes of a lab that have no network, until the context ends.
func Run(ctx context.Context, d state.Dir) error {
	lab, err := d.Load()
	if err != nil {
		return err
	}
	client, err := newClient(d)
	if err != nil {
		return err
	}
	a := &agent{State: d, Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), client: client, nodes: map[string]*node{}}
	a.fakes = newFakes(a)
	if a.version, err = a.serverVersion(ctx); err != nil {
		return err
	}
	a.setNodes(ctx, lab.Shape)
	var work sync.WaitGroup
	for _, f := range []func(context.Context){a.renewLeases, a.watchPods, a.watchNodes, a.watchControl} {
		work.Go(func() { f(ctx) })
	}
	d.Follow(ctx, a.Log, func(lab state.Lab) { a.setNodes(ctx, lab.Shape) })
	work.Wait()
	return nil
}

// newClient returns a client without a rate limit: the API server has its own.
func newClient(d state.Dir) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", d.ComponentKubeconfig(controlplane.Agent))
	if err != nil {
		return nil, fmt.Errorf("reading the agent's kubeconfig: %w", err)
	}
	config.QPS = -1
	config.ContentType = "application/vnd.kubernetes.protobuf"
	config.AcceptContentTypes = "application/vnd.kubernetes.protobuf,application/json"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making the agent's client: %w", err)
	}
	return client, nil
}

// serverVersion waits for the API server and returns its version, which all nodes report.
func (a *agent) serverVersion(ctx context.Context) (string, error) {
	logged := false
	for {
		version, err := a.client.Discovery().ServerVersion()
		if err == nil {
			return version.GitVersion, nil
		}
		if !logged {
			logged = true
			a.Log.Warn("API server does not answer yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return "", errors.Join(ctx.Err(), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (a *agent) node(name string) *node {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.nodes[name]
}

func (a *agent) allNodes() []*node {
	a.mu.Lock()
	defer a.mu.Unlock()
	var nodes []*node
	for _, name := range slices.Sorted(maps.Keys(a.nodes)) {
		nodes = append(nodes, a.nodes[name])
	}
	return nodes
}

// setNodes registers new nodes of the shape, and forgets removed ones.
func (a *agent) setNodes(ctx context.Context, s shape.Shape) {
	want := map[string]shape.Node{}
	nodes := s.FakeNodeList()
	if s.ControlPlaneOnly {
		nodes = append(nodes, s.Nodes()...)
	}
	for _, n := range nodes {
		want[n.Name] = n
	}
	stopped, err := StoppedNodes(a.State)
	if err != nil {
		a.Log.Error("control files cannot be read", "error", err)
	}
	var added, removed []*node
	a.mu.Lock()
	a.shape = s
	for name, n := range a.nodes {
		if _, ok := want[name]; !ok {
			removed = append(removed, n)
			delete(a.nodes, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if a.nodes[name] == nil {
			n := &node{Node: want[name], agent: a, shape: s, ctx: ctx}
			n.stopped.Store(slices.Contains(stopped, name))
			a.nodes[name] = n
			added = append(added, n)
		}
	}
	a.mu.Unlock()
	for _, n := range removed {
		n.markRemoved()
		a.fakes.removeNode(n.Name)
	}
	go workqueue.ParallelizeUntil(ctx, 16, len(added), func(i int) { added[i].join() })
	a.setLeaseNodes(a.allNodes(), s.Timing)
}

func (a *agent) setStopped(names []string) {
	for _, n := range a.allNodes() {
		stopped := slices.Contains(names, n.Name)
		if n.stopped.Swap(stopped) == stopped {
			continue
		}
		a.Log.Info("node", "node", n.Name, "stopped", stopped)
		if !stopped {
			n.reportReady()
		}
	}
}

type uid = types.UID
