// Package reservation admits evictions under TopologyDisruptionBudgets. What may be evicted is
// decided in internal/disruption, whose package comment has the invariant; a Ledger does what it
// asks of a decider. It reads what a decision depends on from caches, and stores the reservation
// of an eviction in the status of each of its budgets before it is admitted. Nothing that
// matters is in memory alone.
//
// Decisions about one budget are made one after the other in a process. Those that wait are
// made together, and share one write of the status, which fails if another process wrote
// meanwhile; then they are made again by what is stored.
//
// A pod that the cache does not have is not known to have gone: a replica may be behind. So each
// write names the version of pods that one has to have seen to understand it (podsObserved),
// and a Ledger waits until it has. A reservation that expired is only given up once the pod was
// read live: an old cache may have missed that it was evicted. So is a pod that may be evicted
// whatever the numbers are, because it is down: others may know that it no longer is.
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
	"vicinity.dev/vicinity/internal/coverage"
	"vicinity.dev/vicinity/internal/disruption"
)

// Options are what a Ledger may be given.
type Options struct {
	// Clock is the real one if it is nil.
	Clock clock.Clock
	// Ahead is by how much this process's clock is ahead of the API server's. It may be nil.
	Ahead func() time.Duration
	// Metrics have their numbers from this Ledger alone. They may be nil.
	Metrics *Metrics
}

// Ledger admits evictions. The Ledgers of several processes act at once.
type Ledger struct {
	// client reads and writes live.
	client     client.Client
	world      *world
	clock      clock.PassiveClock
	ahead      func() time.Duration
	clockIsOff atomic.Bool
	metrics    *Metrics
	log        logr.Logger

	// givenUp are requests whose reservations may be stored yet, by a write that comes late.
	givenUp *expiring[attempt, struct{}]
	lists   *lists
	slots   chan struct{} // one for each budget that is written

	mu     sync.Mutex
	queues map[types.NamespacedName]*queue
}

// New makes a Ledger that reads from the cache of a manager, which must have CacheOptions.
// Its own requests are as many as there are evictions, and have no limit of a rate; the API
// server has one.
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
	w.gone, w.changed = l.retire, l.undoAgain
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

// Request is an eviction to decide about.
type Request struct {
	// Pod is as it was read last. Only its name, UID and version matter: the rest is read anew.
	Pod *corev1.Pod
	// Holder tells apart who asks. A reservation that two of them were admitted by is given up
	// by neither.
	Holder string
	// DryRun stores nothing.
	DryRun bool
}

// Answer is what all budgets say about one eviction.
type Answer struct {
	// Decisions are those of the budgets that cover the pod, in the order of their names, up to
	// the first that denies it.
	Decisions []disruption.Decision
	// Denial is why it is denied, in sentences; it is empty if the eviction is admitted.
	Denial string
	// Unsupported is set if Kubernetes evicts no such pod, so that trying again is of no use.
	Unsupported bool
	// Warnings are sentences for people who evict.
	Warnings []string
}

// Allowed reports whether the eviction is admitted.
func (a *Answer) Allowed() bool { return a.Denial == "" }

// Admit decides about the eviction of a pod under all budgets that cover it. Once it is admitted,
// reservations are stored. A pod without a budget is admitted. An error says that not everything
// is known that a decision depends on: the eviction must not be admitted then.
func (l *Ledger) Admit(ctx context.Context, request Request) (Answer, error) {
	begin := l.clock.Now()
	answer, reason, err := l.admit(ctx, request)
	l.metrics.decided(answer.Allowed() && err == nil, err, reason, l.clock.Since(begin))
	return answer, err
}

// Reasons of answers besides the rules of budgets.
const (
	reasonNoBudget = "NoBudget"
	reasonPDB      = "PodDisruptionBudget"
	reasonSeveral  = "SeveralPodDisruptionBudgets"
	reasonUnknown  = "Unknown"
)

func (l *Ledger) admit(ctx context.Context, request Request) (answer Answer, reason string, err error) {
	if err := l.Synced(nil); err != nil { // selectors, too
		return Answer{}, reasonUnknown, err
	}
	known := l.world.selectors.mark()
	answer, reason, settled, err := l.ask(ctx, request)
	if err != nil || settled || request.DryRun || !answer.Allowed() {
		return answer, reason, err
	}
	// No write shows that the budgets are those that are stored.
	again, err := l.specsChanged(ctx, request.Pod.Namespace, known)
	if err == nil && again {
		answer, reason, _, err = l.ask(ctx, request)
	}
	if err != nil || !answer.Allowed() {
		l.GiveUp(client.ObjectKeyFromObject(request.Pod), request.Pod.UID, request.Holder)
	}
	if err != nil {
		return Answer{}, reasonUnknown, err
	}
	return answer, reason, nil
}

