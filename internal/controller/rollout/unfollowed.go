package rollout

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

// unfollowedTime is how long a Deployment is without a DomainRollout before its pods are released all the same. A
// manifest that has both makes one after the other.
const unfollowedTime = 10 * time.Second

// unfollowed syncs Deployments whose pods are held and that have no DomainRollout, or none any more. They get the pods that
// they lack, or else a drained node would be an outage. No new template is rolled out: in which order is not known.
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

// deploymentHandler follows Deployments whose template has the gate, and forgets those that are deleted.
func (u *unfollowed) deploymentHandler() handlerFuncs {
	return shell.OnEvent(func(_ context.Context, o client.Object, q queue) {
		key := client.ObjectKeyFromObject(o)
		if w, ok := o.(*appsv1.Deployment); ok && (hasGate(w.Spec.Template.Spec.SchedulingGates) || u.own.Has(key)) {
			enqueue([]reconcile.Request{{NamespacedName: key}}, gatherTime, q)
		}
	}, nil)
}

// heldHandler follows pods that wait or have a mark, whatever the template is by now. Those that there are when the controller
// begins count: what was done while none ran is not known.
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
	}, samePod)
}

func (u *unfollowed) rolloutHandler() handlerFuncs {
	return shell.OnChange(func(_ context.Context, o client.Object, q queue) {
		if d, ok := o.(*v1alpha1.DomainRollout); ok && d.Spec.TargetRef.Kind == v1alpha1.KindDeployment {
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
	if slices.ContainsFunc(all.Items, func(d v1alpha1.DomainRollout) bool { return d.Spec.TargetRef == ref && d.DeletionTimestamp == nil }) {
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
			"pods wait at the scheduling gate %s and there is no DomainRollout for this Deployment: the pods that it lacks are released, and no new template is rolled out; make a DomainRollout, or take the gate out of spec.template.spec.schedulingGates", v1alpha1.RolloutGate)
	}
	return u.fillOnly(ctx, n, d, t)
}
