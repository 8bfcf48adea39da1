package responder

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/disruption/reservation"
)

// book is a Ledger of one pod.
type book struct {
	denial  string
	err     error
	asked   int
	holders map[string]bool // who has a reservation
	renewed int
}

func (b *book) Admit(_ context.Context, request reservation.Request) (reservation.Answer, error) {
	b.asked++
	if b.err != nil || b.denial != "" {
		return reservation.Answer{Denial: b.denial}, b.err
	}
	b.holders[request.Holder] = true
	return reservation.Answer{Decisions: []disruption.Decision{{Budget: "shop/web", Allowed: true, Rule: disruption.RuleReserved}}}, nil
}

func (b *book) Undo(_ context.Context, _ types.NamespacedName, _ types.UID, holder string) error {
	delete(b.holders, holder)
	return nil
}

func (b *book) Hold(context.Context, *corev1.Pod, string) error {
	b.renewed++
	return nil
}

// bench is a responder to one Eviction.
type bench struct {
	*testing.T
	*book
	clock   *clocktesting.FakeClock
	objects client.Client
	*reconciler
}

func newBench(t *testing.T, eviction *lifecyclev1alpha1.Eviction) *bench {
	t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}}
	objects := fake.NewClientBuilder().WithScheme(newScheme(t)).WithObjects(pod, eviction).WithStatusSubresource(eviction).
		WithIndex(&lifecyclev1alpha1.Eviction{}, indexUID, func(object client.Object) []string {
			return []string{string(object.(*lifecyclev1alpha1.Eviction).Spec.Target.Pod.UID)}
		}).Build()
	b := &bench{T: t, book: &book{holders: map[string]bool{}}, clock: clocktesting.NewFakeClock(begin.Add(2 * time.Minute)), objects: objects}
	b.restart()
	return b
}

// restart forgets the memory of the responder.
func (b *bench) restart() {
	b.reconciler = newReconciler(b.objects, b.book, b.clock, Options{Workers: 1, Reports: 1})
	b.evictions = b.objects
}

// sync runs one sync, and returns the wait that follows.
func (b *bench) next() time.Duration {
	b.Helper()
	result, err := b.Reconcile(b.Context(), target{types.NamespacedName{Namespace: "shop", Name: "web"}, "uid-web"})
	if err != nil {
		b.Fatal(err)
	}
	return result.RequeueAfter
}

// change changes the Eviction as Kubernetes' controller does.
func (b *bench) change(f func(*lifecyclev1alpha1.Eviction)) {
	b.Helper()
	eviction := b.eviction()
	f(eviction)
	if err := b.objects.Status().Update(b.Context(), eviction); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) eviction() *lifecyclev1alpha1.Eviction {
	b.Helper()
	eviction := &lifecyclev1alpha1.Eviction{}
	if err := b.objects.Get(b.Context(), types.NamespacedName{Namespace: "shop", Name: "pod-1-web"}, eviction); err != nil {
		b.Fatal(err)
	}
	return eviction
}

// reported compares the last message of the responder and its age.
func (b *bench) reported(message string, age time.Duration) {
	b.Helper()
	_, own, _ := ownOf(b.eviction())
	if own.Message == nil || own.HeartbeatTime == nil || !strings.Contains(*own.Message, message) || b.clock.Since(own.HeartbeatTime.Time) != age {
		b.Errorf("it is reported %+v, want %q %s ago", own, message, age)
	}
}

// ownTurn gives the responder its turn.
var ownTurn = part{name: v1alpha1.EvictionResponder, state: active, start: 1}

// The wait of a pod is reported at once, when the message changes, and well before Kubernetes ends the turn.
func TestReports(t *testing.T) {
	b := newBench(t, newEviction(ownTurn, part{name: evictor, state: inactive}))
	b.denial = "zone a has no more to spare"
	if after := b.next(); after <= 0 || after > retryFirst {
		t.Errorf("it waits %s", after)
	}
	b.reported("zone a", 0)
	b.clock.Step(20 * time.Second)
	b.denial = "zone b has no more to spare"
	if after := b.next(); after > newsEvery-20*time.Second {
		t.Errorf("it waits %s with news", after)
	}
	b.reported("zone a", 20*time.Second)
	b.clock.Step(10 * time.Second)
	b.next()
	b.reported("zone b", 0)
	for range 10 {
		if after := b.next(); after < 0 || after > retryLongest {
			t.Errorf("it waits %s", after)
		}
	}
	b.clock.Step(heartbeatEvery - time.Second)
	b.next()
	b.reported("zone b", heartbeatEvery-time.Second)
	b.clock.Step(time.Second)
	b.next()
	b.reported("zone b", 0)
	b.denial, b.err = "", errors.New("owners cannot be read")
	b.clock.Step(newsEvery)
	b.next()
	b.reported("owners cannot be read", 0)
	if _, own, _ := ownOf(b.eviction()); own.CompletionTime != nil {
		t.Error("it is completed although it is not known whether it may go")
	}
	if len(b.waiting()) != 1 {
		t.Error("a change of budgets would not wake it")
	}
}

