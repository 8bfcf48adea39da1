// Package controller keeps the pods of Deployments and ReplicaSets spread over failure domains when they are scaled down, if the
// workload or its namespace has v1alpha1.AnnotationKeepSpread. It writes deletion costs, by which ReplicaSets choose the pods to
// delete. Package spread computes the costs.
//
// It never writes to a pod with a cost of another owner, and writes nothing if the order is already right. Beside a cost it
// writes v1alpha1.AnnotationDeletionCost with the same value, so that a restarted controller recognizes its own costs. It removes both
// when the workload no longer has the annotation.
//
// # Repair
//
// A rolling update creates new pods before the old ones are gone, so it may end with a skew although every pod went in the right
// order. With v1alpha1.AnnotationRepairSpread, the controller evicts pods of a Deployment that has been quiet for a while: one at
// a time, as budgets allow, and as long as another domain has two pods less. The evictions of each generation of the Deployment are
// bounded. After an eviction that did not improve the spread, the next one waits longer. Both are kept in memory: a
// restarted controller starts over after the Deployment has been quiet again.
//
// # Paced scale-downs
//
// A second controller continues scale-downs that budgets allowed only in part, of workloads with v1alpha1.PaceClamp, until
// the workload has the replicas of v1alpha1.AnnotationWantedReplicas. It decides nothing: it asks package pacing
// whether the next step is allowed. If so, it writes the workload without a change of its spec, and the webhook in
// internal/scaledown/webhook/scale turns that write into the step, with its reservations.
//
// It looks when pods or budgets change, and otherwise after a wait that doubles, with jitter, so that workloads do not all ask a budget at
// once. If a workload gets more replicas meanwhile, or is no longer paced, it stays as it is and its annotations are removed. The
// annotations are the only memory, so a restart changes nothing.
package controller

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	disruptionrequester "vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

// Options configure the controller.
type Options struct {
	// Budgets says that TopologyDisruptionBudgets are enforced: the pods of domains without allowance go last.
	Budgets bool
	Workers int // concurrent syncs of workloads
	// Rate and Burst bound the writes of costs, for each second and at once.
	Rate  float32
	Burst int
	// Syncs, if set, tracks running syncs.
	Syncs *shell.Syncs
}

// workload names a Deployment, or a ReplicaSet without a Deployment.
type workload struct {
	types.NamespacedName
	kind pacing.Kind
}

func (w workload) String() string { return string(w.kind) + " " + w.NamespacedName.String() }

// workloadOf returns the workload of a ReplicaSet.
func workloadOf(set *appsv1.ReplicaSet) workload {
	if owner := metav1.GetControllerOf(set); isOf(owner, pacing.Deployment) {
		return workload{types.NamespacedName{Namespace: set.Namespace, Name: owner.Name}, pacing.Deployment}
	}
	return workload{client.ObjectKeyFromObject(set), pacing.ReplicaSet}
}

// isOf reports whether an owner is of a kind.
func isOf(owner *metav1.OwnerReference, k pacing.Kind) bool {
	return owner != nil && owner.Kind == string(k) && strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/")
}

// indexController indexes pods and ReplicaSets by the UID of their controller.
const indexController = "scaledown.controller"

func controllerOf(object client.Object) []string {
	if owner := metav1.GetControllerOf(object); isOf(owner, pacing.Deployment) || isOf(owner, pacing.ReplicaSet) {
		return []string{string(owner.UID)}
	}
	return nil
}

func addIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, object := range []client.Object{&corev1.Pod{}, &appsv1.ReplicaSet{}} {
		if err := indexer.IndexField(ctx, object, indexController, controllerOf); err != nil {
			return fmt.Errorf("indexing %T by controller: %w", object, err)
		}
	}
	return nil
}

// evictor is the part of requester.Requester that repairs use.
type evictor interface {
	Request(ctx context.Context, pod *corev1.Pod, requester, reason string) (disruptionrequester.Outcome, error)
	Withdraw(ctx context.Context, pod *corev1.Pod, requester string) error
}

// Add adds the controller to a manager, whose cache must have reservation.CacheOptions.
func Add(ctx context.Context, mgr manager.Manager, evicts evictor, options Options) error {
	if err := addIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
		return err
	}
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		return err
	}
	r := newReconciler(reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), evictor: evicts, recorder: recorder, clock: clock.RealClock{}, options: options,
	})
	if err := r.metrics.register(); err != nil {
		return err
	}
	if err := r.add(mgr); err != nil {
		return fmt.Errorf("adding the controller of scale-downs: %w", err)
	}
	return nil
}

// reconciler syncs the deletion costs of the pods of a workload.
type reconciler struct {
	client   client.Client
	live     client.Reader // without a cache
	nodes    *shell.RecentNodes
	evictor  evictor
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	quiet    time.Duration // before and between repairs
	limiter  flowcontrol.RateLimiter
	notes    *shell.Notes[workload, notes]
	metrics  *metrics
}

func newReconciler(r reconciler) *reconciler {
	r.quiet = cmp.Or(r.quiet, quietTime)
	r.limiter = flowcontrol.NewTokenBucketRateLimiter(r.options.Rate, r.options.Burst)
	r.nodes = &shell.RecentNodes{Live: r.live, Clock: r.clock, Trust: usableTrust, Timeout: usableTimeout}
	r.notes = &shell.Notes[workload, notes]{}
	r.metrics = newMetrics(&r)
	return &r
}

// notes is the memory of a workload with the annotation.
type notes struct {
	written   map[types.UID]shell.Written // by pod
	announced map[string]bool             // by the reason of an event
	blocked   blocked
	repair    repair
	misplaced atomic.Int64 // pods, for metrics
}

func newNotes() *notes {
	return &notes{written: map[types.UID]shell.Written{}, announced: map[string]bool{}}
}

// misplaced counts the misplaced pods of all workloads.
func (r *reconciler) misplaced() int {
	sum := int64(0)
	for _, n := range r.notes.All() {
		sum += n.misplaced.Load()
	}
	return int(sum)
}

type metrics struct {
	syncs, repairs       *prometheus.CounterVec
	workloads, misplaced prometheus.GaugeFunc
}

func newMetrics(r *reconciler) *metrics {
	return &metrics{
		syncs: shell.NewCounter("vicinity_scaledown_syncs_total", "Syncs of the deletion costs of Deployments and ReplicaSets, by result.",
			"result", shell.Outcomes()...),
		repairs: shell.NewCounter("vicinity_scaledown_repairs_total",
			"Evictions requested to improve a spread, by outcome.", "outcome",
			disruptionrequester.Evicted, disruptionrequester.Waiting, disruptionrequester.Denied, disruptionrequester.Gone, disruptionrequester.Refused),
		workloads: shell.NewGauge("vicinity_scaledown_workloads", "Deployments and ReplicaSets whose pods are kept spread.",
			func() int { return len(r.notes.Keys()) }),
		misplaced: shell.NewGauge("vicinity_scaledown_misplaced_pods",
			"Pods that the best spread would place in other domains.", r.misplaced),
	}
}

func (m *metrics) register() error {
	return shell.Register(m.syncs, m.repairs, m.workloads, m.misplaced)
}

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) repaired(state disruptionrequester.State) {
	m.repairs.WithLabelValues(string(state)).Inc()
}
