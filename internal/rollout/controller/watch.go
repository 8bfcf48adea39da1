package controller

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
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
	"vicinity.dev/vicinity/internal/shift"
)

const (
	// gatherTime is how long a rollout gathers changes of pods.
	gatherTime = 200 * time.Millisecond
	// nodeGatherTime is the same for nodes and ZoneShifts, on which all rollouts depend.
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
		Watches(&corev1.Pod{}, r.ownedHandler(shell.Same(samePod))).
		Watches(&corev1.Node{}, r.nodeHandler(shell.SameLabels)).
		Watches(&v1alpha1.ZoneShift{}, r.nodeHandler(shell.Same(shift.Same))).
		Watches(&policyv1.PodDisruptionBudget{}, r.budgetHandler(shell.Same(samePDB))).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers})
	if r.options.Budgets != nil {
		b = b.Watches(&v1alpha1.TopologyDisruptionBudget{}, r.budgetHandler(nil))
	}
	if err := b.Complete(r); err != nil {
		return fmt.Errorf("adding the controller of rollouts: %w", err)
	}
	return newUnfollowed(r).add(mgr)
}

// rollouts returns the DomainRollouts of a workload, or all of the namespace without one.
func (r *reconciler) rollouts(ctx context.Context, namespace string, of v1alpha1.RolloutTarget) (found []reconcile.Request) {
	var list v1alpha1.DomainRolloutList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		log.FromContext(ctx).Error(err, "reading DomainRollouts", "namespace", namespace)
		return nil
	}
	of = rollout.Normal(of)
	for i := range list.Items {
		if of == (v1alpha1.RolloutTarget{}) || rollout.Normal(list.Items[i].Spec.TargetRef) == of {
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

// othersOf wakes the rollouts of the same target: when one is deleted, or waits for a finalizer of another owner, the next takes over.
func (r *reconciler) othersOf(ctx context.Context, o client.Object, q queue) {
	if d, ok := o.(*v1alpha1.DomainRollout); ok {
		enqueue(r.rollouts(ctx, d.Namespace, d.Spec.TargetRef), gatherTime, q)
	}
}

// sameEnding compares whether a DomainRollout is being deleted.
func sameEnding(before, after client.Object) bool {
	return before.GetDeletionTimestamp().IsZero() == after.GetDeletionTimestamp().IsZero()
}

func (r *reconciler) workloadHandler(kind string) handlerFuncs {
	return shell.OnChange(func(ctx context.Context, o client.Object, q queue) {
		enqueue(r.rollouts(ctx, o.GetNamespace(), v1alpha1.RolloutTarget{Kind: kind, Name: o.GetName()}), gatherTime, q)
	}, nil)
}

// ownedHandler follows the objects that workloads own.
func (r *reconciler) ownedHandler(same func(before, after client.Object) bool) handlerFuncs {
	return shell.OnChange(func(ctx context.Context, o client.Object, q queue) {
		owner := metav1.GetControllerOfNoCopy(o)
		if owner != nil && owner.Kind == kindReplicaSet {
			owner = r.aboveReplicaSet(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name})
		}
		if owner != nil {
			enqueue(r.rollouts(ctx, o.GetNamespace(), v1alpha1.RolloutTarget{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name}), gatherTime, q)
		}
	}, same)
}

const kindReplicaSet = "ReplicaSet"

// aboveReplicaSet returns the controller of a ReplicaSet, nil if unknown. A later ReplicaSet has its own event.
func (r *reconciler) aboveReplicaSet(ctx context.Context, key client.ObjectKey) *metav1.OwnerReference {
	set := &appsv1.ReplicaSet{}
	if err := r.client.Get(ctx, key, set); err != nil {
		return nil
	}
	return metav1.GetControllerOfNoCopy(set)
}

// samePod compares the fields that a step depends on.
func samePod(a, b *corev1.Pod) bool {
	return a.UID == b.UID && podOf(a) == podOf(b) && isHeld(a) == isHeld(b) && isMarked(a) == isMarked(b) && a.Spec.NodeName == b.Spec.NodeName && slices.Equal(owners(a), owners(b))
}

func owners(pod *corev1.Pod) []types.UID {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		return []types.UID{owner.UID}
	}
	return nil
}

// nodeHandler follows objects on which all rollouts depend: nodes and ZoneShifts.
func (r *reconciler) nodeHandler(same func(before, after client.Object) bool) handlerFuncs {
	return shell.OnChange(func(ctx context.Context, _ client.Object, q queue) {
		enqueue(r.rollouts(ctx, metav1.NamespaceAll, v1alpha1.RolloutTarget{}), nodeGatherTime, q)
	}, same)
}

// budgetHandler follows the allowance of budgets. It wakes the rollouts with recent denials, whose syncs find out whether the budget
// covers them.
func (r *reconciler) budgetHandler(same func(before, after client.Object) bool) handlerFuncs {
	return shell.OnChange(func(ctx context.Context, o client.Object, q queue) {
		requests := slices.DeleteFunc(r.rollouts(ctx, o.GetNamespace(), v1alpha1.RolloutTarget{}), func(request reconcile.Request) bool {
			n := r.notes.Get(request.NamespacedName)
			return n == nil || !n.isDenied.Load()
		})
		enqueue(requests, gatherTime, q)
	}, same)
}

// samePDB compares the fields that decide about evictions.
func samePDB(a, b *policyv1.PodDisruptionBudget) bool {
	return a.Generation == b.Generation && a.Status.ObservedGeneration == b.Status.ObservedGeneration && a.Status.DisruptionsAllowed == b.Status.DisruptionsAllowed &&
		(a.Status.CurrentHealthy >= a.Status.DesiredHealthy) == (b.Status.CurrentHealthy >= b.Status.DesiredHealthy)
}

