package controller

import (
	"context"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/names/location"
)

type queue = shell.Queue[reconcile.Request]

func requestFor(object client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
}

// enqueueBulk enqueues pods with low priority: a change of a node or a key must not delay the first PodLocator of a new pod.
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

// podHandler enqueues pods whose addresses or nodes change, and records when a pod gets its first addresses. A standby also
// records it and syncs no pod, so the record is deleted with the pod.
func (r *reconciler) podHandler() shell.Handler[reconcile.Request] {
	h := shell.OnEvent(func(_ context.Context, pod client.Object, q queue) { q.Add(requestFor(pod)) }, samePod)
	created, updated, deleted := h.CreateFunc, h.UpdateFunc, h.DeleteFunc
	h.CreateFunc = func(ctx context.Context, e event.CreateEvent, q queue) {
		if pod, ok := e.Object.(*corev1.Pod); ok && !e.IsInInitialList && location.HasOwnAddress(pod) {
			r.recordArrival(pod)
		}
		created(ctx, e, q)
	}
	h.UpdateFunc = func(ctx context.Context, e event.UpdateEvent, q queue) {
		before, ok := e.ObjectOld.(*corev1.Pod)
		after, also := e.ObjectNew.(*corev1.Pod)
		if ok && also && !location.HasOwnAddress(before) && location.HasOwnAddress(after) {
			r.recordArrival(after)
		}
		updated(ctx, e, q)
	}
	h.DeleteFunc = func(ctx context.Context, e event.DeleteEvent, q queue) {
		r.arrivals.Delete(client.ObjectKeyFromObject(e.Object))
		deleted(ctx, e, q)
	}
	return h
}

func (r *reconciler) recordArrival(pod *corev1.Pod) {
	r.arrivals.LoadOrStore(client.ObjectKeyFromObject(pod), r.clock.Now())
}

// samePod compares the parts of pods that PodLocators depend on.
func samePod(before, after client.Object) bool {
	a, ok := before.(*corev1.Pod)
	b, also := after.(*corev1.Pod)
	return ok && also && a.UID == b.UID && a.Spec.NodeName == b.Spec.NodeName && location.HasOwnAddress(a) == location.HasOwnAddress(b) && slices.Equal(a.Status.PodIPs, b.Status.PodIPs)
}

// locatorHandler enqueues pods whose PodLocators change.
func (r *reconciler) locatorHandler() shell.Handler[reconcile.Request] {
	wake := func(_ context.Context, object client.Object, q queue) { q.Add(requestFor(object)) }
	h := shell.OnEvent(wake, func(before, after client.Object) bool {
		return before.GetResourceVersion() == after.GetResourceVersion()
	})
	h.DeleteFunc = func(_ context.Context, e event.DeleteEvent, q queue) {
		r.written.deleted(e.Object)
		q.Add(requestFor(e.Object))
	}
	return h
}

// nodeHandler enqueues the pods of nodes that are added, deleted, or get other labels or ranges. Nodes report their status every
// few minutes, mostly unchanged.
func (r *reconciler) nodeHandler() shell.Handler[reconcile.Request] {
	return shell.OnChange(func(ctx context.Context, node client.Object, q queue) { r.enqueuePodsOf(ctx, node.GetName(), q) }, r.sameNode)
}

// sameNode compares the parts of nodes that PodLocators depend on.
func (r *reconciler) sameNode(before, after client.Object) bool {
	a, ok := before.(*corev1.Node)
	b, also := after.(*corev1.Node)
	if !ok || !also || !slices.Equal(location.PodRanges(a), location.PodRanges(b)) {
		return false
	}
	if maps.Equal(a.Labels, b.Labels) {
		return true
	}
	keys := r.labels.keys.Load() // nil before the first sync
	return keys != nil && maps.Equal(keys.of(a), keys.of(b))
}

func (r *reconciler) enqueuePodsOf(ctx context.Context, node string, q queue) {
	var pods corev1.PodList
	if err := r.client.List(ctx, &pods, client.MatchingFields{indexNode: node}); err != nil {
		log.FromContext(ctx).Error(err, "reading pods of a node", "node", node)
		return
	}
	enqueueBulk(q, pods.Items)
}
