// Package controller runs the routing control plane. Its reconciler reads a Service with its slices, groups, policies
// and the cluster's nodes, lets package internal/routing decide, and writes the result: hints on the slices or groups,
// a label and a condition on the Service, and events.
//
// It decides nothing about traffic itself. Its memory only delays writes: a restart changes when something is written,
// never what.
package controller

import (
	"context"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// Options are the choices of an administrator.
type Options struct {
	Settings routing.Settings
	// Exclusion says which Services are not routed.
	Exclusion intent.Exclusion
	Workers   int // Services that are synced at a time
	// MarkServices says which Services get a mark.
	MarkServices string
	// TopServices is the number of Services with their own metrics: those with the most endpoints.
	TopServices int
	// HandBackGrace is how long groups stay after the hand-back of a Service to kube-proxy.
	HandBackGrace time.Duration
	// ProxyNodes are the nodes that run vicinity-proxy. A Service is handed over when all of them have programmed it.
	ProxyNodes NodeRule
	// ReplanAfter is how long a Service must be quiet before a plan that is better by allocate.RenewMargin replaces its
	// plan. Zero switches that off.
	ReplanAfter time.Duration
	// ReplanRate is how many endpoints of all Services together may move for that in a minute, on average.
	ReplanRate int
	// Syncs, if given, track the syncs under way.
	Syncs *shell.Syncs
	// Awaits, if given, says what a ZoneShift waits for before it is accepted, empty for nothing.
	Awaits func(context.Context, *v1alpha1.ZoneShift) (string, error)
}

// Defaults of Options.
const (
	DefaultWorkers       = 8
	DefaultTopServices   = 20
	DefaultHandBackGrace = 10 * time.Second
	DefaultReplanAfter   = 10 * time.Minute
	DefaultReplanRate    = 100
)

// Add adds the controllers of Services and policies to a manager, whose cache must have
// CacheOptions.
func Add(ctx context.Context, mgr manager.Manager, options Options) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		return err
	}
	r := newReconciler(mgr.GetClient(), recorder, clock.RealClock{}, options)
	r.cilium.client = mgr.GetAPIReader() // a cache would need the right to list
	r.metrics.initialize()
	if err := r.metrics.register(); err != nil {
		return fmt.Errorf("registering metrics of routing: %w", err)
	}
	if err := r.addServices(mgr); err != nil {
		return fmt.Errorf("adding the controller of Services: %w", err)
	}
	if err := r.addShifts(mgr); err != nil {
		return fmt.Errorf("adding the controller of ZoneShifts: %w", err)
	}
	if err := r.addPolicies(mgr); err != nil {
		return fmt.Errorf("adding the controller of RoutingPolicies: %w", err)
	}
	return nil
}

func newReconciler(c client.Client, recorder events.EventRecorder, now clock.PassiveClock, options Options) *reconciler {
	r := &reconciler{
		client:   c,
		recorder: recorder,
		clock:    now,
		options:  options,
		memory:   newMemory(),
		pace:     newReplanPace(options.ReplanRate),
		planners: sync.Pool{New: func() any { return new(allocate.Planner) }},
	}
	r.proxies = newProxyTable(c, now, options.ProxyNodes)
	if r.syncs = options.Syncs; r.syncs == nil {
		r.syncs = shell.NewSyncs(now)
	}
	r.nodes = newNodeWatcher(c, r.memory, r.wakeAllShifted)
	r.cilium = &ciliumWatch{client: c, memory: r.memory}
	r.metrics = newMetrics(r.memory, r.cilium, options.TopServices)
	r.metrics.shifts = newShiftCollector(c, now)
	return r
}

func (r *reconciler) addServices(mgr manager.Manager) error {
	warm := true
	b := builder.ControllerManagedBy(mgr).
		Named("routing").
		For(&corev1.Service{}).
		Watches(&discoveryv1.EndpointSlice{}, handler.EnqueueRequestsFromMapFunc(serviceOfSlice)).
		Watches(&v1alpha1.EndpointGroup{}, handler.EnqueueRequestsFromMapFunc(serviceOfGroup)).
		Watches(&v1alpha1.RoutingPolicy{}, handler.EnqueueRequestsFromMapFunc(r.servicesOfPolicy),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Watches(&v1alpha1.ClusterRoutingPolicy{}, handler.EnqueueRequestsFromMapFunc(r.servicesOfPolicy),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WatchesMetadata(&corev1.Namespace{}, handler.EnqueueRequestsFromMapFunc(r.servicesOfNamespace),
			builder.WithPredicates(predicate.LabelChangedPredicate{})).
		Watches(&v1alpha1.ZoneShift{}, r.shiftHandler()).
		Watches(&corev1.Node{}, r.nodes.handler()).
		WatchesRawSource(r.nodes.source()).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.options.Workers, EnableWarmup: &warm})
	if !r.options.Settings.WithoutHints && r.options.MarkServices != MarkNever {
		b = b.WatchesRawSource(source.Func(r.cilium.run))
	}
	if !r.options.Settings.WithoutGroups {
		b = b.Watches(&coordinationv1.Lease{}, r.proxies.handler()).
			WatchesRawSource(source.Func(r.proxies.run)).
			WatchesRawSource(r.proxies.news.Source("waking Services that wait for proxies", r.proxies.wakeReady))
	}
	return b.Complete(r)
}

func serviceOfSlice(_ context.Context, object client.Object) []reconcile.Request {
	return serviceNamed(object.GetNamespace(), object.GetLabels()[discoveryv1.LabelServiceName])
}

func serviceOfGroup(_ context.Context, object client.Object) []reconcile.Request {
	return serviceNamed(object.GetNamespace(), object.GetLabels()[v1alpha1.LabelService])
}

func serviceNamed(namespace, name string) []reconcile.Request {
	if name == "" {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: namespace, Name: name}}}
}

// servicesOfPolicy returns all Services of a policy's namespace, which may name it, or all Services of the cluster for
// a ClusterRoutingPolicy.
func (r *reconciler) servicesOfPolicy(ctx context.Context, policy client.Object) []reconcile.Request {
	return r.servicesOf(ctx, client.InNamespace(policy.GetNamespace()))
}

// servicesOfNamespace returns the Services of a namespace: other ClusterRoutingPolicies may select it when its labels
// change, or when it enters the cache after the Services.
func (r *reconciler) servicesOfNamespace(ctx context.Context, namespace client.Object) []reconcile.Request {
	return r.servicesOf(ctx, client.InNamespace(namespace.GetName()))
}

func (r *reconciler) servicesOf(ctx context.Context, options ...client.ListOption) []reconcile.Request {
	var services corev1.ServiceList
	if err := r.client.List(ctx, &services, options...); err != nil {
		return nil // the cache has not started; its start requeues all Services
	}
	requests := make([]reconcile.Request, len(services.Items))
	for i := range services.Items {
		requests[i].NamespacedName = client.ObjectKeyFromObject(&services.Items[i])
	}
	return requests
}
