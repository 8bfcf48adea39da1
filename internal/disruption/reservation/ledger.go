// Package reservation admits evictions under TopologyDisruptionBudgets. Package disruption decides which pods may be
// evicted, and its package comment states the invariant. A Ledger does what that comment asks of a decider: it reads
// pods, budgets and owners from caches, and stores the reservation of an eviction in the status of each of the pod's
// budgets before it admits the eviction. Nothing that matters is only in memory.
//
// A process decides about a budget in one goroutine. Waiting requests are decided together and share one write of the status. The write
// fails if another process wrote meanwhile. Then the Ledger decides again, by the stored status.
//
// A pod that the cache lacks may still exist, because the cache may be behind. So each write names the version of
// pods that a reader must have seen (podsObserved), and a Ledger waits for that version. It gives up an expired
// reservation only after a live read of the pod, because an old cache may have missed the eviction. It also reads a pod
// live before it admits an eviction because the pod is down: others may already count on that pod.
package reservation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
)

// Options configure a Ledger.
type Options struct {
	// Clock is the real one if it is nil.
	Clock clock.Clock
	// Ahead returns by how much the clock of this process is ahead of the API server's. It may be nil.
	Ahead func() time.Duration
	// Metrics belong to this Ledger alone. They may be nil.
	Metrics *Metrics
}

// Ledger admits evictions. Several processes may each run one at the same time.
type Ledger struct {
	// client reads and writes live.
	client     client.Client
	world      *world
	clock      clock.PassiveClock
	ahead      func() time.Duration
	clockIsOff atomic.Bool
	metrics    *Metrics
	log        logr.Logger

	// givenUp are requests that were denied after an attempt to write. That write may still arrive.
	givenUp *expiring[attempt, struct{}]
	lists   *lists
	slots   chan struct{} // one for each concurrent write of a budget

	mu     sync.Mutex
	queues map[types.NamespacedName]*queue
}

