package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	utilwait "k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
)

const (
	// gatesPage is the size of a page of a list.
	gatesPage = 500
	// gatesPause is how long a new pod can wait at the gate.
	gatesPause = 10 * time.Second
)

// gates removes the scheduling gate from waiting pods while rollouts are off. Without it they would wait for ever.
// Templates keep the gate, so it also releases later pods. It lists without a cache, because few pods wait for a node.
type gates struct {
	reader client.Reader
	writer client.Writer
}

// AddRelease makes a manager release waiting pods, in place of Add.
func AddRelease(mgr manager.Manager) error {
	return mgr.Add(&gates{reader: mgr.GetAPIReader(), writer: mgr.GetClient()})
}

// Start implements manager.Runnable. Only the leader runs it.
func (g *gates) Start(ctx context.Context) error {
	logger := log.FromContext(ctx)
	utilwait.UntilWithContext(ctx, func(ctx context.Context) {
		released, err := g.release(ctx)
		if released > 0 {
			logger.Info("Released pods from their scheduling gate, because rollouts are off", "count", released)
		}
		if err != nil && ctx.Err() == nil {
			logger.Error(err, "Cannot release pods from their scheduling gate, although rollouts are off")
		}
	}, gatesPause)
	return nil
}

// loggedFailures limits the pods of an error.
const loggedFailures = 5

// release removes the gate from all pods that wait now, and returns their number. A pod that cannot be changed does not hold up the
// others.
func (g *gates) release(ctx context.Context) (released int, err error) {
	waiting := client.MatchingFields{"spec.nodeName": "", "status.phase": string(corev1.PodPending)}
	next := ""
	var failed []error
	for {
		var list corev1.PodList
		if err := g.reader.List(ctx, &list, waiting, client.Limit(gatesPage), client.Continue(next)); err != nil {
			return released, fmt.Errorf("reading pods without a node: %w", err)
		}
		for i := range list.Items {
			pod := &list.Items[i]
			at := gateIn(pod.Spec.SchedulingGates)
			if at < 0 || pod.DeletionTimestamp != nil {
				continue
			}
			switch err := shell.Patch(ctx, g.writer, pod, []shell.Operation{shell.Guard(pod), removeGate(at)}); {
			case err == nil:
				released++
			case ctx.Err() != nil:
				return released, ctx.Err()
			case !shell.IsChanged(err):
				failed = append(failed, fmt.Errorf("releasing pod %s/%s: %w", pod.Namespace, pod.Name, err))
			}
		}
		if next = list.Continue; next == "" {
			return released, errors.Join(failed[:min(len(failed), loggedFailures)]...)
		}
	}
}

// gateIn returns the index of the gate, negative if it is missing.
func gateIn(gates []corev1.PodSchedulingGate) int {
	return slices.IndexFunc(gates, func(g corev1.PodSchedulingGate) bool { return g.Name == v1alpha1.RolloutGate })
}

func removeGate(at int) shell.Operation {
	return shell.Remove(fmt.Sprintf("/spec/schedulingGates/%d", at))
}
