package responder

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/kit/shell"
)

const (
	// askTime bounds a call of the Ledger.
	askTime = 10 * time.Second
	// heartbeatEvery is the time between reports without news. Kubernetes ends the turn of a responder that has not reported for 20
	// minutes.
	heartbeatEvery = 3 * time.Minute
	// newsEvery is the time between reports of changed messages. Kubernetes requires at least 20 seconds.
	newsEvery = 30 * time.Second
	// holdEvery is the time between renewals of reservations. Two of them may fail.
	holdEvery = disruption.ReservationTime / 3
	// retryFirst and retryLongest are the first and the longest wait after a denial. Changes of budgets wake waiting pods earlier.
	retryFirst, retryLongest = time.Second, 30 * time.Second
	// wakeTime spreads the wake-ups of waiting pods.
	wakeTime = 500 * time.Millisecond
	// maxMessage bounds a message in bytes. Kubernetes allows as many characters.
	maxMessage = 4000
)

// reconciler answers the Evictions of a pod.
type reconciler struct {
	client    client.Client
	evictions client.Reader // a cache, made once the API is served
	ledger    ledger
	clock     clock.PassiveClock
	reports   *rate.Limiter
	notes     *shell.Notes[target, notes]
	metrics   *metrics
	syncs     *shell.Syncs
}

// notes is the memory of a pod. It can be lost: forgotten reservations expire.
type notes struct {
	backoff shell.Backoff // of denials in a row
	waits   atomic.Bool   // after a denial, for events of budgets
	holder  string        // of the reservations, "" if unknown
	renewed time.Time     // when the reservations were last renewed, zero if the renewals have ended
}

// denied counts a denial, and returns the wait until the next attempt.
func (n *notes) denied(now time.Time) time.Duration {
	n.waits.Store(true)
	n.backoff.Fail(now, retryFirst, retryLongest)
	wait := n.backoff.Wait(now)
	return wait - jitter(wait/2)
}

// decided ends the denials.
func (n *notes) decided() {
	n.waits.Store(false)
	n.backoff = shell.Backoff{}
}

// waiting lists the pods with denials.
func (r *reconciler) waiting() (targets []target) {
	for t, n := range r.notes.All() {
		if n.waits.Load() {
			targets = append(targets, t)
		}
	}
	return targets
}

// jitter returns a random part of a duration.
func jitter(d time.Duration) time.Duration { return time.Duration(rand.Int64N(int64(d) + 1)) }

// Reconcile implements reconcile.TypedReconciler.
func (r *reconciler) Reconcile(ctx context.Context, t target) (reconcile.Result, error) {
	defer r.syncs.Begin("the eviction of pod " + t.String())()
	after, err := r.sync(ctx, t)
	result, outcome, err := shell.Finish(after, err)
	r.metrics.synced(outcome)
	return result, err
}

// sync returns when to sync again, zero for never.
func (r *reconciler) sync(ctx context.Context, t target) (time.Duration, error) {
	var list lifecyclev1alpha1.EvictionList
	if err := r.evictions.List(ctx, &list, client.InNamespace(t.Namespace), client.MatchingFields{indexUID: string(t.UID)}); err != nil {
		return 0, fmt.Errorf("listing Evictions of pod %s: %w", t, err)
	}
	if len(list.Items) == 0 {
		r.notes.Forget(t)
		return 0, nil
	}
	n, turn := r.notes.Of(t, func() *notes { return &notes{} }), turnOf(shell.Pointers(list.Items))
	if turn.step != decide {
		n.decided()
	}
	if turn.step != hold {
		n.renewed = time.Time{}
	}
	switch turn.step {
	case decide:
		return r.decide(ctx, n, t, turn.eviction)
	case hold:
		return r.hold(ctx, n, t, turn.eviction)
	case giveUp:
		return 0, r.giveUp(ctx, n, t)
	}
	if isFinal(turn.eviction) {
		n.holder = ""
	}
	return 0, nil
}

// pod reads the pod. It returns nil if the pod is gone.
func (r *reconciler) pod(ctx context.Context, t target) (*corev1.Pod, error) {
	pod := new(corev1.Pod)
	err := r.client.Get(ctx, t.NamespacedName, pod)
	switch {
	case apierrors.IsNotFound(err) || err == nil && pod.UID != t.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading pod %s: %w", t, err)
	}
	return pod, nil
}

// decide completes if the eviction is admitted. Otherwise it reports why the pod waits.
func (r *reconciler) decide(ctx context.Context, n *notes, t target, eviction *lifecyclev1alpha1.Eviction) (time.Duration, error) {
	pod, err := r.pod(ctx, t)
	if err != nil {
		return 0, err
	}
	if pod == nil {
		// Kubernetes ends the Eviction of a gone pod, or the cache is behind and catches up.
		return n.denied(r.clock.Now()), nil
	}
	answer, err := r.admit(ctx, n, pod)
	switch {
	case err != nil:
		log.FromContext(ctx).Error(err, "Cannot decide an eviction", "pod", t.NamespacedName)
		return r.wait(ctx, n, eviction, "The eviction of the pod cannot be decided now: "+err.Error())
	case !answer.Allowed():
		return r.wait(ctx, n, eviction, answer.Denial)
	}
	n.decided()
	if err := r.report(ctx, eviction, plaintext.Cut(admitted(answer), maxMessage), true); err != nil {
		return 0, fmt.Errorf("completing Eviction %s: %w", client.ObjectKeyFromObject(eviction), err)
	}
	log.FromContext(ctx).Info("Eviction admitted", "pod", t.NamespacedName, "eviction", eviction.Name)
	return 0, nil
}

