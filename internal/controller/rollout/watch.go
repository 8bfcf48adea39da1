package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
)

const (
	// gatherTime is how long changes of pods are gathered for a rollout.
	gatherTime = 200 * time.Millisecond
	// nodeGatherTime is the same for nodes, which all rollouts depend on.
	nodeGatherTime = 5 * time.Second
)

type (
	queue        = shell.Queue[reconcile.Request]
	handlerFuncs = shell.Handler[reconcile.Request]
)

func (r *reconciler) add(mgr manager.Manager) error {
	b := builder.ControllerManagedBy(mgr).
		Named("rollout").
		For(&v1alpha1.DomainRollout{}).
		Watches(&v1alpha1.DomainRollout{}, shell.OnChange(r.othersOf, sameEnding)).
		Watches(&appsv1.StatefulSet{}, r.workloadHandler(v1alpha1.KindStatefulSet)).
		Watches(&appsv1.DaemonSet{}, r.workloadHandler(v1alpha1.KindDaemonSet)).
		Watches(&appsv1.Deployment{}, r.workloadHandler(v1alpha1.KindDeployment)).
		Watches(&appsv1.ControllerRevision{}, r.ownedHandler(nil)).
		Watches(&appsv1.ReplicaSet{}, r.ownedHandler(nil)).
		Watches(&corev1.Pod{}, r.ownedHandler(samePod)).
		Watches(&corev1.Node{}, r.nodeHandler()).
		Watches(&policyv1.PodDisruptionBudget{}, r.budgetHandler(samePDB)).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers})
	if r.options.Budgets != nil {
		b = b.Watches(&v1alpha1.TopologyDisruptionBudget{}, r.budgetHandler(nil))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("adding the controller of rollouts: %w", err)
	}
	return newUnfollowed(r).add(mgr)
}

// rollouts are the DomainRollouts of a namespace that are of a workload, or all if it is none.
func (r *reconciler) rollouts(ctx context.Context, namespace string, of v1alpha1.RolloutTarget) (found []reconcile.Request) {
	var list v1alpha1.DomainRolloutList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "reading DomainRollouts", "namespace", namespace)
		return nil
	}
	for i := range list.Items {
		if of == (v1alpha1.RolloutTarget{}) || list.Items[i].Spec.TargetRef == of {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
	}
	return found
}

func enqueue(requests []reconcile.Request, after time.Duration, q queue) {
	for _, request := range requests {
		q.AddAfter(request, after)
	}
}

// othersOf wakes the rollouts of the same target: once one of them is deleted, or is about to be, as with a finalizer of another
// owner, the next one takes over.
func (r *reconciler) othersOf(ctx context.Context, o client.Object, q queue) {
	if d, ok := o.(*v1alpha1.DomainRollout); ok {
		enqueue(r.rollouts(ctx, d.Namespace, d.Spec.TargetRef), gatherTime, q)
	}
}

// sameEnding compares whether a DomainRollout is about to be deleted.
func sameEnding(before, after client.Object) bool {
	return before.GetDeletionTimestamp().IsZero() == after.GetDeletionTimestamp().IsZero()
}

func (r *reconciler) workloadHandler(kind string) handlerFuncs {
	return shell.OnChange(func(ctx context.Context, o client.Object, q queue) {
		enqueue(r.rollouts(ctx, o.GetNamespace(), v1alpha1.RolloutTarget{Kind: kind, Name: o.GetName()}), gatherTime, q)
	}, nil)
}

// ownedHandler follows what workloads own.
func (r *reconciler) ownedHandler(same func(before, after client.Object) bool) handlerFuncs {
	return shell.OnChange(func(ctx context.Context, o client.Object, q queue) {
		owner := metav1.GetControllerOfNoCopy(o)
		if owner != nil && owner.Kind == kindReplicaSet {
			owner = r.aboveReplicaSet(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name})
		}
		if owner == nil {
			return
		}
		switch owner.Kind {
		case v1alpha1.KindStatefulSet, v1alpha1.KindDaemonSet, v1alpha1.KindDeployment:
			enqueue(r.rollouts(ctx, o.GetNamespace(), v1alpha1.RolloutTarget{Kind: owner.Kind, Name: owner.Name}), gatherTime, q)
		}
	}, same)
}

const kindReplicaSet = "ReplicaSet"

// aboveReplicaSet is what controls a ReplicaSet, nil if that is not known. One that comes later has an event of its own.
func (r *reconciler) aboveReplicaSet(ctx context.Context, key client.ObjectKey) *metav1.OwnerReference {
	set := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, key, set); err != nil {
		return nil
	}
	return metav1.GetControllerOfNoCopy(set)
}

// samePod compares what a step depends on.
func samePod(before, after client.Object) bool {
	a, ok := before.(*corev1.Pod)
	b, also := after.(*corev1.Pod)
	return ok && also && a.UID == b.UID && podOf(a) == podOf(b) && isHeld(a) == isHeld(b) && isMarked(a) == isMarked(b) && a.Spec.NodeName == b.Spec.NodeName && slices.Equal(owners(a), owners(b))
}

func owners(pod *corev1.Pod) []types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []types.UID{owner.UID}
	}
	return nil
}

// nodeHandler follows nodes that come, go, or have other labels.
func (r *reconciler) nodeHandler() handlerFuncs {
	return shell.OnChange(func(ctx context.Context, _ client.Object, q queue) {
		enqueue(r.rollouts(ctx, metav1.NamespaceAll, v1alpha1.RolloutTarget{}), nodeGatherTime, q)
	}, shell.SameLabels)
}

// budgetHandler follows what budgets allow. It wakes the rollouts that were denied a pod lately: what a budget
// covers, their syncs find out.
func (r *reconciler) budgetHandler(same func(before, after client.Object) bool) handlerFuncs {
	return shell.OnChange(func(ctx context.Context, o client.Object, q queue) {
		requests := slices.DeleteFunc(r.rollouts(ctx, o.GetNamespace(), v1alpha1.RolloutTarget{}), func(request reconcile.Request) bool {
			return !r.notes.Of(request.NamespacedName, newNotes).isDenied.Load()
		})
		enqueue(requests, gatherTime, q)
	}, same)
}

// samePDB compares what says whether an eviction is admitted.
func samePDB(before, after client.Object) bool {
	a, ok := before.(*policyv1.PodDisruptionBudget)
	b, also := after.(*policyv1.PodDisruptionBudget)
	if !ok || !also {
		return false
	}
	return a.Generation == b.Generation && a.Status.ObservedGeneration == b.Status.ObservedGeneration && a.Status.DisruptionsAllowed == b.Status.DisruptionsAllowed &&
		(a.Status.CurrentHealthy >= a.Status.DesiredHealthy) == (b.Status.CurrentHealthy >= b.Status.DesiredHealthy)
}
