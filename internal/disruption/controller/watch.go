package controller

import (
	"context"
	"maps"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/shift"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// add adds the controllers of budgets and of namespaces.
func (r *reconciler) add(mgr manager.Manager) error {
	warm := true
	many := controller.Options{MaxConcurrentReconciles: r.options.Workers, EnableWarmup: &warm}
	b := builder.ControllerManagedBy(mgr).
		Named("budget").
		Watches(&v1alpha1.TopologyDisruptionBudget{}, r.budgetHandler()).
		Watches(&corev1.Pod{}, onBoth(r.podChanged, shell.Same(samePod))).
		Watches(&corev1.Node{}, shell.OnChange(r.allChanged, shell.Same(coverage.SameNode))).
		Watches(&v1alpha1.ZoneShift{}, shell.OnChange(r.allChanged, shell.Same(shift.Same))).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.projectedWith), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}),
		)).
		WatchesRawSource(r.nodes.Source("reading the budgets that nodes or ZoneShifts changed for", r.enqueueAll)).
		WatchesRawSource(source.Channel(r.namespaces.changed, handler.EnqueueRequestsFromMapFunc(r.ofNamespace))).
		WithOptions(many)
	for _, owner := range []client.Object{&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}} {
		b = b.Watches(owner, onBoth(r.ownerChanged, coverage.SameWorkload[client.Object]))
	}
	if r.options.Served {
		b = b.Watches(&admissionv1.MutatingWebhookConfiguration{}, shell.OnChange(r.allChanged, nil))
	}
	if err := b.Complete(r); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named("budget-namespace").
		WatchesMetadata(&corev1.Namespace{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.TopologyDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(namespaceOf), builder.WithPredicates(comesOrGoes())).
		WithOptions(controller.Options{EnableWarmup: &warm}).
		Complete(r.namespaces)
}

func namespaceOf(_ context.Context, object client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: object.GetNamespace()}}}
}

// comesOrGoes passes creations and deletions.
func comesOrGoes() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// requestsOf returns a request for each budget of a namespace.
func (r *reconciler) requestsOf(ctx context.Context, namespace string) ([]reconcile.Request, error) {
	budgets, err := budgetsOf(ctx, r.client, namespace)
	requests := make([]reconcile.Request, len(budgets))
	for i := range budgets {
		requests[i] = requestFor(&budgets[i])
	}
	return requests, err
}

// requestsIn is requestsOf for a handler of events.
func (r *reconciler) requestsIn(ctx context.Context, namespace string) []reconcile.Request {
	requests, err := r.requestsOf(ctx, namespace)
	if err != nil {
		return nil // the cache has not started; its first list follows
	}
	return requests
}

// ofNamespace returns the budgets of a Namespace.
func (r *reconciler) ofNamespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	return r.requestsIn(ctx, namespace.GetName())
}

// projectedWith returns the budgets whose projection depends on a PodDisruptionBudget or on another budget.
func (r *reconciler) projectedWith(ctx context.Context, object client.Object) []reconcile.Request {
	if !r.options.ProjectPDBs {
		return nil
	}
	return r.requestsIn(ctx, object.GetNamespace())
}

func (r *reconciler) enqueueAll(ctx context.Context, q queue) error {
	requests, err := r.requestsOf(ctx, metav1.NamespaceAll)
	for _, request := range requests {
		q.Add(request)
	}
	return err
}

// budgetHandler syncs a budget at once after a change by users, and gathers changes of its status with those of pods.
func (r *reconciler) budgetHandler() handler.EventHandler {
	sync := func(ctx context.Context, object client.Object, q queue) {
		q.Add(requestFor(object))
		for _, request := range r.projectedWith(ctx, object) {
			q.AddAfter(request, gatherTime)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if e.IsInInitialList { // all others are in it, too
				q.Add(requestFor(e.Object))
				return
			}
			sync(ctx, e.Object, q)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, after := e.ObjectOld, e.ObjectNew
			if before.GetGeneration() != after.GetGeneration() || !maps.Equal(before.GetAnnotations(), after.GetAnnotations()) {
				sync(ctx, after, q)
				return
			}
			// The controller's own write needs no sync.
			if v := r.views.Get(client.ObjectKeyFromObject(after)); v == nil || v.budget.Load() == nil || v.budget.Load().ResourceVersion != after.GetResourceVersion() {
				q.AddAfter(requestFor(after), gatherTime)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { sync(ctx, e.Object, q) },
	}
}

// gather enqueues the budgets that cover pods with the given labels.
func (r *reconciler) gather(q queue, namespace string, labels map[string]string) {
	for _, key := range r.ledger.Covering(namespace, labels) {
		q.AddAfter(reconcile.Request{NamespacedName: key}, gatherTime)
	}
}

// onBoth is shell.OnChange, but an update wakes for the object both as it was and as it is.
func onBoth(wake shell.Wake[reconcile.Request], same func(before, after client.Object) bool) shell.Handler[reconcile.Request] {
	h := shell.OnChange(wake, same)
	h.UpdateFunc = func(ctx context.Context, e event.UpdateEvent, q queue) {
		if !same(e.ObjectOld, e.ObjectNew) {
			wake(ctx, e.ObjectOld, q)
			wake(ctx, e.ObjectNew, q)
		}
	}
	return h
}

// podChanged wakes the budgets that cover a pod.
func (r *reconciler) podChanged(_ context.Context, pod client.Object, q queue) {
	r.gather(q, pod.GetNamespace(), pod.GetLabels())
}

// samePod reports whether two versions of a pod are the same for budgets.
func samePod(a, b *corev1.Pod) bool {
	readyA, sinceA := coverage.Readiness(a)
	readyB, sinceB := coverage.Readiness(b)
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && a.Status.Phase == b.Status.Phase &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && readyA == readyB && sinceA.Equal(sinceB) &&
		maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// allChanged wakes all budgets.
func (r *reconciler) allChanged(context.Context, client.Object, queue) { r.nodes.Notice() }

// ownerChanged wakes the budgets that cover the pods of a workload.
func (r *reconciler) ownerChanged(_ context.Context, object client.Object, q queue) {
	if w := coverage.OfObject(object); w != nil {
		r.gather(q, object.GetNamespace(), w.Template.Labels)
	}
}
