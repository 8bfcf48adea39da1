package pacing

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/pacing"
)

// gatherTime is how long changes of pods and budgets are gathered for a workload.
const gatherTime = time.Second

type queue = shell.Queue[workload]

func (r *reconciler) add(mgr manager.Manager) error {
	b := builder.TypedControllerManagedBy[workload](mgr).
		Named("pacing").
		Watches(&corev1.Pod{}, shell.OnEvent(r.podChanged, nil)).
		Watches(&v1alpha1.TopologyDisruptionBudget{}, shell.OnEvent(r.budgetChanged, nil)).
		WithOptions(controller.TypedOptions[workload]{MaxConcurrentReconciles: r.options.Workers})
	for _, kind := range pacing.Kinds() {
		b = b.Watches(kind.New(), shell.OnEvent(func(_ context.Context, object client.Object, q queue) {
			w := workload{client.ObjectKeyFromObject(object), kind}
			if isMarked(object) || r.notes.Has(w) {
				q.Add(w)
			}
		}, nil))
	}
	return b.Complete(r)
}

func (r *reconciler) podChanged(ctx context.Context, pod client.Object, q queue) {
	if w, found := r.ofPod(ctx, pod); found {
		q.AddAfter(w, gatherTime)
	}
}

func (r *reconciler) budgetChanged(_ context.Context, budget client.Object, q queue) {
	for _, w := range r.notes.Keys() {
		if w.Namespace == budget.GetNamespace() {
			q.AddAfter(w, gatherTime)
		}
	}
}
