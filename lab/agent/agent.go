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

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	broadcast "k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"

	"vicinity.dev/vicinity/lab/controlplane"
	"vicinity.dev/vicinity/lab/process"
	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// Options configure an agent.
type Options struct {
	// State is the lab's state folder.
	State state.Dir
	// Node is the only node to run pods for; empty means all nodes of the lab.
	Node string
	// Images maps images to programs. The default is DefaultImages.
	Images Images
	// Keeper is the command that runs RunContainer; the folder is appended. The default is
	// "vicinity lab internal container".
	Keeper []string
	// FirstBackoff and MostBackoff bound the back-off of containers that end and of unknown
	// images. The defaults are a kubelet's: 10 s and 5 min.
	FirstBackoff, MostBackoff time.Duration
	// Log is the standard error by default.
	Log *slog.Logger
}

func (o *Options) complete() error {
	if o.Images == (Images{}) {
		images, err := DefaultImages()
		if err != nil {
			return err
		}
		o.Images = images
	}
	if len(o.Keeper) == 0 {
		o.Keeper = []string{o.Images.Program, "internal", "container"}
	}
	if o.FirstBackoff == 0 {
		o.FirstBackoff = 10 * time.Second
	}
	if o.MostBackoff == 0 {
		o.MostBackoff = 5 * time.Minute
	}
	if o.Log == nil {
		o.Log = slog.New(slog.NewTextHandler(os.Stderr, nil))
	}
	return nil
}

type agent struct {
	Options
	marker  string
	backoff backoff
	client  kubernetes.Interface
	version string
	events  broadcast.EventBroadcaster
	exits   *exits
	objects *objects
	pods    *pods
	now     func() time.Time
	// starts limits how many containers start at the same time.
	starts  chan struct{}
	refuser refuser

	mu    sync.Mutex
	shape shape.Shape
	nodes map[string]*node
	leaseRenewal
}

// Run stands in for the kubelets of a lab until the context ends. Pods go on running, and
// the next Run adopts them.
func Run(ctx context.Context, o Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	lab, err := o.State.Load()
	if err != nil {
		return err
	}
	client, err := newClient(o.State)
	if err != nil {
		return err
	}
	exits, err := watchExits()
	if err != nil {
		return err
	}
	defer exits.close()
	a := newAgent(o, client, exits)
	defer a.events.Shutdown()
	if a.version, err = a.serverVersion(ctx); err != nil {
		return err
	}
	records, err := a.readRecords()
	if err != nil {
		return err
	}
	a.setNodes(ctx, lab.Shape)
	a.pods.restore(records)
	var work sync.WaitGroup
	for _, f := range []func(context.Context){a.renewLeases, a.watchPods, a.watchNodes, a.watchControl} {
		work.Go(func() { f(ctx) })
	}
	<-ctx.Done()
	work.Wait()
	return nil
}

func newAgent(o Options, client kubernetes.Interface, e *exits) *agent {
	a := &agent{
		Options: o,
		marker:  process.Marker(o.State),
		backoff: backoff{First: o.FirstBackoff, Most: o.MostBackoff},
		client:  client,
		events:  newEvents(client),
		exits:   e,
		objects: newObjects(client),
		now:     time.Now,
		starts:  make(chan struct{}, 8),
		nodes:   map[string]*node{},
	}
	a.pods = newPods(a)
	return a
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

// setNodes starts to serve nodes that are new in the shape, and stops serving those that
// are no longer in it.
func (a *agent) setNodes(ctx context.Context, s shape.Shape) {
	want := map[string]shape.Node{}
	for _, n := range append(s.Nodes(), s.FakeNodeList()...) {
		n.Fake = n.Fake || s.ControlPlaneOnly
		if a.Node == "" || a.Node == n.Name {
			want[n.Name] = n
		}
	}
	stopped, err := StoppedNodes(a.State)
	if err != nil {
		a.Log.Error("control files cannot be read", "error", err)
	}
	var came, left []*node
	a.mu.Lock()
	a.shape = s
	for name, n := range a.nodes {
		if _, ok := want[name]; !ok {
			left = append(left, n)
			delete(a.nodes, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if a.nodes[name] == nil {
			n := newNode(ctx, a, s, want[name])
			n.stopped.Store(slices.Contains(stopped, name))
			a.nodes[name] = n
			came = append(came, n)
		}
	}
	a.mu.Unlock()
	for _, n := range left {
		n.leave()
		a.pods.removeNode(n.Name)
	}
	go workqueue.ParallelizeUntil(ctx, 16, len(came), func(i int) { came[i].join() })
	a.setLeaseNodes(a.allNodes(), s.Timing)
	for _, n := range came {
		a.pods.addNode(n.Name)
	}
}

func (a *agent) setStopped(names []string) {
	for _, n := range a.allNodes() {
		is := slices.Contains(names, n.Name)
		if n.stopped.Swap(is) == is {
			continue
		}
		a.Log.Info("node", "node", n.Name, "stopped", is)
		if is {
			n.unserve()
		} else {
			n.serve()
			n.reportReady()
		}
		a.pods.wake(n.Name)
	}
}

func newEvents(client kubernetes.Interface) broadcast.EventBroadcaster {
	b := broadcast.NewBroadcaster(broadcast.WithCorrelatorOptions(broadcast.CorrelatorOptions{BurstSize: 100, QPS: 1}))
	b.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events(corev1.NamespaceAll)})
	return b
}

func (a *agent) recorder(node string) broadcast.EventRecorder {
	return a.events.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "kubelet", Host: node})
}

type uid = types.UID
