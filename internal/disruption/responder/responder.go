// Package responder answers EvictionRequests. A pod that names vicinity.dev/budget as a responder waits for its
// TopologyDisruptionBudgets before any responder of lower priority has its turn. So budgets also hold against
// responders that delete pods directly, which no webhook sees. The Ledger decides.
//
// During its turn the responder reports the numbers of the budgets that do not allow the
// eviction. Once the pod has its reservations, the responder completes, and Kubernetes continues with the next one. When all
// requests are withdrawn, it gives up the reservations.
//
// # Reservations of slow evictions
//
// A reservation lasts two minutes, but the next responder may take hours, for example to move data first. The pod must
// count as down until it is deleted. Otherwise another eviction would take its room. So the responder renews
// the reservations while a request still stands and a responder other than Kubernetes' evictor may delete the pod. The renewals end,
// and the reservations expire within two minutes, when
//
//   - the pod is terminating or gone, which counts without a reservation,
//   - only the evictor is left, which asks the webhook of evictions again,
//   - the requests are withdrawn,
//   - the Eviction fails or is deleted, as when a responder does not report for 20 minutes,
//   - this responder ends without a successor.
//
// If requests are withdrawn after another responder had its turn, the reservations expire by themselves, because that
// responder may not have seen the withdrawal yet. Otherwise they are given up at once, unless they admitted another eviction as well or
// an earlier process made them.
//
// The memory can be lost. If the API server does not serve EvictionRequests, nothing is watched.
package responder

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// Options of the responder.
type Options struct {
	// Served says whether the API server serves EvictionRequests.
	Served  func() bool
	Workers int // concurrent syncs of pods
	// Reports bounds the changed messages for each second, of all Evictions together.
	Reports float32
	// Syncs, if set, tracks running syncs.
	Syncs *shell.Syncs
}

// ledger is the part of reservation.Ledger that this package uses.
type ledger interface {
	Admit(ctx context.Context, request reservation.Request) (reservation.Answer, error)
	Undo(ctx context.Context, pod types.NamespacedName, uid types.UID, holder string) error
	Hold(ctx context.Context, pod *corev1.Pod, holder string) error
}

// target is a pod to evict. It may have several Evictions, one after the other.
type target struct {
	types.NamespacedName
	UID types.UID
}

// targetOf returns the pod of an Eviction.
func targetOf(eviction *lifecyclev1alpha1.Eviction) (target, bool) {
	pod := eviction.Spec.Target.Pod
	if pod == nil {
		return target{}, false
	}
	return target{types.NamespacedName{Namespace: eviction.Namespace, Name: pod.Name}, pod.UID}, true
}

// Add adds the responder to a manager. Its cache must have what the Ledger reads.
func Add(mgr manager.Manager, l ledger, options Options) error {
	r := newReconciler(mgr.GetClient(), l, clock.RealClock{}, options)
	if err := r.metrics.register(); err != nil {
		return err
	}
	return mgr.Add(&starter{mgr: mgr, reconciler: r, options: options})
}

// starter starts the controller once the API is served. Only the leader runs it.
type starter struct {
	mgr        manager.Manager
	reconciler *reconciler
	options    Options
}

// detectEvery is the interval of checks whether the API is served.
const detectEvery = time.Second

// Start implements manager.Runnable.
func (s *starter) Start(ctx context.Context) error {
	served := func(context.Context) (bool, error) { return s.options.Served(), nil }
	if err := wait.PollUntilContextCancel(ctx, detectEvery, true, served); err != nil {
		return nil // the context ended
	}
	if err := s.run(ctx); err != nil {
		return fmt.Errorf("answering EvictionRequests: %w", err)
	}
	return nil
}

// indexUID indexes Evictions by the UID of their pod.
const indexUID = "uid"

// own selects Evictions of pods that name the responder. Kubernetes labels them.
func own() labels.Selector {
	named, err := labels.NewRequirement(v1alpha1.EvictionResponder, selection.Exists, nil)
	if err != nil {
		panic(err) // the requirement is constant
	}
	return labels.NewSelector().Add(*named)
}

