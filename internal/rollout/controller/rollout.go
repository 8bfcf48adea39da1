// Package controller keeps DomainRollouts: it replaces the pods of a StatefulSet or a DaemonSet with the update
// strategy OnDelete, or of a Deployment whose pods are held, one failure domain after the other. Package internal/rollout
// decides what to do next. This package reads the State from caches, stores the step's memory in the status, and then does
// what the step says. The write of the status fails if another write came before, and then nothing is done.
//
// Pods are evicted, so that budgets hold. Only unready pods of an abandoned revision are deleted, after a live read and by
// their UID: they would use up the budgets that let them go.
//
// # Deployments
//
// A scheduling gate in the template holds the pods of a Deployment. For an update, pods are released one for another (surge):
// the new pod goes into the domain of the old one, which its ReplicaSet then deletes first. Pods that replace dead ones, or
// are of a scale-up, have no names to tell them apart, so they are counted: as many are released as the Deployment lacks
// (replaceMissing). A live read says how many these are, since one pod too many would make the Deployment delete an old pod of
// any domain. Without a DomainRollout, pods are released by counting alone (unfollowed).
//
// A Deployment makes the oldest of its old ReplicaSets smaller first. No deletion cost helps where a pod to replace is of
// another one: that pod is evicted, and a new one is released when it has gone.
//
// The status names the version of pods that it was decided by. A controller whose cache has not come that far waits.
package controller

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	disruptionrequester "vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

// Options are the choices of an administrator.
type Options struct {
	Workers int // DomainRollouts that are synced at a time
	// Budgets, if given, says which evictions would be admitted. Others are not requested.
	Budgets budgets
	// Plans, if given, says what load routing plans expect while a domain is empty.
	Plans plans
	// Syncs, if given, know the syncs under way.
	Syncs *shell.Syncs
}

// budgets is the part of reservation.Ledger that decides about evictions and keeps what it has admitted.
type budgets interface {
	Admit(ctx context.Context, request reservation.Request) (reservation.Answer, error)
	Hold(ctx context.Context, pod *corev1.Pod, holder string) error
}

// plans is the part of routing.Forecast that rollouts use.
type plans interface {
	Overload(ctx context.Context, namespace string, sets map[string][]string) (map[string]float64, error)
}

// evictor is the part of requester.Requester that rollouts use.
type evictor interface {
	Request(ctx context.Context, pod *corev1.Pod, requester, reason string) (disruptionrequester.Outcome, error)
	Withdraw(ctx context.Context, pod *corev1.Pod, requester string) error
	Try(ctx context.Context, pod *corev1.Pod, reason string) (disruptionrequester.Outcome, error)
}

// CacheOptions adds rollouts and the revisions of workloads to a manager's cache, which must have nodes with
// their labels and what reservation.CacheOptions adds.
func CacheOptions(options *cache.Options) {
	shared := true
	options.ByObject[&v1alpha1.DomainRollout{}] = cache.ByObject{Transform: cache.TransformStripManagedFields()}
	options.ByObject[&appsv1.ControllerRevision{}] = cache.ByObject{Transform: trimRevision, UnsafeDisableDeepCopy: &shared}
}

// trimRevision leaves the template out of a revision. It is read live when it is needed.
func trimRevision(object any) (any, error) {
	r, ok := object.(*appsv1.ControllerRevision)
	if !ok {
		return object, nil // a tombstone
	}
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion, Labels: r.Labels, OwnerReferences: r.OwnerReferences,
	}, Revision: r.Revision}, nil
}

// indexController is the index of pods by the UID of what controls them, in the store whose version is known.
const indexController = "vicinity.dev/rollout-controller"

// Add adds the controller to a manager, whose cache must have CacheOptions.
func Add(ctx context.Context, mgr manager.Manager, evicts evictor, options Options) error {
	r, err := assemble(ctx, mgr, evicts, options)
	if err != nil {
		return err
	}
	if err := r.metrics.register(); err != nil {
		return err
	}
	return r.add(mgr)
}