// New makes a Ledger that reads from the cache of a manager, which must have CacheOptions. Its client has no rate limit: it makes about
// one request for each eviction, and the API server limits evictions.
func New(ctx context.Context, mgr manager.Manager, o Options) (*Ledger, error) {
	config := rest.CopyConfig(mgr.GetConfig())
	config.QPS = -1
	live, err := client.New(config, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, fmt.Errorf("making the client of budgets: %w", err)
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	w, err := newWorld(ctx, mgr, newScales(live, o.Clock), newLostNodes(live, o.Clock))
	if err != nil {
		return nil, err
	}
	if o.Metrics == nil {
		o.Metrics = newMetrics()
	}
	l := newLedger(live, w, o, mgr.GetLogger().WithName("reservations"))
	w.gone, w.changed = l.forgetQueue, l.undoLateWrites
	return l, nil
}

func newLedger(c client.Client, w *world, o Options, log logr.Logger) *Ledger {
	if o.Ahead == nil {
		o.Ahead = func() time.Duration { return 0 }
	}
	held := func() int { return w.reserved(o.Clock.Now()) }
	o.Metrics.held.Store(&held)
	return &Ledger{
		client: c, world: w, clock: o.Clock, ahead: o.Ahead, metrics: o.Metrics, log: log, queues: map[types.NamespacedName]*queue{},
		givenUp: newExpiring[attempt, struct{}](o.Clock, 2*disruption.ReservationTime), lists: &lists{client: c}, slots: make(chan struct{}, mostWrites),
	}
}

// Request is an eviction to decide.
type Request struct {
	// Pod is the pod as the caller read it. Only its name, UID and version count; the rest is read again.
	Pod *corev1.Pod
	// Holder names the caller. A reservation that admitted two holders cannot be given up.
	Holder string
	// DryRun stores nothing.
	DryRun bool
}

// Answer is the answer of all budgets about an eviction.
type Answer struct {
	// Decisions of the budgets that cover the pod, by name, up to the first denial.
	Decisions []disruption.Decision
	// Denial has sentences about why the eviction is denied. It is empty if the eviction is admitted.
	Denial string
	// Unsupported says that Kubernetes never evicts such a pod, so a retry does not help.
	Unsupported bool
	// Warnings are sentences for the person who evicts.
	Warnings []string

	// reason is a rule of package disruption, or one of the reasons below.
	reason string
	// settled says that no newer version of the budgets can change the answer: each budget stored it, or the pod has ended.
	settled bool
}

// Allowed reports whether the eviction is admitted.
func (a *Answer) Allowed() bool { return a.Denial == "" }

// Admit decides the eviction of a pod under all budgets that cover it, and stores reservations before it admits. It admits a pod
// without a budget. After an error the eviction must not be admitted: the Ledger lacks input of the decision.
func (l *Ledger) Admit(ctx context.Context, request Request) (Answer, error) {
	begin := l.clock.Now()
	answer, err := l.admit(ctx, request)
	if err != nil {
		answer = Answer{reason: reasonUnknown}
	}
	l.metrics.decided(answer.Allowed() && err == nil, err, answer.reason, l.clock.Since(begin))
	return answer, err
}

// Reasons of answers besides the rules of budgets.
const (
	reasonNoBudget = "NoBudget"
	reasonPDB      = "PodDisruptionBudget"
	reasonSeveral  = "SeveralPodDisruptionBudgets"
	reasonUnknown  = "Unknown"
)

func (l *Ledger) admit(ctx context.Context, request Request) (Answer, error) {
	if err := l.Synced(nil); err != nil { // includes the selectors
		return Answer{}, err
	}
	known := l.world.selectors.mark()
	answer, err := l.ask(ctx, request)
	if err != nil || answer.settled || request.DryRun || !answer.Allowed() {
		return answer, err
	}
	// Only a write confirms that these budgets are the stored ones.
	again, err := l.specsChanged(ctx, request.Pod.Namespace, known)
	if err == nil && again {
		answer, err = l.ask(ctx, request)
	}
	if err != nil || !answer.Allowed() {
		l.GiveUp(client.ObjectKeyFromObject(request.Pod), request.Pod.UID, request.Holder)
	}
	return answer, err
}

// ask asks the known budgets that cover the pod.
func (l *Ledger) ask(ctx context.Context, request Request) (Answer, error) {
	pod, err := l.current(ctx, request.Pod)
	if err != nil {
		return Answer{}, err
	}
	if pod == nil { // the API server will find that it is gone or replaced
		return Answer{reason: string(disruption.RuleGone), settled: true}, nil
	}
	budgets := l.world.selectors.matching(pod.Namespace, pod.Labels)
	if len(budgets) == 0 {
		return Answer{reason: reasonNoBudget, settled: isGoing(pod)}, nil
	}
	gate, denial := l.world.gateOf(pod)
	if denial != nil {
		return Answer{Denial: denial.message, Unsupported: denial.unsupported, reason: denial.reason}, nil
	}
	if len(budgets) > 1 && !request.DryRun {
		// All budgets decide before any reserves, so that a denial takes no room in the others.
		dry := request
		dry.DryRun = true
		if answer, err := l.askEach(ctx, budgets, pod, dry, gate); err != nil || !answer.Allowed() {
			return answer, err
		}
	}
	answer, err := l.askEach(ctx, budgets, pod, request, gate)
	answer.settled = answer.settled || isGoing(pod)
	return answer, err
}

// askEach asks budgets one after the other, up to the first denial.
func (l *Ledger) askEach(ctx context.Context, budgets []types.NamespacedName, pod *corev1.Pod, request Request, gate *gate) (Answer, error) {
	answer := Answer{settled: true}
	for i, budget := range budgets {
		result, err := l.submit(budget, newJob(ctx, pod, request, gate))
		if err == nil && result.decision.Allowed {
			answer.Decisions = append(answer.Decisions, result.decision)
			answer.reason, answer.settled = string(result.decision.Rule), answer.settled && result.stored
			if result.decision.Rule == disruption.RuleBreakGlass {
				answer.Warnings = append(answer.Warnings, result.decision.Brief())
			}
			continue
		}
		if i > 0 && !request.DryRun {
			l.giveUp(budgets[:i], pod.UID, request.Holder)
		}
		switch {
		case err != nil:
			return Answer{}, err
		case result.denial != nil:
			answer.Denial, answer.reason = result.denial.message, result.denial.reason
		default:
			answer.Decisions = append(answer.Decisions, result.decision)
			answer.Denial, answer.reason = result.decision.Brief(), string(result.decision.Rule)
		}
		return answer, nil
	}
	return answer, nil
}

// ReadPod reads the UID and the version of a pod live. It returns nil if no pod has the name.
func (l *Ledger) ReadPod(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	live := &metav1.PartialObjectMetadata{}
	live.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	switch err := l.client.Get(ctx, key, live); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading Pod %s: %w", key, err)
	}
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: key.Namespace, Name: key.Name, UID: live.UID, ResourceVersion: live.ResourceVersion,
	}}, nil
}

// CachedPod returns a pod of the cache, nil if the cache lacks it. The caller must not change it.
func (l *Ledger) CachedPod(key types.NamespacedName) *corev1.Pod { return l.world.pod(key) }