// ask asks the budgets that are known to cover the pod. An answer is settled if no newer version of these budgets can
// change it: each has stored it, or the pod has ended.
func (l *Ledger) ask(ctx context.Context, request Request) (answer Answer, reason string, settled bool, err error) {
	pod, err := l.current(ctx, request.Pod)
	if err != nil {
		return Answer{}, reasonUnknown, false, err
	}
	if pod == nil { // the API server finds that it has gone, or is another one
		return Answer{}, string(disruption.RuleGone), true, nil
	}
	budgets := l.world.selectors.matching(pod.Namespace, pod.Labels)
	if len(budgets) == 0 {
		return Answer{}, reasonNoBudget, isGoing(pod), nil
	}
	gate, denial := l.world.gateOf(pod)
	if denial != nil {
		return Answer{Denial: denial.message, Unsupported: denial.unsupported}, denial.reason, false, nil
	}
	if len(budgets) > 1 && !request.DryRun {
		// All decide before the first reserves: what one refuses takes no room of the others.
		dry := request
		dry.DryRun = true
		if answer, reason, _, err := l.askEach(ctx, budgets, pod, dry, gate); err != nil || !answer.Allowed() {
			return answer, reason, false, err
		}
	}
	answer, reason, stored, err := l.askEach(ctx, budgets, pod, request, gate)
	return answer, reason, stored || isGoing(pod), err
}

// askEach asks budgets one after the other, up to the first that refuses, and reports whether each has stored its answer.
func (l *Ledger) askEach(ctx context.Context, budgets []types.NamespacedName, pod *corev1.Pod, request Request, gate *gate) (answer Answer, reason string, stored bool, err error) {
	reason, stored = reasonNoBudget, true
	for i, budget := range budgets {
		result, err := l.submit(budget, newJob(ctx, pod, request, gate))
		if err == nil && result.decision.Allowed {
			answer.Decisions = append(answer.Decisions, result.decision)
			stored = stored && result.stored
			if reason = string(result.decision.Rule); result.decision.Rule == disruption.RuleBreakGlass {
				answer.Warnings = append(answer.Warnings, result.decision.Brief())
			}
			continue
		}
		if i > 0 && !request.DryRun {
			l.giveUp(budgets[:i], pod.UID, request.Holder)
		}
		switch {
		case err != nil:
			return Answer{}, reasonUnknown, false, err
		case result.denial != nil:
			return Answer{Decisions: answer.Decisions, Denial: result.denial.message}, result.denial.reason, false, nil
		}
		answer.Decisions = append(answer.Decisions, result.decision)
		answer.Denial = result.decision.Brief()
		return answer, string(result.decision.Rule), false, nil
	}
	return answer, reason, stored, nil
}

// ReadPod reads which pod there is of a name, and its version, live; nil if there is none.
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

// CachedPod is a pod as the cache has it, nil if it does not. It must not be changed.
func (l *Ledger) CachedPod(key types.NamespacedName) *corev1.Pod { return l.world.pod(key) }

// current is a pod as the cache has it, once the cache is as new as what was read of it
// before; nil if it has gone by then.
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

// Undo gives up the reservations of a pod that a holder has.
func (l *Ledger) Undo(ctx context.Context, pod types.NamespacedName, uid types.UID, holder string) error {
	var failed []error
	for _, budget := range l.holding(pod.Namespace, uid) {
		if err := l.undo(ctx, budget, uid, holder); err != nil {
			failed = append(failed, fmt.Errorf("giving up the reservation of Pod %s in budget %s: %w", pod, budget, err))
		}
	}
	return errors.Join(failed...)
}

// holding are the budgets of a namespace that have a reservation of a pod, as far as the cache
// and what was written last say.
func (l *Ledger) holding(namespace string, pod types.UID) (found []types.NamespacedName) {
	for _, object := range inNamespace(l.world.budgets, namespace) {
		if budget, ok := object.(*v1alpha1.TopologyDisruptionBudget); ok {
			if _, listed := reservationOf(l.newestKnown(budget), pod); listed {
				found = append(found, client.ObjectKeyFromObject(budget))
			}
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

// Hold has the reservations of a pod expire later, as if they were made now, and makes those that
// are not there, whatever the budgets allow. It is for the eviction of a pod that was admitted and
// is handed to others, who delete the pod without asking again, and when they want. Who holds a
// reservation that is there stays so.
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

// Covering are the budgets whose selectors match a pod of a namespace with some labels, in the
// order of their names.
func (l *Ledger) Covering(namespace string, labels map[string]string) []types.NamespacedName {
	return l.world.selectors.matching(namespace, labels)
}

// World is what a budget is about, which may be one that is not stored. None of it may be changed.
func (l *Ledger) World(ctx context.Context, budget *v1alpha1.TopologyDisruptionBudget) (coverage.World, error) {
	if err := l.Synced(nil); err != nil {
		return coverage.World{}, err
	}
	return l.world.of(ctx, budget)
}

// Report is what is known of a budget.
type Report struct {
	// World is what the rest is made of. Its Budget is as it was before, and none of it may be changed.
	World    coverage.World
	State    disruption.State
	Measures disruption.Measures
	// Budget is as it is stored now. It must not be changed.
	Budget *v1alpha1.TopologyDisruptionBudget
	// Written is set if the status was not what it should be, and is now.
	Written bool
	// Next, if not zero, is when a reservation expires or a domain settles, which changes the
	// status without an event.
	Next time.Time
}

// Refresh brings the status of a budget up to date, with conditions: those of the function, which
// is given what is known, are set, all others stay. The answer is nil if there is no such budget.
// The function may be called several times.
func (l *Ledger) Refresh(ctx context.Context, budget types.NamespacedName, conditions func(*Report) []metav1.Condition) (*Report, error) {
	result, err := l.submit(budget, &job{kind: jobRefresh, ctx: ctx, conditions: conditions})
	if err != nil {
		return nil, fmt.Errorf("refreshing budget %s: %w", budget, err)
	}
	return result.report, nil
}