// unfollowedTime is how long a Deployment must be without a DomainRollout before its pods are released. A manifest with both creates one
// after the other.
const unfollowedTime = 10 * time.Second

// unfollowed syncs Deployments with held pods and without a DomainRollout. It releases the pods that they lack, because otherwise a
// drained node would be an outage. It rolls out no new template, because the order is unknown.
type unfollowed struct {
	*reconciler
	own *shell.Notes[types.NamespacedName, notes] // by Deployment
}

func newUnfollowed(r *reconciler) *unfollowed {
	return &unfollowed{reconciler: r, own: &shell.Notes[types.NamespacedName, notes]{}}
}

func (u *unfollowed) add(mgr manager.Manager) error {
	err := builder.ControllerManagedBy(mgr).
		Named("unfollowed").
		Watches(&appsv1.Deployment{}, u.deploymentHandler()).
		Watches(&corev1.Pod{}, u.heldHandler()).
		Watches(&v1alpha1.DomainRollout{}, u.rolloutHandler()).
		WithOptions(controller.Options{MaxConcurrentReconciles: u.options.Workers}).
		Complete(u)
	if err != nil {
		return fmt.Errorf("adding the controller of Deployments without a DomainRollout: %w", err)
	}
	return nil
}

func requestFor(namespace, name string) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// deploymentHandler follows Deployments whose template has the gate, and forgets deleted ones.
func (u *unfollowed) deploymentHandler() handlerFuncs {
	return shell.OnEvent(func(_ context.Context, o client.Object, q queue) {
		key := client.ObjectKeyFromObject(o)
		if w, ok := o.(*appsv1.Deployment); ok && (hasGate(w.Spec.Template.Spec.SchedulingGates) || u.own.Has(key)) {
			enqueue([]reconcile.Request{{NamespacedName: key}}, gatherTime, q)
		}
	}, nil)
}

// heldHandler follows pods that are held or marked, whatever the template is now. It includes the initial list, because changes while no
// controller ran are unknown.
func (u *unfollowed) heldHandler() handlerFuncs {
	return shell.OnEvent(func(ctx context.Context, o client.Object, q queue) {
		pod, ok := o.(*corev1.Pod)
		owner := metav1.GetControllerOfNoCopy(o)
		if !ok || !isHeld(pod) && !isMarked(pod) || owner == nil || owner.Kind != kindReplicaSet {
			return
		}
		above := u.aboveReplicaSet(ctx, client.ObjectKey{Namespace: o.GetNamespace(), Name: owner.Name})
		if above != nil && above.Kind == v1alpha1.KindDeployment {
			enqueue(requestFor(o.GetNamespace(), above.Name), gatherTime, q)
		}
	}, shell.Same(samePod))
}

func (u *unfollowed) rolloutHandler() handlerFuncs {
	return shell.OnChange(func(_ context.Context, o client.Object, q queue) {
		if d, ok := o.(*v1alpha1.DomainRollout); ok && d.Spec.TargetRef.Kind == v1alpha1.KindDeployment && !rollout.IsCustom(d.Spec.TargetRef) {
			enqueue(requestFor(d.Namespace, d.Spec.TargetRef.Name), gatherTime, q)
		}
	}, sameEnding)
}

// Reconcile releases the pods that a Deployment lacks, if it has no DomainRollout.
func (u *unfollowed) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer u.options.Syncs.Begin("Deployment " + request.String())()
	after, err := u.sync(ctx, request)
	result, outcome, err := shell.Finish(after, err)
	u.metrics.synced(outcome)
	return result, err
}

func (u *unfollowed) sync(ctx context.Context, request reconcile.Request) (time.Duration, error) {
	ref := v1alpha1.RolloutTarget{Kind: v1alpha1.KindDeployment, Name: request.Name}
	var all v1alpha1.DomainRolloutList
	if err := u.client.List(ctx, &all, client.InNamespace(request.Namespace)); err != nil {
		return 0, fmt.Errorf("reading the DomainRollouts of %s: %w", request.Namespace, err)
	}
	if slices.ContainsFunc(all.Items, func(d v1alpha1.DomainRollout) bool {
		return rollout.Normal(d.Spec.TargetRef) == ref && d.DeletionTimestamp == nil
	}) {
		u.own.Forget(request.NamespacedName)
		return 0, nil
	}
	d := &v1alpha1.DomainRollout{ObjectMeta: metav1.ObjectMeta{Namespace: request.Namespace}, Spec: v1alpha1.DomainRolloutSpec{TargetRef: ref}}
	t, err := readTarget(ctx, u.client, d)
	if err != nil || t == nil {
		u.own.Forget(request.NamespacedName)
		return 0, err
	}
	pods, err := u.cachedPods(t)
	if err != nil {
		return 0, err
	}
	n, now := u.own.Of(request.NamespacedName, newNotes), u.clock.Now()
	if n.unfollowedSince.IsZero() {
		n.unfollowedSince = now
	}
	f := newFleet(t, pods, &rollout.Memory{})
	if left := n.unfollowedSince.Add(unfollowedTime).Sub(now); left > 0 {
		return left, nil
	}
	if !n.isReported && len(f.held) > 0 {
		n.isReported = true
		u.recorder.Eventf(t.object, nil, corev1.EventTypeWarning, "NoDomainRollout", "Rollout",
			"pods wait at the scheduling gate %s, but no DomainRollout targets this Deployment. Missing pods are released, but no new template is rolled out. Create a DomainRollout, or remove the gate from spec.template.spec.schedulingGates", v1alpha1.RolloutGate)
	}
	return u.fillOnly(ctx, n, d, t)
}
