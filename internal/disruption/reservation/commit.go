package reservation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/shell"
)

const (
	// requestTime bounds a request to the API server. It is shorter than the webhook's timeout, which leaves time to find the outcome of a
	// write.
	requestTime = 5 * time.Second
	// behindTime bounds the wait for the cache of pods.
	behindTime = 3 * time.Second
	// conflictTime bounds the wait, after the first conflict, for the cache to show the write that won. Its event comes anyway; a read
	// would cost the API server about as much as a write.
	conflictTime = time.Second
	// unknownWait and unknownLongest are the first and the longest wait after a write with an unknown outcome.
	unknownWait, unknownLongest = 10 * time.Millisecond, 300 * time.Millisecond
	// longestPause is the longest pause after a write.
	longestPause = 250 * time.Millisecond
	// mostConfirmed bounds the live reads, in a commit, of pods with expired reservations.
	mostConfirmed = 10
	// mostReads bounds the concurrent live reads of objects.
	mostReads = 16
	// mostWrites bounds the concurrent writes and live reads of budgets. More would wait for each other at the API server, longer than
	// evictions wait here.
	mostWrites = 16
)

// errReadyByNow reports that a live read did not confirm that a pod is down.
var errReadyByNow = errors.New("the pod was not ready and may be ready now; vicinity-controller has not seen its current state yet")

// process decides jobs together. It repeats until the stored state is the one that the decisions follow from.
func (q *queue) process(batch []*job) {
	unknown, slot, waited := unknownWait, &slot{of: q.ledger.slots}, false
	defer slot.leave()
	for {
		if batch = q.dropEnded(batch); len(batch) == 0 {
			return
		}
		if q.readLive && q.enter(slot) {
			batch = q.dropEnded(append(batch, q.takeWaiting()...))
		}
		budget, err := q.read()
		if err != nil {
			q.finishAll(batch, result{err: err})
			return
		}
		if budget == nil {
			q.ledger.forgetQueue(q.key)
			q.finishAll(batch, result{decision: disruption.Decision{Budget: q.key.String(), Allowed: true, Rule: disruption.RuleNotCovered}})
			return
		}
		c, err := q.gather(budget)
		if err != nil {
			q.admitByBreakGlass(batch, budget)
			q.finishAll(batch, result{err: err})
			return
		}
		results := c.decide(batch)
		if c.unchanged() {
			q.finish(batch, results)
			return
		}
		if q.enter(slot) { // much may have changed since
			batch = append(batch, q.takeWaiting()...)
			continue
		}
		switch err := q.store(c, batch, results); {
		case err == nil:
			return
		case apierrors.IsConflict(err):
			// After a second conflict it reads the budget live: a Ledger whose watch lags would lose the next round, too.
			slot.leave()
			q.readLive = waited || !q.isSeenAfter(budget)
			waited = true
		case isRefused(err):
			q.finishAll(batch, result{err: fmt.Errorf("writing the status of budget %s: %w", q.key, err)})
			return
		default:
			// The write may be stored now or later. Either the next read shows it, or it conflicts with the next write that changes
			// something.
			slot.leave()
			q.readLive = true
			q.ledger.log.Info("The outcome of a write is unknown; reading the budget again", "budget", q.key, "error", err.Error())
			time.Sleep(wait.Jitter(unknown, 1))
			unknown = min(2*unknown, unknownLongest)
		}
		batch = append(batch, q.takeWaiting()...)
	}
}

// isSeenAfter waits until the cache has a newer version of the budget, and reports whether it does.
func (q *queue) isSeenAfter(version *v1alpha1.TopologyDisruptionBudget) bool {
	q.stage.Store("waiting for the write that came first")
	return wait.PollUntilContextTimeout(context.Background(), poll, conflictTime, true, func(context.Context) (bool, error) {
		cached, found := stored[*v1alpha1.TopologyDisruptionBudget](q.ledger.world.budgets, q.key)
		return found && cached != version && newest(version, cached) == cached, nil
	}) == nil
}

// slot is a place among the concurrent requests of the Ledger about budgets.
type slot struct {
	of   chan struct{}
	held bool
}

