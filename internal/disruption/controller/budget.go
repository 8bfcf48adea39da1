// Package controller reports on TopologyDisruptionBudgets by status, conditions, events and metrics. It labels the
// namespaces with budgets, so that the API server asks the webhook about their evictions. It can also keep PodDisruptionBudgets that
// are equal to simple budgets.
//
// It decides no eviction, and no eviction waits for it: the webhooks read pods and budgets themselves. Its writes follow from stored
// objects, so a restart writes nothing.
package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/shell"
)

// Options are the choices of an administrator.
type Options struct {
	// Own is the namespace of Vicinity itself, which is never labelled.
	Own string
	// Served says that this program serves the webhook of evictions. The API server reaches it by the Service of this name in Own.
	Served  bool
	Service string
	// ProjectPDBs keeps PodDisruptionBudgets for simple budgets. Without it existing ones are deleted.
	ProjectPDBs bool
	Workers     int // concurrent syncs of budgets
	// Rate bounds the writes of status for each second, of all budgets together.
	Rate float32
	// Top is the number of budgets with their own metrics. They are the budgets that allow the least.
	Top int
	// Syncs, if set, tracks running syncs.
	Syncs *shell.Syncs
}

// DefaultTop is the default of Options.Top.
const DefaultTop = 20

const (
	// gatherTime is how long a budget gathers changes of pods and owners. Its status is written at most once in this time.
	gatherTime = time.Second
	// nodeGatherTime is the same for nodes, on which all budgets depend.
	nodeGatherTime = 5 * time.Second
	// projectionRetry is the wait after a failed write of the PodDisruptionBudgets of a budget.
	projectionRetry = 30 * time.Second
)

// ledger is the part of reservation.Ledger that this package uses.
type ledger interface {
	Covering(namespace string, labels map[string]string) []types.NamespacedName
	Refresh(ctx context.Context, budget types.NamespacedName, conditions func(*reservation.Report) []metav1.Condition) (*reservation.Report, error)
}

// Add adds the controllers to a manager. Its cache must have what the Ledger reads, and the metadata of Namespaces.
func Add(ctx context.Context, mgr manager.Manager, l ledger, options Options) error {
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		return err
	}
	r := newReconciler(base{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), recorder: recorder, clock: clock.RealClock{}, options: options,
	}, l)
	if err := r.metrics.register(); err != nil {
		return err
	}
	if err := r.add(mgr); err != nil {
		return fmt.Errorf("adding the controllers of TopologyDisruptionBudgets: %w", err)
	}
	return nil
}

// base is shared by the reconcilers.
type base struct {
	client   client.Client
	live     client.Reader // not of a cache
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	syncs    *shell.Syncs
}

// reconciler syncs the status of a budget.
type reconciler struct {
	base
	ledger     ledger
	views      *shell.Notes[types.NamespacedName, view]
	namespaces *namespaces
	projection *projection
	nodes      *shell.Gatherer
	turns      *turns
	metrics    *metrics
}

// view is the last known state of a budget, without its pods and nodes.
type view struct {
	// budget is the stored one, nil before the first sync. Metrics and event handlers read it, too, and must not change it.
	budget    atomic.Pointer[v1alpha1.TopologyDisruptionBudget]
	projected *verdict // nil before the first sync of its PodDisruptionBudgets
}

func newView() *view { return &view{} }

func newReconciler(b base, l ledger) *reconciler {
	if b.syncs = b.options.Syncs; b.syncs == nil {
		b.syncs = shell.NewSyncs(b.clock)
	}
	views := &shell.Notes[types.NamespacedName, view]{}
	return &reconciler{
		base: b, ledger: l, views: views,
		namespaces: newNamespaces(b),
		projection: newProjection(b),
		nodes:      shell.NewGatherer(nodeGatherTime),
		turns:      newTurns(b.options.Rate),
		metrics:    newMetrics(views, b.clock, b.options.Top),
	}
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	defer r.syncs.Begin("TopologyDisruptionBudget " + request.String())()
	after, err := r.sync(ctx, request.NamespacedName)
	result, outcome, err := shell.Finish(after, err)
	r.metrics.synced(outcome)
	if err != nil && after > 0 {
		log.FromContext(ctx).Error(err, "writing PodDisruptionBudgets failed; the status is up to date", "retryAfter", after.String())
		return reconcile.Result{RequeueAfter: after}, nil
	}
	return result, err
}

