package reservation

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

type jobKind int

const (
	jobAdmit jobKind = iota
	jobUndo
	jobHold
	jobRefresh
)

// job is a request to a queue. Its fields depend on its kind.
type job struct {
	kind jobKind
	ctx  context.Context // of the waiting caller
	done chan result

	key     types.NamespacedName // of the pod
	uid     types.UID
	version string
	holder  string
	dryRun  bool
	gate    *gate

	conditions func(*Report) []metav1.Condition

	// maybeStored says that a write with a reservation for the job was attempted.
	maybeStored bool
	// outcome is set once: by the caller that stops waiting or by the queue that answers, whichever is first.
	outcome atomic.Int32
}

// Outcomes of a job.
const (
	jobAnswered int32 = iota + 1
	jobAbandoned
)

type result struct {
	decision disruption.Decision
	stored   bool    // by a write
	denial   *denial // not from a TopologyDisruptionBudget
	report   *Report
	err      error
}

func newJob(ctx context.Context, pod *corev1.Pod, request Request, gate *gate) *job {
	return &job{
		kind: jobAdmit, ctx: ctx, key: client.ObjectKeyFromObject(pod), uid: pod.UID, version: pod.ResourceVersion, holder: request.Holder, dryRun: request.DryRun, gate: gate,
	}
}

// answer hands the result to the caller, and reports whether the caller still waits.
func (j *job) answer(r result) bool {
	if !j.outcome.CompareAndSwap(0, jobAnswered) {
		return false
	}
	j.done <- r
	return true
}

// queue has the jobs of a budget. One goroutine works on it while it has jobs.
type queue struct {
	ledger *Ledger
	key    types.NamespacedName

	mu      sync.Mutex
	waiting []*job
	working bool
	known   *v1alpha1.TopologyDisruptionBudget // last written or read live

	stage atomic.Value // a string: the goroutine's current work, for errors

	// Only the goroutine uses the fields below.
	readLive bool // known differs from the stored budget
	// confirmed has, by pod, the expiry of an expired reservation whose pod a live read found.
	confirmed map[types.UID]time.Time
	pause     time.Duration // before the next decision
}

func (l *Ledger) queue(budget types.NamespacedName) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[budget]
	if q == nil {
		q = &queue{ledger: l, key: budget}
		q.stage.Store("deciding about earlier evictions")
		l.queues[budget] = q
	}
	return q
}

// forgetQueue forgets the queue of a deleted budget. If it still works, a second one may exist for a moment, as in another
// process.
func (l *Ledger) forgetQueue(budget types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.queues, budget)
}

// newestKnown returns the newer of the cached budget and this process's last write.
func (l *Ledger) newestKnown(cached *v1alpha1.TopologyDisruptionBudget) *v1alpha1.TopologyDisruptionBudget {
	l.mu.Lock()
	q := l.queues[client.ObjectKeyFromObject(cached)]
	l.mu.Unlock()
	if q == nil {
		return cached
	}
	return newest(cached, q.written())
}

// written returns the budget that this process last wrote or read live, or nil.
func (q *queue) written() *v1alpha1.TopologyDisruptionBudget {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.known
}

func (q *queue) setWritten(budget *v1alpha1.TopologyDisruptionBudget) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.known = budget
}

// newest returns the newer of two versions of a budget. The second may be nil.
func newest(a, b *v1alpha1.TopologyDisruptionBudget) *v1alpha1.TopologyDisruptionBudget {
	if b == nil {
		return a
	}
	if order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion); err != nil || order >= 0 {
		return a
	}
	return b
}

// submit queues a job and waits for its result until the job's context ends.
func (l *Ledger) submit(budget types.NamespacedName, j *job) (result, error) {
	j.done = make(chan result, 1)
	q := l.queue(budget)
	q.mu.Lock()
	q.waiting = append(q.waiting, j)
	if !q.working {
		q.working = true
		go q.work()
	}
	q.mu.Unlock()
	select {
	case r := <-j.done:
		return r, r.err
	case <-j.ctx.Done():
	}
	if j.outcome.CompareAndSwap(0, jobAbandoned) {
		return result{}, q.stoppedWaiting(j)
	}
	r := <-j.done
	return r, r.err
}

// stoppedWaiting is the error of a job whose caller stopped waiting.
func (q *queue) stoppedWaiting(j *job) error {
	stage, _ := q.stage.Load().(string)
	return &slowError{budget: q.key, stage: stage, cause: context.Cause(j.ctx)}
}

type slowError struct {
	budget types.NamespacedName
	stage  string
	cause  error
}

func (e *slowError) Error() string {
	return fmt.Sprintf("budget %s took too long while %s", e.budget, e.stage)
}

func (e *slowError) Unwrap() error { return e.cause }

// work processes jobs until none are left. After a write it pauses, so that another Ledger can see that write and make its own. Without
// the pause the first Ledger would always win. Jobs that arrive meanwhile are decided together.
func (q *queue) work() {
	for {
		time.Sleep(q.pause)
		q.pause = 0
		q.mu.Lock()
		batch := q.waiting
		q.waiting, q.working = nil, len(batch) > 0
		q.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		q.process(batch)
	}
}

// takeWaiting takes the jobs that have arrived meanwhile.
func (q *queue) takeWaiting() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.waiting
	q.waiting = nil
	return taken
}

// undoPause is the time between attempts to give up a reservation.
const undoPause = time.Second

// attempt is one request to evict a pod. Each has a holder of its own.
type attempt struct {
	pod    types.UID
	holder string
}

// isGivenUp reports whether a stored reservation was given up before its write arrived.
func (l *Ledger) isGivenUp(r *v1alpha1.Reservation) bool {
	_, found := l.givenUp.get(attempt{r.UID, r.Holder})
	return found
}

// giveUp gives up the reservations of a denied request in the background. It retries until that is stored or the reservation has
// expired.
func (l *Ledger) giveUp(budgets []types.NamespacedName, pod types.UID, holder string) {
	l.givenUp.set(attempt{pod, holder}, struct{}{})
	for _, budget := range budgets {
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), disruption.ReservationTime)
			defer cancel()
			err := wait.PollUntilContextCancel(ctx, undoPause, true, func(ctx context.Context) (bool, error) {
				return l.undo(ctx, budget, pod, holder) == nil, nil
			})
			if err != nil {
				l.log.Error(err, "Cannot give up the reservation of a denied eviction; it stays until it expires", "budget", budget, "uid", pod)
			}
		}()
	}
}

// GiveUp gives up the reservations of a holder for a pod, in the background.
func (l *Ledger) GiveUp(pod types.NamespacedName, uid types.UID, holder string) {
	l.giveUp(l.holding(pod.Namespace, uid), uid, holder)
}

// undoLateWrites drops reservations that were stored after they were given up. One commit drops all of them. If it fails,
// the next event of the budget tries again.
func (l *Ledger) undoLateWrites(budget *v1alpha1.TopologyDisruptionBudget) {
	for i := range budget.Status.Reservations {
		if r := &budget.Status.Reservations[i]; l.isGivenUp(r) {
			go func() {
				ctx, cancel := context.WithTimeout(context.Background(), requestTime)
				defer cancel()
				if err := l.undo(ctx, client.ObjectKeyFromObject(budget), r.UID, r.Holder); err != nil {
					l.log.Info("Cannot give up a reservation that was stored late; the next event of the budget retries", "budget", client.ObjectKeyFromObject(budget), "error", err.Error())
				}
			}()
			return
		}
	}
}
