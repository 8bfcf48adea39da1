// Package controller reconciles DomainRollouts: it replaces the pods of a StatefulSet or a DaemonSet with the update
// strategy OnDelete, or of a Deployment whose pods are held, one failure domain after the other. Package internal/rollout
// decides what to do next. This package reads the State from caches, stores the step's memory in the status, and then
// carries out the step. After a conflict of that write it does nothing.
//
// A workload of any other kind is updated by the contract in docs/rollouts.md. It is read live and without a watch, with rights that users
// grant. Its new pods may have new names (rollout.AssignSlots).
//
// Pods are evicted, so that budgets hold. Only unready pods of an abandoned revision are deleted, after a live read and by
// their UID: they would use up the budgets that must admit their eviction.
//
// # Deployments
//
// A scheduling gate in the template holds the pods of a Deployment. For an update, each new pod is released for an old one (surge):
// it goes into the domain of the old pod, which its ReplicaSet then deletes first. Pods that replace dead ones, or
// belong to a scale-up, have no names to tell them apart, so they are counted: as many are released as the Deployment lacks
// (replaceMissing). A live read gives that number, because one surplus pod would make the Deployment delete an old pod of
// any domain. Without a DomainRollout, pods are released only by counting (unfollowed).
//
// A Deployment first shrinks the oldest of its old ReplicaSets. If a pod to replace belongs to another ReplicaSet, no deletion cost
// helps: that pod is evicted, and a new one is released once it is gone.
//
// The status names the version of pods that it was decided by. A controller with an older cache waits.
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

// Options configure the controller.
type Options struct {
	Workers int // concurrent syncs of DomainRollouts
	// Budgets, if set, says which evictions would be admitted. Others are not requested.
	Budgets budgets
	// Plans, if set, returns the load that routing plans expect while a domain is empty.
	Plans plans
	// Syncs, if set, tracks running syncs.
	Syncs *shell.Syncs
}

// budgets is the part of reservation.Ledger that rollouts use.
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

// trimRevision drops the template of a revision, which is read live when needed.
func trimRevision(object any) (any, error) {
	r, ok := object.(*appsv1.ControllerRevision)
	if !ok {
		return object, nil // a tombstone
	}
	return &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{
		Namespace: r.Namespace, Name: r.Name, UID: r.UID, ResourceVersion: r.ResourceVersion, Labels: r.Labels, OwnerReferences: r.OwnerReferences,
	}, Revision: r.Revision}, nil
}

// indexController indexes pods by the UID of their controller, in the store with a known version.
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

// podStore is the used part of a cache's store of pods.
type podStore interface {
	ByIndex(index, value string) ([]any, error)
	LastStoreSyncResourceVersion() string
}

// reconciler syncs DomainRollouts.
type reconciler struct {
	client   client.Client
	live     client.Reader // without a cache
	pods     podStore
	evictor  evictor
	recorder events.EventRecorder
	clock    clock.PassiveClock
	options  Options
	http     *http.Client
	metrics  *metrics
	// begin is when denials start to count.
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

// Outcomes of a request beyond the states of requester.
const (
	requestUnknown disruptionrequester.State = "Unknown"
	requestDeleted disruptionrequester.State = "Deleted" // without an eviction
	// requestReleased is the release of a held pod of a Deployment.
	requestReleased disruptionrequester.State = "Released"
)

type metrics struct {
	syncs, requests, events *prometheus.CounterVec
	rollouts                *prometheus.GaugeVec
}

func newMetrics() *metrics {
	m := &metrics{
		syncs: shell.NewCounter("vicinity_rollout_syncs_total", "Syncs of DomainRollouts, by result.", "result", shell.Outcomes()...),
		requests: shell.NewCounter("vicinity_rollout_evictions_total",
			"Pods evicted, deleted or released by rollouts, by outcome.", "outcome",
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

// report counts a DomainRollout in its phase instead of the previous one. An empty phase counts nowhere.
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
