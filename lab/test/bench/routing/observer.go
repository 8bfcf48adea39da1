package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// observer watches slices and Services as a proxy does, and records when they change.
type observer struct {
	mu       sync.Mutex
	services map[types.NamespacedName]*observed
	// reported counts Services with a condition, done Services with hints or a reason to have none.
	reported, done int
	// sliceWrites and serviceWrites count updates.
	sliceWrites, serviceWrites int
	// last is the time of the last change of done.
	last time.Time
	// happened signals every event.
	happened chan struct{}
}

type observed struct {
	// bare counts the endpoints without hints.
	bare, endpoints int
	// reason is that of the condition, or empty.
	reason string
	// change is the change in progress, or nil.
	change *change
}

func (o *observed) hinted() bool { return o.endpoints > 0 && o.bare == 0 }

// done reports whether the Service has hints, or a condition that says why it gets none.
func (o *observed) done() bool {
	return o.hinted() || o.reason != "" && o.reason != "Allocated"
}

func watch(ctx context.Context, api kubernetes.Interface) (*observer, error) {
	o := &observer{services: map[types.NamespacedName]*observed{}, happened: make(chan struct{}, 1)}
	informers := []cache.Controller{
		informer(api.DiscoveryV1().RESTClient(), "endpointslices", discoveryv1.LabelManagedBy+"="+meter.Manager, &discoveryv1.EndpointSlice{}, o.slice),
		informer(api.CoreV1().RESTClient(), "services", "", &corev1.Service{}, o.service),
	}
	for _, i := range informers {
		go i.RunWithContext(ctx)
	}
	if !cache.WaitForCacheSync(ctx.Done(), informers[0].HasSynced, informers[1].HasSynced) {
		return nil, fmt.Errorf("watching slices and Services: %w", context.Cause(ctx))
	}
	return o, nil
}

// informer calls a function with each object, and with each object before and after an update.
func informer[T runtime.Object](client rest.Interface, resource, selector string, object T, call func(before, after T)) cache.Controller {
	var none T
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewFilteredListWatchFromClient(client, resource, metav1.NamespaceAll, func(options *metav1.ListOptions) {
			options.LabelSelector = selector
		}),
		ObjectType: object,
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc: func(object any) {
				if after, ok := object.(T); ok {
					call(none, after)
				}
			},
			UpdateFunc: func(old, object any) {
				before, ok := old.(T)
				after, also := object.(T)
				if ok && also {
					call(before, after)
				}
			},
		},
	})
	return controller
}

func (o *observer) slice(before, after *discoveryv1.EndpointSlice) {
	now := time.Now()
	key := types.NamespacedName{Namespace: after.Namespace, Name: after.Labels[discoveryv1.LabelServiceName]}
	o.note(key, now, func(s *observed) {
		if before != nil {
			o.sliceWrites++
			s.count(before, -1)
		}
		s.count(after, 1)
		if s.change != nil && before != nil {
			s.change.see(before, after, now)
		}
	})
}

func (o *observer) service(before, after *corev1.Service) {
	key := types.NamespacedName{Namespace: after.Namespace, Name: after.Name}
	if after.Namespace == metav1.NamespaceDefault {
		return // Kubernetes' own
	}
	o.note(key, time.Now(), func(s *observed) {
		if before != nil {
			o.serviceWrites++
		}
		if condition := routing.ConditionOf(after); condition != nil {
			s.reason = condition.Reason
		}
	})
}

func (o *observer) note(key types.NamespacedName, now time.Time, change func(*observed)) {
	o.mu.Lock()
	s := o.services[key]
	if s == nil {
		s = &observed{}
		o.services[key] = s
	}
	done := o.done
	o.tally(s, -1)
	change(s)
	o.tally(s, 1)
	if o.done != done {
		o.last = now
	}
	o.mu.Unlock()
	select {
	case o.happened <- struct{}{}:
	default:
	}
}

func (o *observer) tally(s *observed, sign int) {
	for _, part := range []struct {
		count *int
		holds bool
	}{{&o.reported, s.reason != ""}, {&o.done, s.done()}} {
		if part.holds {
			*part.count += sign
		}
	}
}

func (o *observed) count(slice *discoveryv1.EndpointSlice, sign int) {
	for i := range slice.Endpoints {
		o.endpoints += sign
		if !hasHints(&slice.Endpoints[i]) {
			o.bare += sign
		}
	}
}

func hasHints(e *discoveryv1.Endpoint) bool { return e.Hints != nil && len(e.Hints.ForZones) > 0 }

func (o *observer) wait(ctx context.Context, missing func() string) error {
	for {
		o.mu.Lock()
		what := missing()
		o.mu.Unlock()
		if what == "" {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", what, context.Cause(ctx))
		case <-o.happened:
		}
	}
}

func (o *observer) begin(key types.NamespacedName, c *change) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c.sent = time.Now()
	o.services[key].change = c
}

func (o *observer) writes() (slices, services int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sliceWrites, o.serviceWrites
}
