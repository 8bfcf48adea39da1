package locator

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/internal/location"
)

type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]

func requestFor(object client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
}

// enqueueBulk has pods synced after those that changed themselves: a node or a key of many pods
// must not keep a new pod waiting for its first PodLocator.
func enqueueBulk(q queue, pods []corev1.Pod) {
	requests := make([]reconcile.Request, len(pods))
	for i := range pods {
		requests[i] = requestFor(&pods[i])
	}
	low := handler.LowPriority
	if p, ok := q.(priorityqueue.PriorityQueue[reconcile.Request]); ok {
		p.AddWithOpts(priorityqueue.AddOpts{Priority: &low}, requests...)
		return
	}
	for _, request := range requests {
		q.Add(request)
	}
}

// podHandler follows pods whose addresses or nodes change.
func (r *reconciler) podHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) {
			if pod, ok := e.Object.(*corev1.Pod); ok && !e.IsInInitialList && isLocatable(pod) {
				r.arrivals.note(client.ObjectKeyFromObject(pod), r.clock.Now())
			}
			q.Add(requestFor(e.Object))
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*corev1.Pod)
			after, also := e.ObjectNew.(*corev1.Pod)
			if ok && also && samePod(before, after) {
				return
			}
			if also && !isLocatable(before) && isLocatable(after) {
				r.arrivals.note(client.ObjectKeyFromObject(after), r.clock.Now())
			}
			q.Add(requestFor(e.ObjectNew))
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) { q.Add(requestFor(e.Object)) },
	}
}

// samePod compares what a PodLocator says.
func samePod(a, b *corev1.Pod) bool {
	return a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && isLocatable(a) == isLocatable(b) && slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
}

// locatorHandler follows what anybody does to PodLocators.
func (r *reconciler) locatorHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q queue) { q.Add(requestFor(e.Object)) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q queue) {
			if e.ObjectOld.GetResourceVersion() != e.ObjectNew.GetResourceVersion() {
				q.Add(requestFor(e.ObjectNew))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q queue) {
			r.written.gone(e.Object)
			q.Add(requestFor(e.Object))
		},
	}
}

// nodeHandler follows nodes that come, go, or have other labels or ranges. Nodes report their
// status every few minutes, mostly unchanged.
func (r *reconciler) nodeHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, q queue) {
			if !e.IsInInitialList { // or else their pods are in theirs
				r.enqueuePodsOf(ctx, e.Object.GetName(), q)
			}
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q queue) {
			before, ok := e.ObjectOld.(*corev1.Node)
			after, also := e.ObjectNew.(*corev1.Node)
			if !ok || !also || !r.sameNode(ctx, before, after) {
				r.enqueuePodsOf(ctx, e.ObjectNew.GetName(), q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) { r.enqueuePodsOf(ctx, e.Object.GetName(), q) },
	}
}

// sameNode compares what PodLocators depend on.
func (r *reconciler) sameNode(ctx context.Context, a, b *corev1.Node) bool {
	if !slices.Equal(location.PodRanges(a), location.PodRanges(b)) {
		return false
	}
	if maps.Equal(a.Labels, b.Labels) {
		return true
	}
	keys, err := r.labels.current(ctx)
	return err == nil && maps.Equal(keys.of(a), keys.of(b))
}

func (r *reconciler) enqueuePodsOf(ctx context.Context, node string, q queue) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingFields{indexNode: node}); err != nil {
		log.FromContext(ctx).Error(err, "reading pods of a node", "node", node)
		return
	}
	enqueueBulk(q, pods.Items)
}