func assemble(ctx context.Context, mgr manager.Manager, evicts evictor, options Options) (*reconciler, error) {
	informer, err := mgr.GetCache().GetInformer(ctx, &corev1.Pod{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching pods: %w", err)
	}
	store, ok := informer.(toolscache.SharedIndexInformer)
	if !ok {
		return nil, fmt.Errorf("watching pods: the cache has no store of its own for them")
	}
	if err := store.AddIndexers(toolscache.Indexers{indexController: controllerOf}); err != nil {
		return nil, fmt.Errorf("indexing pods by controller: %w", err)
	}
	recorder, err := shell.NewRecorder(ctx, mgr, "vicinity-controller")
	if err != nil {
		return nil, err
	}
	return newReconciler(reconciler{
		client: mgr.GetClient(), live: mgr.GetAPIReader(), pods: store.GetIndexer(), evictor: evicts, recorder: recorder,
		clock: clock.RealClock{}, options: options,
	}), nil
}

func controllerOf(object any) ([]string, error) {
	if pod, ok := object.(*corev1.Pod); ok {
		if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
			return []string{string(owner.UID)}, nil
		}
	}
	return nil, nil
}

// podStore is the part of a cache's store that has pods.
type podStore interface {
	ByIndex(index, value string) ([]any, error)
	LastStoreSyncResourceVersion() string
}

// reconciler syncs DomainRollouts.
type reconciler struct {
	client   client.Client
	live     client.Reader // not of a cache
	pods     podStore
	evictor  evictor
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	http     *http.Client
	metrics  *metrics
	// begin is when denials begin to count.
	begin time.Time
	notes *shell.Notes[types.NamespacedName, notes]
}

func newReconciler(r reconciler) *reconciler {
	r.http = newHTTPClient(notOfTheNode)
	r.metrics = newMetrics()
	r.notes = &shell.Notes[types.NamespacedName, notes]{}
	r.begin = r.clock.Now().Add(unknownTime)
	return &r
}

// The outcomes of a request besides the states of requester.
const (
	requestUnknown disruptionrequester.State = "Unknown"
	requestDeleted disruptionrequester.State = "Deleted" // without an eviction
	// requestReleased is of a held pod of a Deployment.
	requestReleased disruptionrequester.State = "Released"
)

// metrics are those of the controller.
type metrics struct {
	syncs, requests, events *prometheus.CounterVec
	rollouts                *prometheus.GaugeVec
}

func newMetrics() *metrics {
	m := &metrics{
		syncs: shell.NewCounter("vicinity_rollout_syncs_total", "Syncs of DomainRollouts, by result.", "result", shell.Outcomes()...),
		requests: shell.NewCounter("vicinity_rollout_evictions_total",
			"Evictions requested for rollouts, pods of abandoned revisions that were deleted, and pods of Deployments that were released, by outcome.", "outcome",
			disruptionrequester.Evicted, disruptionrequester.Waiting, disruptionrequester.Denied, disruptionrequester.Gone, disruptionrequester.Refused, requestUnknown, requestDeleted, requestReleased),
		events: shell.NewCounter("vicinity_rollout_events_total", "Events of DomainRollouts, by reason.", "event",
			rollout.RolloutBegan, rollout.RolloutRestarted, rollout.RollbackBegan, rollout.WaveBegan, rollout.WaveDone, rollout.RolloutPaused,
			rollout.RolloutResumed, rollout.RolloutFailed, rollout.RolloutAborted, rollout.RolloutComplete),
		rollouts: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "vicinity_rollouts", Help: "DomainRollouts, by phase."}, []string{"phase"}),
	}
	for _, phase := range []v1alpha1.RolloutPhase{
		v1alpha1.PhaseWaiting, v1alpha1.PhaseProgressing, v1alpha1.PhaseBaking, v1alpha1.PhasePaused, v1alpha1.PhaseFailed,
		v1alpha1.PhaseRollingBack, v1alpha1.PhaseAborted, v1alpha1.PhaseComplete, v1alpha1.PhaseInvalid,
	} {
		m.rollouts.WithLabelValues(string(phase))
	}
	return m
}

func (m *metrics) register() error { return shell.Register(m.syncs, m.requests, m.events, m.rollouts) }

func (m *metrics) synced(outcome shell.Outcome) { m.syncs.WithLabelValues(string(outcome)).Inc() }

func (m *metrics) requested(outcome disruptionrequester.State) {
	m.requests.WithLabelValues(string(outcome)).Inc()
}

func (m *metrics) happened(event rollout.EventType) { m.events.WithLabelValues(string(event)).Inc() }

// report counts a DomainRollout in its phase, and no more in the one before; an empty phase is none.
func (m *metrics) report(n *notes, phase v1alpha1.RolloutPhase) {
	if n.phase == phase {
		return
	}
	if n.phase != "" {
		m.rollouts.WithLabelValues(string(n.phase)).Dec()
	}
	if n.phase = phase; phase != "" {
		m.rollouts.WithLabelValues(string(phase)).Inc()
	}
}