// run answers until the context ends.
func (s *starter) run(ctx context.Context) error {
	shared := true
	// Only the leader needs Evictions, and the manager's cache cannot have a kind that may not be served.
	evictions, err := cache.New(s.mgr.GetConfig(), cache.Options{
		HTTPClient: s.mgr.GetHTTPClient(), Scheme: s.mgr.GetScheme(), Mapper: s.mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{
			&lifecyclev1alpha1.Eviction{}: {Label: own(), UnsafeDisableDeepCopy: &shared},
		},
	})
	if err != nil {
		return err
	}
	err = evictions.IndexField(ctx, &lifecyclev1alpha1.Eviction{}, indexUID, func(object client.Object) []string {
		t, ok := targetOf(object.(*lifecyclev1alpha1.Eviction))
		if !ok {
			return nil
		}
		return []string{string(t.UID)}
	})
	if err != nil {
		return err
	}
	r := s.reconciler
	r.evictions = evictions
	c, err := controller.NewTypedUnmanaged("responder", controller.TypedOptions[target]{
		Reconciler: r, MaxConcurrentReconciles: s.options.Workers, Logger: s.mgr.GetLogger(),
	})
	if err != nil {
		return err
	}
	if err := c.Watch(source.TypedKind(evictions, &lifecyclev1alpha1.Eviction{}, r.evictionHandler())); err != nil {
		return err
	}
	if err := c.Watch(source.TypedKind(s.mgr.GetCache(), &v1alpha1.TopologyDisruptionBudget{}, r.budgetHandler())); err != nil {
		return err
	}
	work, ctx := errgroup.WithContext(ctx)
	work.Go(func() error { return evictions.Start(ctx) })
	work.Go(func() error { return c.Start(ctx) })
	return work.Wait()
}

func newReconciler(c client.Client, l ledger, now clock.PassiveClock, options Options) *reconciler {
	r := &reconciler{
		client: c, ledger: l, clock: now,
		reports: rate.NewLimiter(rate.Limit(options.Reports), max(1, int(options.Reports))),
		notes:   &shell.Notes[target, notes]{},
	}
	r.metrics = newMetrics(r.waiting)
	if r.syncs = options.Syncs; r.syncs == nil {
		r.syncs = shell.NewSyncs(now)
	}
	return r
}

func (r *reconciler) evictionHandler() handler.TypedEventHandler[*lifecyclev1alpha1.Eviction, target] {
	return handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, eviction *lifecyclev1alpha1.Eviction) []target {
		if t, ok := targetOf(eviction); ok {
			return []target{t}
		}
		return nil
	})
}

// budgetHandler wakes the waiting pods of a namespace when one of its budgets may allow more.
func (r *reconciler) budgetHandler() handler.TypedEventHandler[*v1alpha1.TopologyDisruptionBudget, target] {
	type queue = workqueue.TypedRateLimitingInterface[target]
	wake := func(namespace string, q queue) {
		for _, t := range r.waiting() {
			if t.Namespace == namespace {
				q.AddAfter(t, jitter(wakeTime))
			}
		}
	}
	return handler.TypedFuncs[*v1alpha1.TopologyDisruptionBudget, target]{
		UpdateFunc: func(_ context.Context, e event.TypedUpdateEvent[*v1alpha1.TopologyDisruptionBudget], q queue) {
			before, after := e.ObjectOld, e.ObjectNew
			if after.Status.DisruptionsAllowed > 0 || after.Generation != before.Generation ||
				after.Annotations[v1alpha1.AnnotationBreakGlass] != before.Annotations[v1alpha1.AnnotationBreakGlass] {
				wake(after.Namespace, q)
			}
		},
		DeleteFunc: func(_ context.Context, e event.TypedDeleteEvent[*v1alpha1.TopologyDisruptionBudget], q queue) {
			wake(e.Object.Namespace, q)
		},
	}
}