// admit asks the Ledger. Each attempt has its own holder, because the reservation of a denied attempt may be given
// up after the next attempt starts. An admitted attempt is repeated with its holder.
func (r *reconciler) admit(ctx context.Context, n *notes, pod *corev1.Pod) (reservation.Answer, error) {
	holder := cmp.Or(n.holder, v1alpha1.EvictionResponder+"/"+string(uuid.NewUUID()))
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	answer, err := r.ledger.Admit(ctx, reservation.Request{Pod: pod, Holder: holder})
	n.holder = ""
	if err == nil && answer.Allowed() {
		n.holder = holder
	}
	return answer, err
}

// admitted says why a pod may be evicted.
func admitted(answer reservation.Answer) string {
	if len(answer.Decisions) == 0 {
		return "No TopologyDisruptionBudget covers the pod."
	}
	sentences := make([]string, len(answer.Decisions))
	for i, decision := range answer.Decisions {
		sentences[i] = decision.Brief()
	}
	return "Admitted: " + strings.Join(sentences, " ")
}

// wait reports why the pod waits, if a report is due, and returns when to look again.
func (r *reconciler) wait(ctx context.Context, n *notes, eviction *lifecyclev1alpha1.Eviction, message string) (time.Duration, error) {
	message = plaintext.Cut(message, maxMessage)
	again := n.denied(r.clock.Now())
	_, own, _ := ownOf(eviction)
	due, must := reportDue(own, message, r.clock.Now())
	if due > 0 {
		return shell.Sooner(again, due), nil
	}
	if !must && !r.reports.AllowN(r.clock.Now(), 1) {
		return again, nil
	}
	if err := r.report(ctx, eviction, message, false); err != nil {
		return 0, fmt.Errorf("reporting to Eviction %s: %w", client.ObjectKeyFromObject(eviction), err)
	}
	return again, nil
}

// reportDue returns the time until a report is due, and whether that report must not be skipped.
func reportDue(own *lifecyclev1alpha1.ResponderStatus, message string, now time.Time) (time.Duration, bool) {
	if own.HeartbeatTime == nil {
		return 0, true
	}
	age := now.Sub(own.HeartbeatTime.Time)
	if own.Message == nil || *own.Message != message {
		return newsEvery - age, age >= heartbeatEvery
	}
	return heartbeatEvery - age, true
}

// report writes a message, unless the Eviction has changed.
func (r *reconciler) report(ctx context.Context, eviction *lifecyclev1alpha1.Eviction, message string, completed bool) error {
	changed := eviction.DeepCopy()
	_, own, _ := ownOf(changed)
	now := metav1.NewTime(r.clock.Now().Truncate(time.Second))
	// The API server refuses times before these, and the clock that wrote them may be ahead.
	for _, before := range []*metav1.Time{own.StartTime, own.HeartbeatTime} {
		if before != nil && now.Before(before) {
			now = *before
		}
	}
	own.HeartbeatTime, own.Message = &now, new(message)
	if completed {
		own.CompletionTime = &now
	}
	return shell.Changed(r.client.Status().Update(ctx, changed))
}

// hold renews the reservations of a pod that another responder may delete.
func (r *reconciler) hold(ctx context.Context, n *notes, t target, eviction *lifecyclev1alpha1.Eviction) (time.Duration, error) {
	since := n.renewed
	if _, own, _ := ownOf(eviction); own.CompletionTime != nil && own.CompletionTime.After(since) {
		since = own.CompletionTime.Time // the reservations were made shortly before
	}
	now := r.clock.Now()
	if left := since.Add(holdEvery).Sub(now); left > 0 {
		return left, nil
	}
	pod, err := r.pod(ctx, t)
	if err != nil || pod == nil || pod.DeletionTimestamp != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := r.ledger.Hold(ctx, pod, n.holder); err != nil {
		return 0, fmt.Errorf("holding reservations of pod %s: %w", t, err)
	}
	n.renewed = now
	return holdEvery, nil
}

// giveUp gives up the reservations of a pod. Those of an earlier process expire.
func (r *reconciler) giveUp(ctx context.Context, n *notes, t target) error {
	if n.holder == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	if err := r.ledger.Undo(ctx, t.NamespacedName, t.UID, n.holder); err != nil {
		return fmt.Errorf("giving up the reservations of pod %s: %w", t, err)
	}
	n.holder = ""
	return nil
}