// enter takes a slot unless it holds one, and reports whether it had to wait.
func (q *queue) enter(s *slot) (waited bool) {
	if s.held {
		return false
	}
	s.held = true
	select {
	case s.of <- struct{}{}:
		return false
	default:
	}
	q.stage.Store("waiting for writes of other budgets")
	s.of <- struct{}{}
	return true
}

func (s *slot) leave() {
	if s.held {
		<-s.of
		s.held = false
	}
}

// store writes the decisions and answers the jobs. It returns the error of the write.
func (q *queue) store(c *commit, batch []*job, results []result) error {
	for i, j := range batch {
		j.maybeStored = j.maybeStored || results[i].decision.Reserve
	}
	begun := time.Now()
	err := q.write(c.next)
	q.ledger.metrics.wrote(err)
	if err != nil {
		return err
	}
	q.pause = min(2*time.Since(begun), longestPause)
	q.setWritten(c.next)
	c.report.Budget, c.report.Written = c.next, true
	for i := range results {
		results[i].stored = true
	}
	q.finish(batch, results)
	return nil
}

// admitByBreakGlass admits evictions while break-glass is in effect, even if the budget's numbers are unknown. Other jobs stay.
func (q *queue) admitByBreakGlass(batch []*job, budget *v1alpha1.TopologyDisruptionBudget) {
	glass, err := coverage.BreakGlassOf(budget.Annotations)
	if err != nil || !q.ledger.clock.Now().Before(glass.Until) {
		return
	}
	for _, j := range batch {
		if j.kind == jobAdmit {
			j.answer(result{decision: disruption.Decision{
				Budget: q.key.String(), Allowed: true, Rule: disruption.RuleBreakGlass, Reason: glass.Reason, RetryAt: glass.Until,
			}})
		}
	}
}

func (q *queue) write(next *v1alpha1.TopologyDisruptionBudget) error {
	q.stage.Store("writing its status")
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	return q.ledger.client.Status().Update(ctx, next)
}

// isRefused reports whether the API server refused a write, and would refuse it again.
func isRefused(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) ||
		apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// dropEnded drops jobs whose callers stopped waiting.
func (q *queue) dropEnded(batch []*job) (rest []*job) {
	for _, j := range batch {
		if j.ctx.Err() != nil {
			q.finishOne(j, result{err: q.stoppedWaiting(j)})
		} else {
			rest = append(rest, j)
		}
	}
	return rest
}

// finish answers each job with its own result.
func (q *queue) finish(batch []*job, results []result) {
	for i, j := range batch {
		q.finishOne(j, results[i])
	}
}

// finishAll answers all jobs with the same result.
func (q *queue) finishAll(batch []*job, r result) {
	for _, j := range batch {
		q.finishOne(j, r)
	}
}

// finishOne answers a job. If a request may have a reservation, and its caller received no admission, it gives the reservation up.
func (q *queue) finishOne(j *job, r result) {
	admitted := j.answer(r) && r.err == nil && r.denial == nil && r.decision.Allowed
	if j.maybeStored && !admitted {
		q.ledger.giveUp([]types.NamespacedName{q.key}, j.uid, j.holder)
	}
}

// read returns the newest known version of the budget, nil if it does not exist.
func (q *queue) read() (*v1alpha1.TopologyDisruptionBudget, error) {
	known := q.written()
	cached, found := stored[*v1alpha1.TopologyDisruptionBudget](q.ledger.world.budgets, q.key)
	switch {
	case !q.readLive && found:
		return newest(cached, known), nil
	case !q.readLive && known == nil:
		return nil, nil
	}
	// The cache lacks the budget or is behind.
	q.stage.Store("reading it")
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	live := &v1alpha1.TopologyDisruptionBudget{}
	if err := q.ledger.client.Get(ctx, q.key, live); apierrors.IsNotFound(err) {
		live = nil
	} else if err != nil {
		return nil, fmt.Errorf("reading budget %s: %w", q.key, err)
	}
	q.readLive = false
	q.setWritten(live)
	return live, nil
}

// commit is one decision about a budget: its input and what to store.
type commit struct {
	queue  *queue
	now    time.Time
	before *v1alpha1.TopologyDisruptionBudget
	next   *v1alpha1.TopologyDisruptionBudget
	report *Report
	tally  *disruption.Tally
	// unconfirmed are expired reservations whose pods may still be evicted.
	unconfirmed map[types.UID]bool
	// down are pods that a live read found down, after the read of the budget.
	down    map[types.UID]bool
	refresh bool
	changed bool
}

