package agent

import (
	"context"
	"encoding/json"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	broadcast "k8s.io/client-go/tools/record"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

// node is a node that the agent stands in for.
type node struct {
	shape.Node
	agent   *agent
	shape   shape.Shape
	events  broadcast.EventRecorder
	network network
	slots   slots
	stopped atomic.Bool
	// ports is held while rules of host ports are read and changed.
	ports sync.Mutex
	// ctx is the agent's own.
	ctx context.Context

	mu     sync.Mutex
	object *corev1.Node
	server *http.Server
	// connections are the server's.
	connections *connections
	gone        bool
}

// network gives pods their networks.
type network interface {
	AddPod(node, id string, addrs []netip.Addr) (path string, err error)
	RemovePod(node, id string) error
}

func newNode(ctx context.Context, a *agent, s shape.Shape, n shape.Node) *node {
	return &node{
		Node: n, agent: a, shape: s, ctx: ctx,
		events: a.recorder(n.Name),
	}
}

// namespace is the network namespace of the node itself.
func (n *node) namespace() string { return shape.NodeNamespace(n.shape.Name, n.Index) }

// fabric opens the network that the node is in.
func (n *node) fabric() (network, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.network == nil {
		f, err := fabric.Open(n.shape)
		if err != nil {
			return nil, err
		}
		n.network = f
	}
	return n.network, nil
}

// join registers the node and serves its kubelet API. It tries until it succeeds, the
// node leaves, or the agent ends. A node that is stopped joins when it is started.
func (n *node) join() {
	for wait := 50 * time.Millisecond; !n.left(); wait = min(2*wait, 2*time.Second) {
		if n.stopped.Load() {
			wait = controlPeriod
		} else if err := n.register(n.ctx); err == nil {
			n.serve()
			return
		} else if n.ctx.Err() == nil {
			n.agent.log.Error("node cannot be registered", "node", n.Name, "error", err)
		}
		if !sleepUntil(n.ctx, wait) {
			return
		}
	}
}

// register creates the node, or brings one that is there up to date.
func (n *node) register(ctx context.Context) error {
	want, err := nodeObject(n.shape, n.Node, n.agent.version, n.agent.now())
	if err != nil {
		return err
	}
	if n.Fake {
		if err := n.refuse(want); err != nil {
			return err
		}
	}
	api := n.agent.client.CoreV1().Nodes()
	have, err := api.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var patch []byte
		if patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"labels": want.Labels}}); err != nil {
			return err
		}
		if have, err = api.Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
			// Lists are replaced: a strategic patch would merge addresses by their type.
			err = n.patchStatus(ctx, types.MergePatchType, want.Status)
		}
	}
	if err != nil {
		return err
	}
	n.mu.Lock()
	n.object = have
	n.mu.Unlock()
	return nil
}

func (n *node) patchStatus(ctx context.Context, kind types.PatchType, s corev1.NodeStatus) error {
	patch, err := json.Marshal(map[string]any{"status": s})
	if err != nil {
		return err
	}
	_, err = n.agent.client.CoreV1().Nodes().Patch(ctx, n.Name, kind, patch, metav1.PatchOptions{}, "status")
	return err
}

// proclaim says that the node is well, after others had reason to think it is not.
func (n *node) proclaim() {
	if n.stopped.Load() || n.uid() == "" {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(n.ctx, 10*time.Second)
		defer cancel()
		// The lease first: the status alone would be taken back at once.
		n.agent.renew(ctx, n)
		err := n.patchStatus(ctx, types.StrategicMergePatchType, corev1.NodeStatus{Conditions: nodeConditions(n.agent.now())})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			n.agent.log.Error("node status cannot be written", "node", n.Name, "error", err)
		}
	}()
}

// leave ends what the agent does for a node that left the lab.
func (n *node) leave() {
	n.mu.Lock()
	n.gone = true
	n.mu.Unlock()
	n.unserve()
}

// left reports whether the node left the lab.
func (n *node) left() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.gone
}

// uid is the identity of the node's object.
func (n *node) uid() uid {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.object == nil {
		return ""
	}
	return n.object.UID
}