func TestAdmittedPodsAreCompleted(t *testing.T) {
	b := newBench(t, newEviction(ownTurn, part{name: evictor, state: inactive}))
	b.denial = "not now"
	b.next()
	b.denial = ""
	if after := b.next(); after != 0 {
		t.Errorf("it waits %s", after)
	}
	b.reported("Admitted: budget shop/web: ", 0)
	if _, own, _ := ownOf(b.eviction()); own.CompletionTime == nil || len(b.holders) != 1 || len(b.waiting()) != 0 {
		t.Errorf("%+v, with reservations of %v", own, b.holders)
	}
	b.next()
	if b.asked != 2 {
		t.Errorf("the Ledger was asked %d times", b.asked)
	}
}

// Reservations made during a withdrawal are given up.
func TestWithdrawnRequestsGiveReservationsBack(t *testing.T) {
	b := newBench(t, newEviction(ownTurn, part{name: evictor, state: inactive}))
	b.next()
	b.change(func(e *lifecyclev1alpha1.Eviction) {
		withdrawn(e)
		e.Status.Responders[0].CompletionTime = nil // the write is lost to that of Kubernetes
	})
	if len(b.holders) != 1 {
		t.Fatalf("reservations of %v", b.holders)
	}
	b.next()
	if len(b.holders) != 0 {
		t.Errorf("reservations of %v are left", b.holders)
	}
	if _, own, _ := ownOf(b.eviction()); own.CompletionTime != nil {
		t.Error("it is completed: the next responder would have its turn if it is requested again")
	}
}

// After a denial by the second budget, the reservation of the first is given up, perhaps during the next attempt.
func TestAttemptsHaveHoldersOfTheirOwn(t *testing.T) {
	b := newBench(t, newEviction(ownTurn, part{name: evictor, state: inactive}))
	b.next()
	b.change(func(e *lifecyclev1alpha1.Eviction) { e.Status.Responders[0].CompletionTime = nil })
	b.next()
	if len(b.holders) != 1 {
		t.Errorf("one that was admitted is made again by %v", b.holders)
	}
	b.change(func(e *lifecyclev1alpha1.Eviction) { e.Status.Responders[0].CompletionTime = nil })
	b.denial = "no"
	b.next()
	b.denial = ""
	b.next()
	if len(b.holders) != 2 {
		t.Errorf("one that was denied is made again by %v", b.holders)
	}
}

// While another responder may delete the pod, its reservations are renewed long before they expire, even after a restart.
func TestReservationsAreHeld(t *testing.T) {
	turnOfDeleter := part{name: deleter, state: active, start: 2}
	own := part{name: v1alpha1.EvictionResponder, state: completed, start: 1, completionTime: 2}
	b := newBench(t, newEviction(own, turnOfDeleter, part{name: evictor, state: inactive}))
	if after := b.next(); b.renewed != 0 || after != holdEvery {
		t.Errorf("%d renewals at first, then a wait of %s", b.renewed, after)
	}
	for n := 1; n <= 3; n++ {
		b.clock.Step(holdEvery)
		if after := b.next(); b.renewed != n || after <= 0 || 2*after > disruption.ReservationTime {
			t.Errorf("%d renewals after %d times, then a wait of %s", b.renewed, n, after)
		}
		b.next()
	}
	b.restart()
	b.next()
	if b.renewed != 4 {
		t.Errorf("a new controller has renewed %d times", b.renewed-3)
	}
	b.change(func(e *lifecyclev1alpha1.Eviction) { withdrawn(e) })
	b.clock.Step(holdEvery)
	if after := b.next(); after != 0 || b.renewed != 4 {
		t.Errorf("withdrawn, it is renewed %d times and waits %s", b.renewed-4, after)
	}
	b.change(func(e *lifecyclev1alpha1.Eviction) {
		e.Status.Requesters[0].Intent = lifecyclev1alpha1.RequesterIntentEviction
	})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	if err := b.objects.Delete(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	if after := b.next(); after != 0 || b.renewed != 4 {
		t.Errorf("gone, it is renewed %d times and waits %s", b.renewed-4, after)
	}
}
