package scaledown

import (
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kube"
)

const (
	// gatherTime is how long changes of pods are gathered for a workload. A scale-down that comes sooner
	// finds the costs of before.
	gatherTime = 200 * time.Millisecond
	// nodeGatherTime is the same for nodes, which all workloads depend on.
	nodeGatherTime = 5 * time.Second
)

type queue = workqueue.TypedRateLimitingInterface[workload]

type (
	handlerFuncs = handler.TypedFuncs[client.Object, workload]
	created      = event.TypedCreateEvent[client.Object]
	updated      = event.TypedUpdateEvent[client.Object]
	deleted      = event.TypedDeleteEvent[client.Object]
)

func (r *reconciler) add(mgr manager.Manager) error {
	warm := true
	b := builder.TypedControllerManagedBy[workload](mgr).
		Named("scaledown").
		Watches(&appsv1.Deployment{}, r.ownerHandler(deploymentOf)).
		Watches(&appsv1.ReplicaSet{}, r.ownerHandler(ofReplicaSet)).
		Watches(&corev1.Pod{}, r.podHandler()).
		Watches(&corev1.Node{}, r.nodeHandler()).
		WatchesMetadata(&corev1.Namespace{}, r.namespaceHandler()).
		WithOptions(controller.TypedOptions[workload]{MaxConcurrentReconciles: r.options.Workers, EnableWarmup: &warm})
	if r.options.Budgets {
		b = b.Watches(&v1alpha1.TopologyDisruptionBudget{}, r.budgetHandler())
	}
	return b.Complete(r)
}

func deploymentOf(object client.Object) workload {
	return workload{client.ObjectKeyFromObject(object), deployment}
}

func ofReplicaSet(object client.Object) workload {
	set, ok := object.(*appsv1.ReplicaSet)
	if !ok {
		return workload{client.ObjectKeyFromObject(object), replicaSet}
	}
	return workloadOf(set)
}

// ownerHandler follows what workloads ask for, and how many pods.
func (r *reconciler) ownerHandler(of func(client.Object) workload) handlerFuncs {
	return handlerFuncs{
		CreateFunc: func(_ context.Context, e created, q queue) { q.Add(of(e.Object)) },
		UpdateFunc: func(_ context.Context, e updated, q queue) {
			if e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() || !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) {
				q.AddAfter(of(e.ObjectNew), gatherTime)
			}
		},
		DeleteFunc: func(_ context.Context, e deleted, q queue) { q.Add(of(e.Object)) },
	}
}

// podHandler follows what the order of pods depends on.
func (r *reconciler) podHandler() handlerFuncs {
	return handlerFuncs{
		CreateFunc: func(ctx context.Context, e created, q queue) {
			if !e.IsInInitialList { // or else their workloads are in theirs
				r.gather(ctx, e.Object, q)
			}
		},
		UpdateFunc: func(ctx context.Context, e updated, q queue) {
			before, ok := e.ObjectOld.(*corev1.Pod)
			after, also := e.ObjectNew.(*corev1.Pod)
			if !ok || !also || !samePod(before, after) {
				r.gather(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e deleted, q queue) { r.gather(ctx, e.Object, q) },
	}
}

// samePod compares what the order of pods depends on.
func samePod(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && a.Status.Phase == b.Status.Phase && kube.PodReady(a) == kube.PodReady(b) &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		maps.Equal(a.Annotations, b.Annotations) && slices.Equal(controllerOf(a), controllerOf(b))
}

// gather has the workload of a pod synced. One whose ReplicaSet is not known is, when that comes.
func (r *reconciler) gather(ctx context.Context, pod client.Object, q queue) {
	owner := metav1.GetControllerOf(pod)
	if !isOf(owner, replicaSet) {
		return
	}
	set := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.GetNamespace(), Name: owner.Name}, set); err == nil {
		q.AddAfter(workloadOf(set), gatherTime)
	}
}

// nodeHandler follows nodes that come, go, or have other labels.
func (r *reconciler) nodeHandler() handlerFuncs {
	wake := func(q queue) {
		r.nodes.version.Add(1)
		for _, w := range r.memory.workloads(metav1.NamespaceAll) {
			q.AddAfter(w, nodeGatherTime)
		}
	}
	return handlerFuncs{
		CreateFunc: func(_ context.Context, e created, q queue) {
			if e.IsInInitialList {
				r.nodes.version.Add(1)
				return
			}
			wake(q)
		},
		UpdateFunc: func(_ context.Context, e updated, q queue) {
			if !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()) {
				wake(q)
			}
		},
		DeleteFunc: func(_ context.Context, _ deleted, q queue) { wake(q) },
	}
}

// namespaceHandler follows what namespaces ask for.
func (r *reconciler) namespaceHandler() handlerFuncs {
	return handlerFuncs{
		CreateFunc: func(ctx context.Context, e created, q queue) {
			if !e.IsInInitialList {
				r.enqueueAll(ctx, e.Object.GetName(), q)
			}
		},
		UpdateFunc: func(ctx context.Context, e updated, q queue) {
			if !maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()) {
				r.enqueueAll(ctx, e.ObjectNew.GetName(), q)
			}
		},
	}
}

func (r *reconciler) enqueueAll(ctx context.Context, namespace string, q queue) {
	var sets appsv1.ReplicaSetList
	if err := r.client.List(ctx, &sets, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "reading the ReplicaSets of a namespace", "namespace", namespace)
		return
	}
	for i := range sets.Items {
		q.AddAfter(workloadOf(&sets.Items[i]), gatherTime)
	}
}

// budgetHandler follows what budgets allow.
func (r *reconciler) budgetHandler() handlerFuncs {
	wake := func(budget client.Object, q queue) {
		for _, w := range r.memory.workloads(budget.GetNamespace()) {
			q.AddAfter(w, gatherTime)
		}
	}
	return handlerFuncs{
		CreateFunc: func(_ context.Context, e created, q queue) { wake(e.Object, q) },
		UpdateFunc: func(_ context.Context, e updated, q queue) { wake(e.ObjectNew, q) },
		DeleteFunc: func(_ context.Context, e deleted, q queue) { wake(e.Object, q) },
	}
}
