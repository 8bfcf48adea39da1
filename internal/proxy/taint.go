package proxy

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// taintRemover removes v1alpha1.TaintProxyNotReady from the own Node once the Lease says that the node is ready. No other
// program removes it: new nodes must start while vicinity-controller is away.
type taintRemover struct {
	// node returns the own Node, nil if it is unknown.
	node  func() *corev1.Node
	patch func(ctx context.Context, node string, patch []byte) error
	// failed is called for each failed request.
	failed func()
	log    logr.Logger

	// ready gets a signal after each write of the Lease that says that the node is ready.
	ready chan struct{}
	// patched is the version of the Node from which the taint was removed last.
	patched  string
	failures int // in a row
}

const (
	taintTime = 5 * time.Second // bounds one request
	// The first and the longest pause after a failure. Pauses are up to a quarter longer, because many nodes join together.
	taintFirst = time.Second
	taintMost  = time.Minute
)

func newTaintRemover(node func() *corev1.Node, patch func(context.Context, string, []byte) error, failed func(), log logr.Logger) *taintRemover {
	return &taintRemover{node: node, patch: patch, failed: failed, log: log, ready: make(chan struct{}, 1)}
}

// run looks for the taint at each signal, and again after a failure, until the context ends.
func (r *taintRemover) run(ctx context.Context) {
	for {
		ready, again := r.ready, (<-chan time.Time)(nil)
		if r.failures > 0 {
			pause := backoff(taintFirst, taintMost, r.failures)
			ready, again = nil, time.After(pause+rand.N(pause/4))
		}
		select {
		case <-ctx.Done():
			return
		case <-ready:
		case <-again:
		}
		r.remove(ctx)
	}
}

// remove removes the taint if the Node has it. It logs the first failure in a row.
func (r *taintRemover) remove(ctx context.Context) {
	node := r.node()
	if node == nil || node.ResourceVersion == r.patched {
		return
	}
	patch := removalOf(node.Spec.Taints)
	if patch == nil {
		r.failures = 0
		return
	}
	limited, cancel := context.WithTimeout(ctx, taintTime)
	defer cancel()
	switch err := r.patch(limited, node.Name, patch); {
	case err == nil:
		r.patched, r.failures = node.ResourceVersion, 0
		r.log.Info("Removed the start-up taint", "node", node.Name, "taint", v1alpha1.TaintProxyNotReady)
	case ctx.Err() == nil:
		r.failed()
		if r.failures++; r.failures == 1 {
			r.log.Error(err, "Cannot remove the start-up taint: pods that do not tolerate it wait", "node", node.Name, "taint", v1alpha1.TaintProxyNotReady)
		}
	}
}

// removalOf returns a JSON patch that removes the start-up taint, nil if the Node lacks it. If other taints came or went
// meanwhile, a test of the patch fails, so no other taint is lost.
func removalOf(taints []corev1.Taint) []byte {
	var steps []string
	for i, taint := range slices.Backward(taints) { // so that indices stay right
		if taint.Key == v1alpha1.TaintProxyNotReady {
			steps = append(steps, fmt.Sprintf(`{"op":"test","path":"/spec/taints/%[1]d/key","value":%[2]q},{"op":"remove","path":"/spec/taints/%[1]d"}`, i, taint.Key))
		}
	}
	if steps == nil {
		return nil
	}
	return []byte("[" + strings.Join(steps, ",") + "]")
}