// sync returns when to sync again, zero for never. It returns both a time and an error if only the PodDisruptionBudgets
// failed: the backoff after an error would delay the status, which time alone can change.
func (r *reconciler) sync(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	if err := r.client.Get(ctx, key, &v1alpha1.TopologyDisruptionBudget{}); apierrors.IsNotFound(err) {
		r.views.Forget(key)
		r.turns.forget(key)
		return 0, r.projection.remove(ctx, key)
	} else if err != nil {
		return 0, fmt.Errorf("reading TopologyDisruptionBudget %s: %w", key, err)
	}
	enforced, known, err := r.enforcement(ctx, key.Namespace)
	if err != nil || !known {
		r.turns.forget(key)
		return 0, err // the sync of the namespace wakes it
	}
	if wait := r.turns.wait(key, r.clock.Now()); wait > 0 {
		return wait, nil
	}
	report, err := r.refresh(ctx, key, enforced)
	if err != nil || report == nil {
		return 0, err // the event of its deletion follows
	}
	projected, err := r.projection.sync(ctx, report)
	if err != nil {
		return shell.Sooner(projectionRetry, r.nextChange(report)), err
	}
	v := r.views.Of(key, newView)
	before := v.projected
	if v.projected = projected; projected != nil && (before == nil || *before != *projected) {
		if report, err = r.refresh(ctx, key, enforced); err != nil || report == nil {
			return 0, err
		}
	}
	return r.nextChange(report), nil
}

// nextChange returns when time alone changes the status, zero for never.
func (r *reconciler) nextChange(report *reservation.Report) time.Duration {
	return until(r.clock.Now(), report.Next, blockedAt(report.Budget.Status.Conditions))
}

// refresh brings the status of a budget up to date and writes events about changes. The report is nil if the budget does not exist.
func (r *reconciler) refresh(ctx context.Context, key types.NamespacedName, enforced verdict) (*reservation.Report, error) {
	now, v := r.clock.Now(), r.views.Of(key, newView)
	var before []metav1.Condition
	report, err := r.ledger.Refresh(ctx, key, func(report *reservation.Report) []metav1.Condition {
		before = report.Budget.Status.Conditions
		j := judge{report: report, enforced: enforced, projected: v.projected, now: now}
		return j.conditions()
	})
	if err != nil {
		return nil, fmt.Errorf("writing the status of TopologyDisruptionBudget %s: %w", key, err)
	}
	if report == nil {
		return nil, nil
	}
	if report.Written {
		r.turns.wrote(key.Namespace, now)
		r.metrics.writes.Inc()
		for _, e := range transitions(before, report.Budget.Status.Conditions) {
			r.recorder.Eventf(report.Budget, nil, e.kind, e.reason, "Disruption", "%s", e.message)
		}
	}
	v.budget.Store(report.Budget)
	return report, nil
}

// until returns the time until the first future moment, zero without one.
func until(now time.Time, times ...time.Time) time.Duration {
	var wait time.Duration
	for _, t := range times {
		if t.After(now) {
			wait = shell.Sooner(wait, t.Sub(now))
		}
	}
	return wait
}

func requestFor(object client.Object) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}
}

// budgetsOf lists the budgets of a namespace, or of all namespaces if the name is empty.
func budgetsOf(ctx context.Context, c client.Reader, namespace string) ([]v1alpha1.TopologyDisruptionBudget, error) {
	var list v1alpha1.TopologyDisruptionBudgetList
	if err := c.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("reading TopologyDisruptionBudgets: %w", err)
	}
	return list.Items, nil
}