// gather reads the input of decisions about a budget.
func (q *queue) gather(budget *v1alpha1.TopologyDisruptionBudget) (*commit, error) {
	if err := q.ledger.checkClock(); err != nil {
		return nil, err
	}
	q.stage.Store("reading pods")
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	next := budget.DeepCopy()
	if err := q.await(ctx, next); err != nil {
		return nil, err
	}
	c := &commit{queue: q, now: q.ledger.clock.Now(), before: budget, next: next}
	c.dropGivenUp()
	c.capExpiries()
	c.confirmExpired(ctx)
	q.stage.Store("reading owners of pods")
	world, err := q.ledger.world.of(ctx, budget)
	if err != nil {
		return nil, err
	}
	state := coverage.StateOf(world)
	state.Reservations = c.reservations()
	c.report = &Report{World: world, State: state, Budget: budget}
	c.dropReleased()
	c.report.State.Reservations = c.reservations()
	c.tally = disruption.NewTally(&c.report.State, c.now)
	return c, nil
}

// dropGivenUp drops reservations that were stored after they were given up.
func (c *commit) dropGivenUp() {
	all := c.next.Status.Reservations
	c.next.Status.Reservations = slices.DeleteFunc(all, func(r v1alpha1.Reservation) bool { return c.queue.ledger.isGivenUp(&r) })
	c.changed = len(c.next.Status.Reservations) < len(all)
}

// capExpiries caps the expiry of reservations from a clock that is far ahead. They end as if they were made now, which is after their
// evictions.
func (c *commit) capExpiries() {
	for i := range c.next.Status.Reservations {
		if r := &c.next.Status.Reservations[i]; r.Expires.Sub(c.now) > disruption.ReservationTime+disruption.ClockSkew {
			r.Expires, c.changed = metav1.NewTime(c.now.Add(disruption.ReservationTime)), true
		}
	}
}

// await waits until the cache of pods has the version that the budget names. It drops a version without meaning.
func (q *queue) await(ctx context.Context, budget *v1alpha1.TopologyDisruptionBudget) error {
	wait, cancel := context.WithTimeout(ctx, behindTime)
	defer cancel()
	behind := q.ledger.world.awaitPods(wait, budget.Status.PodsObserved)
	if behind == nil {
		return nil
	}
	if reached, err := shell.HasReached(ctx, q.ledger.client, budget.Namespace, budget.Status.PodsObserved); reached || err != nil {
		return errors.Join(behind, err)
	}
	budget.Status.PodsObserved = ""
	return nil
}

// confirmExpired finds the expired reservations that are over. An admitted eviction ends long before its reservation expires, so a live
// read shows its outcome. All other expired reservations still count.
func (c *commit) confirmExpired(ctx context.Context) {
	q := c.queue
	confirmed, reads := map[types.UID]time.Time{}, 0
	c.unconfirmed = map[types.UID]bool{}
	for i := range c.next.Status.Reservations {
		r := &c.next.Status.Reservations[i]
		if c.now.Before(r.Expires.Time) {
			continue
		}
		key := types.NamespacedName{Namespace: q.key.Namespace, Name: r.Pod}
		pod := q.ledger.world.pod(key)
		if pod == nil || pod.UID != r.UID || isGoing(pod) {
			continue // the cache shows that it is gone
		}
		if expired, found := q.confirmed[r.UID]; found && expired.Equal(r.Expires.Time) {
			confirmed[r.UID] = expired
			continue
		}
		if reads < mostConfirmed {
			reads++
			live := &corev1.Pod{}
			if err := q.ledger.client.Get(ctx, key, live); err == nil && live.UID == r.UID && !isGoing(live) {
				confirmed[r.UID] = r.Expires.Time
				continue
			}
		}
		c.unconfirmed[r.UID] = true
	}
	q.confirmed = confirmed
}

