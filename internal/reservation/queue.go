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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

// jobKind is what is wanted of a budget.
type jobKind int

const (
	jobAdmit jobKind = iota
	jobUndo
	jobHold
	jobRefresh
)

// job is something that is wanted of a budget. The fields depend on its kind.
type job struct {
	kind jobKind
	ctx  context.Context // of who waits
	done chan result

	key     types.NamespacedName // of the pod
	uid     types.UID
	version string
	holder  string
	dryRun  bool
	gate    *gate

	conditions func(*Report) []metav1.Condition

	// maybeStored is set once a write was tried that reserves for the job.
	maybeStored bool
	// outcome is set once, by who waits when that ends, or by who answers.
	outcome atomic.Int32
}

// Outcomes of a job.
const (
	jobAnswered int32 = iota + 1
	jobAbandoned
)

// result is what became of a job.
type result struct {
	decision disruption.Decision
	stored   bool    // by a write
	denial   *denial // by what is no TopologyDisruptionBudget
	report   *Report
	err      error
}

func newJob(ctx context.Context, pod *corev1.Pod, request Request, gate *gate) *job {
	return &job{
		kind: jobAdmit, ctx: ctx, key: client.ObjectKeyFromObject(pod), uid: pod.UID, version: pod.ResourceVersion, holder: request.Holder, dryRun: request.DryRun, gate: gate,
	}
}

// answer gives the result to who waits, and reports whether anyone does.
func (j *job) answer(r result) bool {
	if !j.outcome.CompareAndSwap(0, jobAnswered) {
		return false
	}
	j.done <- r
	return true
}

// queue has what is wanted of one budget. While anything is, one goroutine works on it.
type queue struct {
	ledger *Ledger
	key    types.NamespacedName

	mu      sync.Mutex
	waiting []*job
	working bool
	known   *v1alpha1.TopologyDisruptionBudget // that was written or read live last

	stage atomic.Value // a string: what the goroutine is at

	// Of the goroutine alone.
	readLive bool // what is known is not what is stored
	// confirmed are pods that were there after their reservations had expired, and when these had.
	confirmed map[types.UID]time.Time
	pause     time.Duration // before the next decision
}

// queue is that of a budget.
func (l *Ledger) queue(budget types.NamespacedName) *queue {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.queues[budget]
	if q == nil {
		q = &queue{ledger: l, key: budget}
		q.stage.Store("others were decided before")
		l.queues[budget] = q
	}
	return q
}

// retire forgets the queue of a budget that has gone. If it is still working, there may be
// two for a moment, as of two processes.
func (l *Ledger) retire(budget types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.queues, budget)
}

// newestKnown is a budget as the cache has it or, if that is newer, as it was written last.
func (l *Ledger) newestKnown(cached *v1alpha1.TopologyDisruptionBudget) *v1alpha1.TopologyDisruptionBudget {
	l.mu.Lock()
	q := l.queues[client.ObjectKeyFromObject(cached)]
	l.mu.Unlock()
	if q == nil {
		return cached
	}
	return newest(cached, q.written())
}

// written is what is known of the budget besides the cache, nil if nothing is.
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

// newest is the newer of two objects of one budget, of which the second may be nil.
func newest(a, b *v1alpha1.TopologyDisruptionBudget) *v1alpha1.TopologyDisruptionBudget {
	if b == nil {
		return a
	}
	if order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion); err != nil || order >= 0 {
		return a
	}
	return b
}

// submit has a job done, and waits for that as long as the job's context allows.
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
		return result{}, q.slow(j)
	}
	r := <-j.done
	return r, r.err
}

// slow says what the queue is at when a job is not waited for any more.
func (q *queue) slow(j *job) error {
	stage, _ := q.stage.Load().(string)
	return &slowError{budget: q.key, stage: stage, cause: context.Cause(j.ctx)}
}

// slowError says what took too long.
type slowError struct {
	budget types.NamespacedName
	stage  string
	cause  error
}

func (e *slowError) Error() string {
	return fmt.Sprintf("budget %s took too long, while %s", e.budget, e.stage)
}

func (e *slowError) Unwrap() error { return e.cause }

// work does jobs until none are left. After a write it pauses, so that another Ledger has time to see that
// write and to make its own; without the pause the first Ledger would always be first. Jobs that come
// meanwhile are decided together.
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
		q.do(batch)
	}
}

// take are the jobs that came meanwhile.
func (q *queue) take() []*job {
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.waiting
	q.waiting = nil
	return taken
}
