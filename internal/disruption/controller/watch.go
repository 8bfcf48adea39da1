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
		Watches(&corev1.Pod{}, r.podHandler()).
		Watches(&corev1.Node{}, r.nodeHandler()).
		Watches(&v1alpha1.ZoneShift{}, r.shiftHandler()).
		Watches(&policyv1.PodDisruptionBudget{}, handler.EnqueueRequestsFromMapFunc(r.projectedWith), builder.WithPredicates(
			predicate.Or(predicate.GenerationChangedPredicate{}, predicate.LabelChangedPredicate{}),
		)).
		WatchesRawSource(r.nodes.Source("reading the budgets that nodes or ZoneShifts changed for", r.enqueueAll)).
		WatchesRawSource(source.Channel(r.namespaces.changed, handler.EnqueueRequestsFromMapFunc(r.ofNamespace))).
		WithOptions(many)
	for _, owner := range []client.Object{&appsv1.Deployment{}, &appsv1.ReplicaSet{}, &appsv1.StatefulSet{}, &appsv1.DaemonSet{}} {
		b = b.Watches(owner, r.ownerHandler())
	}
	if r.options.Served {
		b = b.Watches(&admissionv1.MutatingWebhookConfiguration{}, r.webhookHandler())
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

// follow handles objects that are created, deleted or not the same after an update. It handles an updated object both as it was and as
// it is.
func follow[T client.Object](same func(before, after T) bool, handle func(T, queue)) handler.EventHandler {
	one := func(object client.Object, q queue) {
		if o, ok := object.(T); ok {
			handle(o, q)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList { // all budgets are synced at the start anyway
				one(e.Object, q)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(T)
			after, also := e.ObjectNew.(T)
			if ok && also && !same(before, after) {
				handle(before, q)
				handle(after, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { one(e.Object, q) },
	}
}

// podHandler follows changes of pods that matter to budgets.
func (r *reconciler) podHandler() handler.EventHandler {
	return follow(samePod, func(pod *corev1.Pod, q queue) { r.gather(q, pod.Namespace, pod.Labels) })
}

// samePod reports whether two versions of a pod are the same for budgets.
func samePod(a, b *corev1.Pod) bool {
	readyA, sinceA := coverage.Readiness(a)
	readyB, sinceB := coverage.Readiness(b)
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && a.Status.Phase == b.Status.Phase &&
		(a.DeletionTimestamp == nil) == (b.DeletionTimestamp == nil) && readyA == readyB && sinceA.Equal(sinceB) &&
		maps.Equal(a.Labels, b.Labels) && equality.Semantic.DeepEqual(a.OwnerReferences, b.OwnerReferences)
}

// nodeHandler follows changes of nodes that matter to budgets.
func (r *reconciler) nodeHandler() handler.EventHandler {
	return follow(coverage.SameNode, func(*corev1.Node, queue) { r.nodes.Notice() })
}

// shiftHandler follows the acceptance, the time and the end of ZoneShifts.
func (r *reconciler) shiftHandler() handler.EventHandler {
	return follow(shift.Same, func(*v1alpha1.ZoneShift, queue) { r.nodes.Notice() })
}

// webhookHandler follows the webhook configurations.
func (r *reconciler) webhookHandler() handler.EventHandler {
	return follow(func(_, _ client.Object) bool { return false }, func(client.Object, queue) { r.nodes.Notice() })
}

// ownerHandler follows the replicas, placement and rollout strategy of workloads.
func (r *reconciler) ownerHandler() handler.EventHandler {
	return follow(coverage.SameWorkload[client.Object], func(object client.Object, q queue) {
		if w := coverage.OfObject(object); w != nil {
			r.gather(q, object.GetNamespace(), w.Template.Labels)
		}
	})
}