// current waits until the cache is as new as the pod that the caller read. It returns the cached pod, nil if it is gone.
func (l *Ledger) current(ctx context.Context, read *corev1.Pod) (*corev1.Pod, error) {
	key := client.ObjectKeyFromObject(read)
	if pod := l.world.pod(key); pod != nil && pod.UID == read.UID {
		return pod, nil
	}
	if err := l.world.awaitPods(ctx, read.ResourceVersion); err != nil {
		return nil, err
	}
	if pod := l.world.pod(key); pod != nil && pod.UID == read.UID {
		return pod, nil
	}
	return nil, nil
}

func (l *Ledger) undo(ctx context.Context, budget types.NamespacedName, pod types.UID, holder string) error {
	_, err := l.submit(budget, &job{kind: jobUndo, ctx: ctx, uid: pod, holder: holder})
	return err
}

// Undo gives up the reservations of a holder for a pod.
func (l *Ledger) Undo(ctx context.Context, pod types.NamespacedName, uid types.UID, holder string) error {
	var failed []error
	for _, budget := range l.holding(pod.Namespace, uid) {
		if err := l.undo(ctx, budget, uid, holder); err != nil {
			failed = append(failed, fmt.Errorf("giving up the reservation of Pod %s in budget %s: %w", pod, budget, err))
		}
	}
	return errors.Join(failed...)
}

// holding lists the budgets of a namespace with a reservation of a pod, by the cache and by this process's last writes.
func (l *Ledger) holding(namespace string, pod types.UID) (found []types.NamespacedName) {
	for _, budget := range ofType[*v1alpha1.TopologyDisruptionBudget](inNamespace(l.world.budgets, namespace)) {
		if _, listed := reservationOf(l.newestKnown(budget), pod); listed {
			found = append(found, client.ObjectKeyFromObject(budget))
		}
	}
	return found
}

func reservationOf(budget *v1alpha1.TopologyDisruptionBudget, pod types.UID) (*v1alpha1.Reservation, bool) {
	for i := range budget.Status.Reservations {
		if r := &budget.Status.Reservations[i]; r.UID == pod {
			return r, true
		}
	}
	return nil, false
}

// Hold renews the reservations of a pod, and makes missing ones whatever the budgets allow. It is for an admitted eviction whose pod is
// deleted later without another request. Reservations keep their holders.
func (l *Ledger) Hold(ctx context.Context, pod *corev1.Pod, holder string) error {
	current, err := l.current(ctx, pod)
	if err != nil || current == nil {
		return err
	}
	var failed []error
	for _, budget := range l.world.selectors.matching(pod.Namespace, current.Labels) {
		job := newJob(ctx, current, Request{Holder: holder}, nil)
		job.kind = jobHold
		if _, err := l.submit(budget, job); err != nil {
			failed = append(failed, fmt.Errorf("holding the reservation of Pod %s in budget %s: %w", client.ObjectKeyFromObject(pod), budget, err))
		}
	}
	return errors.Join(failed...)
}

// Covering lists, by name, the budgets of a namespace whose selectors match some labels.
func (l *Ledger) Covering(namespace string, labels map[string]string) []types.NamespacedName {
	return l.world.selectors.matching(namespace, labels)
}

// World has the objects that a budget depends on. The budget need not be stored. The caller must not change any of it.
func (l *Ledger) World(ctx context.Context, budget *v1alpha1.TopologyDisruptionBudget) (coverage.World, error) {
	if err := l.Synced(nil); err != nil {
		return coverage.World{}, err
	}
	return l.world.of(ctx, budget)
}

// Report is the state of a budget after a refresh.
type Report struct {
	// World is the input of the other fields. Its Budget is the one before the refresh. The caller must not change it.
	World    coverage.World
	State    disruption.State
	Measures disruption.Measures
	// Budget is the stored budget. The caller must not change it.
	Budget *v1alpha1.TopologyDisruptionBudget
	// Written says that the status had to be written.
	Written bool
	// Next, if not zero, is when the status changes without an event: a reservation expires or a domain settles.
	Next time.Time
}

// Refresh brings the status of a budget up to date. It sets the conditions that the function returns for a report, and leaves all
// others. It may call the function several times. The report is nil if the budget does not exist.
func (l *Ledger) Refresh(ctx context.Context, budget types.NamespacedName, conditions func(*Report) []metav1.Condition) (*Report, error) {
	result, err := l.submit(budget, &job{kind: jobRefresh, ctx: ctx, conditions: conditions})
	if err != nil {
		return nil, fmt.Errorf("refreshing budget %s: %w", budget, err)
	}
	return result.report, nil
}
