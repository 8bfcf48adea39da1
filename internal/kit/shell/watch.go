package shell

import (
	"context"
	"maps"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
)

// Queue has the requests of a controller.
type Queue[R comparable] = workqueue.TypedRateLimitingInterface[R]

// Handler handles the events of objects.
type Handler[R comparable] = handler.TypedFuncs[client.Object, R]

// Wake enqueues the requests that depend on an object.
type Wake[R comparable] func(ctx context.Context, object client.Object, q Queue[R])

// OnEvent wakes for every object that is listed, created, updated or deleted. If same is given, updates that it accepts are ignored.
func OnEvent[R comparable](wake Wake[R], same func(before, after client.Object) bool) Handler[R] {
	return Handler[R]{
		CreateFunc: func(ctx context.Context, e event.TypedCreateEvent[client.Object], q Queue[R]) { wake(ctx, e.Object, q) },
		UpdateFunc: func(ctx context.Context, e event.TypedUpdateEvent[client.Object], q Queue[R]) {
			if same == nil || !same(e.ObjectOld, e.ObjectNew) {
				wake(ctx, e.ObjectNew, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.TypedDeleteEvent[client.Object], q Queue[R]) { wake(ctx, e.Object, q) },
	}
}

// OnChange is OnEvent without the objects of the initial list. The synced objects come from an initial list of their own.
func OnChange[R comparable](wake Wake[R], same func(before, after client.Object) bool) Handler[R] {
	h := OnEvent(wake, same)
	h.CreateFunc = func(ctx context.Context, e event.TypedCreateEvent[client.Object], q Queue[R]) {
		if !e.IsInInitialList {
			wake(ctx, e.Object, q)
		}
	}
	return h
}

// Same makes a comparison of objects from that of a kind. Objects of other kinds differ.
func Same[T client.Object](same func(before, after T) bool) func(before, after client.Object) bool {
	return func(before, after client.Object) bool {
		b, ok := before.(T)
		a, also := after.(T)
		return ok && also && same(b, a)
	}
}

// SameLabels compares the labels of an object before and after an update.
func SameLabels(before, after client.Object) bool {
	return maps.Equal(before.GetLabels(), after.GetLabels())
}

// SameAnnotations compares the annotations of an object before and after an update.
func SameAnnotations(before, after client.Object) bool {
	return maps.Equal(before.GetAnnotations(), after.GetAnnotations())
}
