package controller

import (
	"context"
	"maps"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

const (
	// gatherTime is how long a workload gathers changes of pods. An earlier scale-down finds the old costs.
	gatherTime = 200 * time.Millisecond
	// nodeGatherTime is the same for nodes, on which all workloads depend.
	nodeGatherTime = 5 * time.Second
)

type queue = shell.Queue[workload]

func (r *reconciler) add(mgr manager.Manager) error {
	warm := true
	b := builder.TypedControllerManagedBy[workload](mgr).
		Named("scaledown").
		Watches(&appsv1.Deployment{}, shell.OnEvent(ownerChanged, sameOwner)).
		Watches(&appsv1.ReplicaSet{}, shell.OnEvent(ownerChanged, sameOwner)).
		Watches(&corev1.Pod{}, shell.OnChange(r.podChanged, shell.Same(samePod))).
		Watches(&corev1.Node{}, shell.OnChange(r.nodeChanged, shell.SameLabels)).
		WatchesMetadata(&corev1.Namespace{}, shell.OnChange(r.namespaceChanged, shell.SameAnnotations)).
		WithOptions(controller.TypedOptions[workload]{MaxConcurrentReconciles: r.options.Workers, EnableWarmup: &warm})
	if r.options.Budgets {
		b = b.Watches(&v1alpha1.TopologyDisruptionBudget{}, shell.OnEvent(wakeNoted(r.notes, gatherTime), nil))
	}
	return b.Complete(r)
}

// ownerChanged follows the annotations and replicas of workloads.
func ownerChanged(_ context.Context, object client.Object, q queue) {
	if set, ok := object.(*appsv1.ReplicaSet); ok {
		q.AddAfter(workloadOf(set), gatherTime)
		return
	}
	q.AddAfter(workload{client.ObjectKeyFromObject(object), pacing.Deployment}, gatherTime)
}

func sameOwner(before, after client.Object) bool {
	return before.GetGeneration() == after.GetGeneration() && shell.SameAnnotations(before, after)
}

// samePod compares the fields that the order of pods depends on.
func samePod(a, b *corev1.Pod) bool {
	readyA, _ := coverage.Readiness(a)
	readyB, _ := coverage.Readiness(b)
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && a.Status.Phase == b.Status.Phase && readyA == readyB &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) &&
		maps.Equal(a.Annotations, b.Annotations) && slices.Equal(controllerOf(a), controllerOf(b))
}

// podChanged wakes the workload of a pod. If its ReplicaSet is unknown, the event of the ReplicaSet does.
func (r *reconciler) podChanged(ctx context.Context, pod client.Object, q queue) {
	owner := metav1.GetControllerOf(pod)
	if !isOf(owner, pacing.ReplicaSet) {
		return
	}
	set := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, client.ObjectKey{Namespace: pod.GetNamespace(), Name: owner.Name}, set); err == nil {
		q.AddAfter(workloadOf(set), gatherTime)
	}
}

func (r *reconciler) nodeChanged(_ context.Context, _ client.Object, q queue) {
	for _, w := range r.notes.Keys() {
		q.AddAfter(w, nodeGatherTime)
	}
}

// namespaceChanged follows the annotations of namespaces.
func (r *reconciler) namespaceChanged(ctx context.Context, namespace client.Object, q queue) {
	var sets appsv1.ReplicaSetList
	if err := r.client.List(ctx, &sets, client.InNamespace(namespace.GetName())); err != nil {
		log.FromContext(ctx).Error(err, "reading the ReplicaSets of a namespace", "namespace", namespace.GetName())
		return
	}
	for i := range sets.Items {
		q.AddAfter(workloadOf(&sets.Items[i]), gatherTime)
	}
}

// wakeNoted wakes the workloads with notes in the namespace of an object.
func wakeNoted[V any](notes *shell.Notes[workload, V], after time.Duration) shell.Wake[workload] {
	return func(_ context.Context, object client.Object, q queue) {
		for _, w := range notes.Keys() {
			if w.Namespace == object.GetNamespace() {
				q.AddAfter(w, after)
			}
		}
	}
}