func isGoing(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

func (c *commit) reservations() []disruption.Reservation {
	read := coverage.Reservations(&c.next.Status)
	for i := range read {
		if c.unconfirmed[types.UID(read[i].UID)] {
			read[i].Expires = c.now.Add(time.Second)
		}
	}
	return read
}

// dropReleased drops the reservations that are no longer needed.
func (c *commit) dropReleased() {
	kept, gone := disruption.Release(&c.report.State, c.now)
	if len(kept) == len(c.next.Status.Reservations) {
		return
	}
	keep := make(map[string]bool, len(kept))
	for _, r := range kept {
		keep[r.UID] = true
	}
	for _, r := range gone {
		if version := c.versionOf(r); version != "" {
			c.observe(version)
		} else {
			keep[r.UID] = true
		}
	}
	c.next.Status.Reservations = slices.DeleteFunc(c.next.Status.Reservations, func(r v1alpha1.Reservation) bool { return !keep[string(r.UID)] })
}

// versionOf returns a version of pods at which a pod was gone, or empty if its reservation must stay. The version is unknown if the pod
// went before this process started. Then the reservation stays until another process drops it or it expires: with the current
// version, others could wait until any pod changes. A pod that exists and does not match the selector may match again.
func (c *commit) versionOf(r disruption.Reservation) string {
	w, active := c.queue.ledger.world, c.now.Before(r.Expires)
	pod := w.pod(types.NamespacedName{Namespace: c.queue.key.Namespace, Name: r.Pod})
	if pod != nil && string(pod.UID) == r.UID {
		if active && !isGoing(pod) {
			return ""
		}
		return pod.ResourceVersion
	}
	if version, _ := w.departures.get(types.UID(r.UID)); version != "" || active {
		return version
	}
	return w.podsVersion()
}

func (c *commit) observe(version string) {
	c.next.Status.PodsObserved = later(c.next.Status.PodsObserved, version)
}

// decide processes jobs in order. Each sees the changes of the earlier ones.
func (c *commit) decide(batch []*job) []result {
	c.readDownPods(batch)
	results := make([]result, len(batch))
	var conditions []metav1.Condition
	for i, j := range batch {
		switch j.kind {
		case jobAdmit:
			results[i] = c.admit(j)
		case jobUndo:
			c.undo(j)
		case jobHold:
			c.hold(j)
		case jobRefresh:
			c.refresh = true
		}
	}
	if c.refresh || c.changed {
		c.report.State.Reservations = c.reservations()
		c.report.Measures = c.tally.Measures()
		c.report.Next = c.nextChange()
		coverage.Status(&c.next.Status, c.next.Generation, c.report.Measures)
	}
	for i, j := range batch {
		if j.kind == jobRefresh {
			results[i].report = c.report
			conditions = append(conditions, j.conditions(c.report)...)
		}
	}
	for _, condition := range conditions {
		c.setCondition(condition)
	}
	return results
}

// setCondition sets a condition. Unlike meta.SetStatusCondition, it takes over the time even if the status stays.
func (c *commit) setCondition(condition metav1.Condition) {
	if known := meta.FindStatusCondition(c.next.Status.Conditions, condition.Type); known != nil {
		*known = condition
		return
	}
	c.next.Status.Conditions = append(c.next.Status.Conditions, condition)
}

// readDownPods reads live the pods that may be evicted because the cache shows them as down.
func (c *commit) readDownPods(batch []*job) {
	c.down = map[types.UID]bool{}
	var mu sync.Mutex
	var reads errgroup.Group
	reads.SetLimit(mostReads)
	ctx, cancel := context.WithTimeout(context.Background(), requestTime)
	defer cancel()
	for _, j := range batch {
		if j.kind != jobAdmit || j.dryRun || !dependsOnPod(c.tally.Decide(string(j.uid))) {
			continue
		}
		reads.Go(func() error {
			live, err := c.readLive(ctx, j.key)
			if err == nil && (live == nil || live.UID != j.uid || !c.serves(ctx, live)) {
				mu.Lock()
				defer mu.Unlock()
				c.down[j.uid] = true
			}
			return nil // an unread pod does not count as down
		})
	}
	_ = reads.Wait()
}

// readLive reads a pod live. It returns nil if the pod does not exist.
func (c *commit) readLive(ctx context.Context, key types.NamespacedName) (*corev1.Pod, error) {
	live := &corev1.Pod{}
	if err := c.queue.ledger.client.Get(ctx, key, live); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return live, nil
}

// serves reports whether a live pod serves. On a deleted node no pod serves, whatever its conditions say.
func (c *commit) serves(ctx context.Context, live *corev1.Pod) bool {
	if !isReady(live) {
		return false
	}
	if !slices.Contains(coverage.LostNodes(c.report.World), live.Spec.NodeName) {
		return true
	}
	node, err := c.queue.ledger.world.lost.read(ctx, live.Spec.NodeName)
	return err != nil || node != nil
}

// dependsOnPod reports whether an eviction is admitted only because the pod itself is down, whatever the numbers are. The cache may be
// late and the pod ready: other deciders would count it as healthy and admit evictions. If a live read after that of the budget finds
// the pod down, no decider counted on it, or the write fails.
func dependsOnPod(d disruption.Decision) bool {
	return d.Reserve && (d.Rule == disruption.RuleGone || d.Rule == disruption.RuleUnhealthy && d.Limits.AlwaysAllowUnhealthy)
}

func (c *commit) admit(j *job) result {
	d := c.tally.Decide(string(j.uid))
	if !j.dryRun && dependsOnPod(d) && !c.down[j.uid] {
		return result{err: errReadyByNow}
	}
	if d.Allowed && d.Rule != disruption.RuleReserved {
		if denial := j.gate.refuses(c, j.uid); denial != nil {
			return result{denial: denial}
		}
	}
	if !d.Allowed || !d.Reserve || j.dryRun {
		return result{decision: d}
	}
	r, changed := c.tally.Reserve(string(j.uid), j.holder)
	if changed {
		c.store(r)
		c.observe(j.version)
	}
	c.changed = true // even without a change, a successful write proves that the budget is the stored one
	return result{decision: d}
}

// store adds a reservation to the status, or updates its holder.
func (c *commit) store(r disruption.Reservation) {
	if listed, found := reservationOf(c.next, types.UID(r.UID)); found {
		listed.Holder = r.Holder
		return
	}
	c.next.Status.Reservations = append(c.next.Status.Reservations, v1alpha1.Reservation{
		UID: types.UID(r.UID), Pod: r.Pod, Expires: metav1.NewTime(r.Expires), Holder: r.Holder,
	})
}

// undo drops a reservation if the holder is its only one.
func (c *commit) undo(j *job) {
	all := c.next.Status.Reservations
	c.next.Status.Reservations = slices.DeleteFunc(all, func(r v1alpha1.Reservation) bool { return r.UID == j.uid && r.Holder == j.holder })
	if len(c.next.Status.Reservations) < len(all) {
		c.recount()
	}
}

// hold makes a reservation or renews it.
func (c *commit) hold(j *job) {
	expires := metav1.NewTime(c.now.Add(disruption.ReservationTime))
	if listed, found := reservationOf(c.next, j.uid); found {
		listed.Expires = expires
		delete(c.unconfirmed, j.uid)
		c.recount()
		return
	}
	i := slices.IndexFunc(c.report.State.Pods, func(p disruption.Pod) bool { return p.UID == string(j.uid) && !p.Terminating && !p.Finished })
	if i < 0 {
		return
	}
	c.next.Status.Reservations = append(c.next.Status.Reservations, v1alpha1.Reservation{
		UID: j.uid, Pod: c.report.State.Pods[i].Name, Expires: expires, Holder: j.holder,
	})
	c.observe(j.version)
	c.recount()
}

// recount makes a new tally of the changed reservations, for the next jobs.
func (c *commit) recount() {
	c.changed = true
	c.report.State.Reservations = c.reservations()
	c.tally = disruption.NewTally(&c.report.State, c.now)
}

// unchanged reports whether there is nothing to store. Changed numbers alone, and reservations that are no longer needed, wait for
// another change or a refresh.
func (c *commit) unchanged() bool {
	return !c.changed && (!c.refresh || equality.Semantic.DeepEqual(&c.before.Status, &c.next.Status))
}

// nextChange returns when time alone changes the status, zero for never.
func (c *commit) nextChange() (next time.Time) {
	sooner := func(at time.Time) {
		if at.After(c.now) && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	state := &c.report.State
	for _, r := range state.Reservations {
		sooner(r.Expires)
	}
	sooner(state.Budget.BreakGlass.Until)
	for i := range state.Pods {
		p := &state.Pods[i]
		if p.Ready && state.Budget.Settle > 0 {
			sooner(p.ReadySince.Add(state.Budget.Settle))
		}
		sooner(p.Shift.Until)
	}
	return next
}
