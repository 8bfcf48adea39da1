package agent

import (
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/shape"
)

type node struct {
	shape.Node
	agent   *agent
	shape   shape.Shape
	slots   fabric.Slots
	stopped atomic.Bool
	ctx     context.Context

	mu     sync.Mutex
	object *corev1.Node
	// removed means that the node is no longer in the shape.
	removed bool
}

// join registers the node. It retries until it succeeds, the node is removed, or the agent
// ends. A stopped node joins when it is started.
func (n *node) join() {
	for wait := 50 * time.Millisecond; !n.isRemoved(); wait = min(2*wait, 2*time.Second) {
		if n.stopped.Load() {
			wait = controlPeriod
		} else if err := n.register(n.ctx); err == nil {
			return
		} else if n.ctx.Err() == nil {
			n.agent.Log.Error("node cannot be registered", "node", n.Name, "error", err)
		}
		if !sleep(n.ctx, wait) {
			return
		}
	}
}

func (n *node) register(ctx context.Context) error {
	want, err := nodeObject(n.shape, n.Node, n.agent.version, time.Now())
	if err != nil {
		return err
	}
	api := n.agent.client.CoreV1().Nodes()
	have, err := api.Create(ctx, want, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		var patch []byte
		if patch, err = json.Marshal(map[string]any{"metadata": map[string]any{"labels": want.Labels}}); err != nil {
			return err
		}
		if have, err = api.Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err == nil {
			// Merge patches replace lists: a strategic patch would merge addresses by type.
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

// reportReady reports the node as ready again: the control plane may have marked it otherwise.
func (n *node) reportReady() {
	if n.stopped.Load() || n.uid() == "" {
		return
	}
	go func() {
		ctx, cancel := context.WithTimeout(n.ctx, 10*time.Second)
		defer cancel()
		// The lease first: with a stale lease the status would be reverted at once.
		n.agent.renew(ctx, n)
		err := n.patchStatus(ctx, types.StrategicMergePatchType, corev1.NodeStatus{Conditions: nodeConditions(time.Now())})
		if err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
			n.agent.Log.Error("node status cannot be written", "node", n.Name, "error", err)
		}
	}()
}

func (n *node) markRemoved() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removed = true
}

func (n *node) isRemoved() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.removed
}

// uid is the UID of the node's object, empty before it is registered.
func (n *node) uid() uid {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.object == nil {
		return ""
	}
	return n.object.UID
}

// sleep reports false if the context ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
