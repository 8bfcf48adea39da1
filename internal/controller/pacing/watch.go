package pacing

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/pacing"
)

// gatherTime is how long changes of pods and budgets are gathered for a workload.
const gatherTime = time.Second

type queue = workqueue.TypedRateLimitingInterface[workload]

type handlerFuncs = handler.TypedFuncs[client.Object, workload]

func (r *reconciler) add(mgr manager.Manager) error {
	b := builder.TypedControllerManagedBy[workload](mgr).
		Named("pacing").
		Watches(&corev1.Pod{}, all(r.podChanged)).
		Watches(&v1alpha1.TopologyDisruptionBudget{}, all(func(_ context.Context, budget client.Object, q queue) {
			for _, w := range r.memory.workloads(budget.GetNamespace()) {
				q.AddAfter(w, gatherTime)
			}
		})).
		WithOptions(controller.TypedOptions[workload]{MaxConcurrentReconciles: r.options.Workers})
	for _, kind := range pacing.Kinds() {
		b = b.Watches(kind.New(), all(func(_ context.Context, object client.Object, q queue) {
			w := workload{client.ObjectKeyFromObject(object), kind}
			if isMarked(object) || r.memory.has(w) {
				q.Add(w)
			}
		}))
	}
	return b.Complete(r)
}

func (r *reconciler) podChanged(ctx context.Context, pod client.Object, q queue) {
	if w, found := r.ofPod(ctx, pod); found {
		q.AddAfter(w, gatherTime)
	}
}

// all handles every event of an object alike.
func all(f func(context.Context, client.Object, queue)) handlerFuncs {
	return handlerFuncs{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q queue) { f(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q queue) { f(ctx, e.ObjectNew, q) },
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[client.Object], q queue) { f(ctx, e.Object, q) },
	}
}
