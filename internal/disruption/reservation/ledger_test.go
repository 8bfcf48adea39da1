package reservation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
)

var errLost = errors.New("connection reset by peer")

// objects has a budget of one pod in each zone, and two pods in a zone.
func objects() (budget *v1alpha1.TopologyDisruptionBudget, first, second *corev1.Pod) {
	return aBudget("web", 1), aPod(1, 10), aPod(2, 11)
}

// started makes a server with a replica whose cache is complete.
func started(t *testing.T) (s *server, r *replica, first, second *corev1.Pod) {
	t.Helper()
	budget, first, second := objects()
	s = newServer(t, budget, first, second)
	return s, s.replica().sees(s.budget("web"), first, second), first, second
}

func (s *server) reservations() (names []string) {
	s.Helper()
	for _, r := range s.budget("web").Status.Reservations {
		names = append(names, fmt.Sprintf("%s by %s", r.Pod, r.Holder))
	}
	return names
}

func (s *server) wantReservations(want ...string) {
	s.Helper()
	if got := s.reservations(); !slices.Equal(got, want) {
		s.Fatalf("the reservations are %q, want %q", got, want)
	}
}

func TestEvictionsAreReservedBeforeTheyAreAdmitted(t *testing.T) {
	s, r, first, second := started(t)
	r.want(first, "x", true)
	s.wantReservations("web-1 by x")
	stored := s.budget("web").Status
	if want := metav1.NewTime(start.Add(disruption.ReservationTime)); !stored.Reservations[0].Expires.Equal(&want) || stored.PodsObserved != "10" {
		t.Errorf("stored is %+v", stored)
	}
	if stored.CurrentHealthy != 1 || stored.ExpectedPods != 2 || stored.DisruptionsAllowed != 0 || len(stored.Domains) != 3 {
		t.Errorf("the numbers are %+v", stored)
	}
	r.want(second, "y", false)
	if wrote := s.written(); wrote != 1 {
		t.Errorf("%d writes, and a denial takes none", wrote)
	}
}

func TestDryRunsReserveNothing(t *testing.T) {
	s, r, first, second := started(t)
	for _, pod := range []*corev1.Pod{first, second} {
		if answer, err := r.Admit(t.Context(), Request{Pod: pod, Holder: "x", DryRun: true}); err != nil || !answer.Allowed() {
			t.Errorf("%+v, %v", answer, err)
		}
	}
	if s.written() != 0 {
		t.Errorf("%d writes", s.written())
	}
}

// After a write with an unknown outcome the budget is read, and the eviction admitted once it is stored. The reservation is stored once,
// even if the lost write succeeded.
func TestUnknownOutcomes(t *testing.T) {
	for name, stored := range map[string]bool{"stored": true, "lost": false} {
		t.Run(name, func(t *testing.T) {
			s, r, first, second := started(t)
			s.onUpdate(func(write func() error) error {
				s.onUpdate(nil)
				if stored {
					if err := write(); err != nil {
						t.Error(err)
					}
				}
				return errLost
			})
			r.want(first, "x", true)
			s.wantReservations("web-1 by x")
			r.want(second, "y", false)
		})
	}
}

// A late write conflicts with the next one.
func TestLateWrites(t *testing.T) {
	s, r, first, second := started(t)
	var late func() error
	s.onUpdate(func(write func() error) error {
		if late == nil {
			late = write
			return errLost
		}
		s.onUpdate(nil)
		if err := late(); err != nil {
			t.Errorf("the late write: %v", err)
		}
		err := write()
		if !apierrors.IsConflict(err) {
			t.Errorf("the write after the late one: %v", err)
		}
		return err
	})
	r.want(first, "x", true)
	s.wantReservations("web-1 by x")
	r.want(second, "y", false)
}

// A request is answered in time whatever the API server does. A reservation that may be stored for it is given up.
func TestNoAnswerOfTheServer(t *testing.T) {
	s, r, first, second := started(t)
	block := make(chan struct{})
	ctx, cancel := context.WithCancelCause(t.Context())
	s.onUpdate(func(write func() error) error {
		err := write()
		cancel(context.DeadlineExceeded)
		<-block
		return err
	})
	var slow *slowError
	if answer, err := r.askIn(ctx, first, "x"); !errors.As(err, &slow) || !strings.Contains(err.Error(), "writing its status") || !strings.Contains(err.Error(), "shop/web") {
		t.Fatalf("the answer is %q, %v", answer, err)
	}
	s.wantReservations("web-1 by x")
	s.onUpdate(nil)
	close(block)
	s.eventually("budget without the reservation", func() bool { return len(s.reservations()) == 0 })
	r.want(second, "y", true)
}

// A refusal is not an unknown outcome, and is not retried.
func TestWritesThatAreRefused(t *testing.T) {
	s, r, first, _ := started(t)
	s.onUpdate(func(func() error) error {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "topologydisruptionbudgets"}, "web", errors.New("no right"))
	})
	if answer, err := r.ask(first, "x"); !apierrors.IsForbidden(err) {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	if s.written() != 1 {
		t.Errorf("%d writes", s.written())
	}
}

// Of two replicas with the same knowledge, the later one decides by the write of the first.
func TestConflicts(t *testing.T) {
	s, a, first, second := started(t)
	b := s.replica().sees(s.budget("web"), first, second)
	a.want(first, "x", true)
	b.want(second, "y", false)
	s.wantReservations("web-1 by x")
}

// The write of another replica arrives by the watch, without a read.
func TestConflictsCostNoRead(t *testing.T) {
	s, a, first, second := started(t)
	b := s.replica().sees(s.budget("web"), first, second)
	a.want(first, "x", true)
	s.onUpdate(func(write func() error) error {
		s.onUpdate(nil)
		err := write()
		b.sees(s.budget("web"))
		s.onGet(func(object client.Object, read func() error) error {
			t.Errorf("a %T is read", object)
			return read()
		})
		return err
	})
	b.want(second, "y", false)
	s.onGet(nil)
	s.wantReservations("web-1 by x")
}

// A replica with a lagging watch reads the budget after its second conflict, so that it loses no more rounds.
func TestSecondConflictIsRead(t *testing.T) {
	s, r, first, _ := started(t)
	var conflicts, reads atomic.Int32
	s.onUpdate(func(write func() error) error {
		edited := s.budget("web")
		edited.Annotations = map[string]string{"edited": edited.ResourceVersion}
		s.must(s.Update(t.Context(), edited))
		r.sees(s.budget("web"))
		if conflicts.Add(1) == 2 {
			s.onUpdate(nil)
			s.onGet(func(object client.Object, read func() error) error {
				if _, ok := object.(*v1alpha1.TopologyDisruptionBudget); ok {
					reads.Add(1)
				}
				return read()
			})
		}
		return write()
	})
	r.want(first, "x", true)
	s.onGet(nil)
	if conflicts, reads := conflicts.Load(), reads.Load(); conflicts != 2 || reads != 1 {
		t.Errorf("%d conflicts and %d reads, want 2 and 1", conflicts, reads)
	}
}

// The reservation of a gone pod is dropped. A replica whose cache still has the pod may not decide: it would count the pod as healthy.
func TestReplicaThatIsBehind(t *testing.T) {
	for name, end := range map[string]func(*replica, *corev1.Pod){
		"terminating": func(r *replica, pod *corev1.Pod) { r.sees(terminating(pod, 20)) },
		"gone":        func(r *replica, pod *corev1.Pod) { r.misses(pod, 20) },
	} {
		t.Run(name, func(t *testing.T) {
			s, a, first, second := started(t)
			b := s.replica().sees(s.budget("web"), first, second)
			a.want(first, "x", true)
			end(a, first)
			if report, err := a.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, none); err != nil || !report.Written {
				t.Fatalf("%+v, %v", report, err)
			}
			s.wantReservations()
			if seen := s.budget("web").Status.PodsObserved; seen != "20" {
				t.Fatalf("the version to have seen is %q", seen)
			}
			var behind *behindError
			if answer, err := b.ask(second, "y"); !errors.As(err, &behind) {
				t.Fatalf("a replica that is behind: %q, %v", answer, err)
			}
			end(b, first)
			b.want(second, "y", name == "gone")
		})
	}
}

func none(*Report) []metav1.Condition { return nil }

// A replica that has not seen a new pod yet does not drop its reservation as that of a gone pod.
func TestReservationOfAPodThatIsNotSeen(t *testing.T) {
	s, a, first, second := started(t)
	b := s.replica().sees(s.budget("web"), first, second)
	third := aPod(3, 30)
	if err := s.Create(t.Context(), withoutVersion(third)); err != nil {
		t.Fatal(err)
	}
	a.sees(third)
	a.want(third, "x", true)
	b.sees(s.budget("web"))
	var behind *behindError
	if _, err := b.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, none); !errors.As(err, &behind) {
		t.Fatalf("a replica that has not seen the pod: %v", err)
	}
	s.wantReservations("web-3 by x")
}

func withoutVersion(pod *corev1.Pod) *corev1.Pod {
	made := pod.DeepCopy()
	made.ResourceVersion = ""
	return made
}

// A status copied from another cluster names a meaningless version, and an edited one may name none.
func TestVersionThatMeansNothing(t *testing.T) {
	for _, version := range []string{"999999999", "yesterday"} {
		budget, first, second := objects()
		budget.Status.PodsObserved = version
		s := newServer(t, budget, first, second)
		r := s.replica().sees(s.budget("web"), first, second)
		r.want(first, "x", true)
		if seen := s.budget("web").Status.PodsObserved; seen != "10" {
			t.Errorf("after %s the version to have seen is %q", version, seen)
		}
	}
}

// A replica that started after a pod was gone does not know the version of the deletion. It does not make others wait for its own
// version, and leaves the reservation to them.
func TestReplicaThatBeganLater(t *testing.T) {
	s, a, first, second := started(t)
	a.want(first, "x", true)
	s.must(s.Delete(t.Context(), first.DeepCopy()))
	a.misses(first, 40)
	b := s.replica().sees(s.budget("web"), second)
	b.world.pods.Bookmark("90")
	b.refresh()
	s.wantReservations("web-1 by x")
	a.sees(s.budget("web"))
	a.want(second, "y", true)
	s.wantReservations("web-2 by y")
	if seen := s.budget("web").Status.PodsObserved; seen != "40" {
		t.Errorf("the version to have seen is %q", seen)
	}
}

// A pod that leaves a budget and returns during its eviction is still about to go.
func TestPodThatIsTakenOutAndPutBack(t *testing.T) {
	s, r, first, second := started(t)
	r.want(first, "x", true)
	out := aPod(1, 40)
	out.Labels = map[string]string{"app": "other"}
	r.sees(out)
	r.refresh()
	r.sees(aPod(1, 50))
	r.want(second, "y", false)
	s.wantReservations("web-1 by x")
}

// refresh brings the status of the budget up to date.
func (r *replica) refresh() {
	r.Helper()
	_, err := r.Refresh(r.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, none)
	r.must(err)
}

// An expired reservation is over only after a live read of the pod: an old cache may show the pod as before its eviction.
func TestExpiredReservations(t *testing.T) {
	for name, test := range map[string]struct {
		evict func(*server, *corev1.Pod)
		over  bool
	}{
		"the pod is there":       {func(*server, *corev1.Pod) {}, true},
		"the pod was evicted":    {func(s *server, pod *corev1.Pod) { s.must(s.Delete(s.Context(), pod)) }, false},
		"the API server is slow": {func(s *server, _ *corev1.Pod) { s.onGet(func(client.Object, func() error) error { return errLost }) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			s, r, first, second := started(t)
			r.want(first, "x", true)
			s.clock.SetTime(start.Add(disruption.ReservationTime - time.Second))
			r.want(second, "y", false)
			s.clock.SetTime(start.Add(disruption.ReservationTime))
			test.evict(s, first.DeepCopy())
			r.want(second, "y", test.over)
		})
	}
}

// The confirmation of a pod after one expired reservation does not count for the next one.
func TestReservationThatExpiredAgain(t *testing.T) {
	s, a, first, second := started(t)
	a.want(first, "x", true)
	s.clock.SetTime(start.Add(disruption.ReservationTime))
	if answer, err := a.Admit(t.Context(), Request{Pod: second, Holder: "y", DryRun: true}); err != nil || !answer.Allowed() {
		t.Fatalf("%+v, %v", answer, err)
	}
	b := s.replica().sees(s.budget("web"), first, second)
	b.want(first, "z", true)
	s.clock.SetTime(start.Add(2 * disruption.ReservationTime))
	s.must(s.Delete(t.Context(), first.DeepCopy()))
	a.sees(s.budget("web"))
	a.want(second, "y", false)
}

func (s *server) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

// One replica drops a reservation that expires while its pod goes. Another one, which has not seen the deletion, does not treat the pod
// as never evicted.
func TestReservationThatExpiredOfAPodThatIsGone(t *testing.T) {
	s, a, first, second := started(t)
	a.want(first, "x", true)
	s.clock.SetTime(start.Add(disruption.ReservationTime))
	s.must(s.Delete(t.Context(), first.DeepCopy()))
	a.misses(first, 40)
	a.refresh()
	s.wantReservations()
	b := s.replica().sees(s.budget("web"), first, second)
	var behind *behindError
	if answer, err := b.ask(second, "y"); !errors.As(err, &behind) {
		t.Fatalf("a replica that is behind: %q, %v", answer, err)
	}
	b.misses(first, 40)
	b.want(second, "y", true)
}

// A retry is admitted by the existing reservation while that outlasts an eviction, and never extends it. After that it waits until the
// reservation has expired.
func TestRetriesDoNotExtendReservations(t *testing.T) {
	s, r, first, _ := started(t)
	r.want(first, "x", true)
	expires := s.budget("web").Status.Reservations[0].Expires
	for at, allowed := range map[time.Duration]bool{
		10 * time.Second: true,
		disruption.ReservationTime - disruption.EvictionTime: false,
		disruption.ReservationTime - time.Second:             false,
	} {
		s.clock.SetTime(start.Add(at))
		r.want(first, "y", allowed)
		if again := s.budget("web").Status.Reservations[0].Expires; !again.Equal(&expires) {
			t.Errorf("after %s it expires at %s, and not at %s", at, again, expires)
		}
	}
	s.clock.SetTime(start.Add(disruption.ReservationTime))
	r.want(first, "z", true)
	s.wantReservations("web-1 by z")
}

// A replica with a wrong clock cannot tell which reservations have expired. It decides and writes nothing, and is not ready.
func TestReplicaWhoseClockIsOff(t *testing.T) {
	s, r, first, second := started(t)
	r.want(first, "x", true)
	written, key := s.written(), types.NamespacedName{Namespace: shop, Name: "web"}
	ahead := time.Duration(0)
	r.ahead = func() time.Duration { return ahead }
	for by, says := range map[time.Duration]string{6 * time.Second: "6s ahead of", -time.Hour: "1h0m0s behind"} {
		ahead = by
		_, admitted := r.ask(second, "y")
		_, refreshed := r.Refresh(t.Context(), key, none)
		for what, err := range map[string]error{"an eviction": admitted, "a refresh": refreshed, "the check": r.Synced(nil)} {
			if err == nil || !strings.Contains(err.Error(), "the clock of vicinity-controller is "+says) {
				t.Errorf("%s while it is off by %s: %v", what, by, err)
			}
		}
	}
	for _, by := range []time.Duration{4 * time.Second, -4 * time.Second} {
		ahead = by
		if err := r.Synced(nil); err != nil {
			t.Errorf("while it is off by %s: %v", by, err)
		}
	}
	if s.written() != written {
		t.Errorf("%d writes", s.written()-written)
	}
	r.want(second, "y", false)
}

// A reservation from a clock that was far ahead ends as if it were made now.
func TestReservationOfAClockFarAhead(t *testing.T) {
	s, r, first, second := started(t)
	s.clock.SetTime(start.Add(time.Hour))
	r.want(first, "x", true)
	s.clock.SetTime(start)
	r.want(second, "y", false)
	if _, err := r.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: "web"}, none); err != nil {
		t.Fatal(err)
	}
	if held := s.budget("web").Status.Reservations[0]; !held.Expires.Time.Equal(start.Add(disruption.ReservationTime)) {
		t.Errorf("it ends at %s", held.Expires)
	}
}

// A reservation that admitted two requests is given up by neither.
func TestUndo(t *testing.T) {
	s, r, first, second := started(t)
	undo := func(holder string) {
		t.Helper()
		s.must(r.Undo(t.Context(), client.ObjectKeyFromObject(first), first.UID, holder))
	}
	r.want(first, "x", true)
	undo("y")
	s.wantReservations("web-1 by x")
	undo("x")
	s.wantReservations()
	r.want(first, "x", true)
	r.GiveUp(client.ObjectKeyFromObject(first), first.UID, "x")
	s.eventually("budget without the reservation", func() bool { return len(s.reservations()) == 0 })
	r.want(first, "u", true)
	r.want(first, "y", true)
	s.wantReservations("web-1 by ")
	undo("u")
	undo("y")
	s.wantReservations("web-1 by ")
	r.want(second, "z", false)
}

// The reservation of the first budget is given up if the second one denies.
func TestSeveralBudgets(t *testing.T) {
	_, first, second := objects()
	s := newServer(t, aBudget("web", 2), aBudget("xeb", 1), first, second)
	r := s.replica().sees(s.budget("web"), s.budget("xeb"), first, second)
	r.want(first, "x", true)
	r.want(second, "y", false)
	s.eventually("budget without the reservation", func() bool { return slices.Equal(s.reservations(), []string{"web-1 by x"}) })
	if held := s.budget("xeb").Status.Reservations; len(held) != 1 || held[0].Pod != "web-1" {
		t.Errorf("the second budget has %+v", held)
	}
}

// A deleted budget holds nothing, even if the cache still has it.
func TestBudgetThatIsDeleted(t *testing.T) {
	s, r, first, second := started(t)
	r.want(first, "x", true)
	s.must(s.Delete(t.Context(), s.budget("web")))
	s.onUpdate(nil)
	r.want(second, "y", false) // as it was written last
	s.must(r.world.budgets.Delete(aBudget("web", 1)))
	r.want(second, "y", true)
	if answer, err := r.Admit(t.Context(), Request{Pod: second, Holder: "z"}); err != nil || answer.Decisions[0].Rule != disruption.RuleNotCovered {
		t.Errorf("%+v, %v", answer, err)
	}
}

// An edited budget counts as stored, even if the cache is behind.
func TestBudgetThatIsEdited(t *testing.T) {
	s, r, first, second := started(t)
	edited := s.budget("web")
	edited.Spec.MaxUnavailable.IntVal, edited.Generation = 0, 2
	s.must(s.Update(t.Context(), edited))
	r.want(first, "x", false)
	edited = s.budget("web")
	edited.Spec.MaxUnavailable.IntVal, edited.Generation = 2, 3
	s.must(s.Update(t.Context(), edited))
	r.sees(s.budget("web"))
	r.want(first, "x", true)
	r.want(second, "y", true)
}

// Requests that wait for a write share the next one.
func TestDecisionsShareWrites(t *testing.T) {
	const pods = 200
	budget := aBudget("web", pods/2)
	s := newServer(t, budget)
	r := s.replica().sees(s.budget("web"))
	for i := range pods {
		r.sees(aPod(i, 10+i))
	}
	first, rest := make(chan struct{}), make(chan struct{})
	s.onUpdate(func(write func() error) error {
		s.onUpdate(nil)
		close(first)
		<-rest
		return write()
	})
	var work sync.WaitGroup
	var admitted, denied atomic.Int32
	ask := func(i int) {
		work.Go(func() {
			switch answer, err := r.ask(aPod(i, 10+i), fmt.Sprint(i)); {
			case err != nil:
				t.Error(err)
			case answer == "allowed":
				admitted.Add(1)
			default:
				denied.Add(1)
			}
		})
	}
	ask(0)
	<-first
	for i := 1; i < pods; i++ {
		ask(i)
	}
	q := r.queue(types.NamespacedName{Namespace: shop, Name: "web"})
	s.eventually("queue of all", func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return len(q.waiting) == pods-1
	})
	close(rest)
	work.Wait()
	if admitted.Load() != pods/2 || denied.Load() != pods/2 || len(s.reservations()) != pods/2 || s.written() != 2 {
		t.Errorf("%d admitted, %d denied, %d reserved by %d writes", admitted.Load(), denied.Load(), len(s.reservations()), s.written())
	}
}

// Evictions that a PodDisruptionBudget would refuse after the admitted ones reserve nothing.
func TestNativeBudgetWithRoomForOne(t *testing.T) {
	_, first, second := objects()
	s := newServer(t, aBudget("web", 2), first, second)
	r := s.replica().sees(s.budget("web"), first, second, aNative("native"))
	r.want(first, "x", true)
	if answer, err := r.ask(second, "y"); err != nil || !strings.Contains(answer, "PodDisruptionBudget native") {
		t.Errorf("the answer is %q, %v", answer, err)
	}
	s.wantReservations("web-1 by x")
	// Once it counted the first one, the second one may go.
	counted := aNative("native")
	counted.Status.DisruptedPods = map[string]metav1.Time{"web-1": metav1.NewTime(start)}
	r.sees(counted)
	r.want(second, "y", true)
}

func aNative(name string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: shop, Name: name, Generation: 1},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, ObservedGeneration: 1, CurrentHealthy: 2, DesiredHealthy: 1},
	}
}

// The rules of the eviction API about PodDisruptionBudgets.
func TestNativeBudgets(t *testing.T) {
	unready := func(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }
	always := policyv1.AlwaysAllow
	for name, test := range map[string]struct {
		pod     func(*corev1.Pod)
		pdb     func(*policyv1.PodDisruptionBudget)
		refused string
	}{
		"none left":       {nil, func(p *policyv1.PodDisruptionBudget) { p.Status.DisruptionsAllowed = 0 }, "allows no eviction now"},
		"not counted yet": {nil, func(p *policyv1.PodDisruptionBudget) { p.Generation = 2 }, "just changed"},
		"not about the pod": {nil, func(p *policyv1.PodDisruptionBudget) {
			p.Status.DisruptionsAllowed, p.Spec.Selector.MatchLabels["app"] = 0, "db"
		}, ""},
		"unready, and kept":     {unready, func(p *policyv1.PodDisruptionBudget) { p.Status.DisruptionsAllowed = 0 }, ""},
		"unready, and not kept": {unready, func(p *policyv1.PodDisruptionBudget) { p.Status.DisruptionsAllowed, p.Status.CurrentHealthy = 0, 0 }, "allows no eviction now"},
		"unready, and allowed": {unready, func(p *policyv1.PodDisruptionBudget) {
			p.Status.DisruptionsAllowed, p.Status.CurrentHealthy, p.Spec.UnhealthyPodEvictionPolicy = 0, 0, &always
		}, ""},
		"pending":     {func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} }, func(p *policyv1.PodDisruptionBudget) { p.Status.DisruptionsAllowed = 0 }, ""},
		"terminating": {func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.NewTime(start)) }, func(p *policyv1.PodDisruptionBudget) { p.Status.DisruptionsAllowed = 0 }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			budget, first, second := objects()
			if test.pod != nil {
				test.pod(first)
			}
			s := newServer(t, budget, second)
			if first.DeletionTimestamp == nil {
				s.must(s.Create(t.Context(), withoutVersion(first)))
			}
			r := s.replica().sees(s.budget("web"), second)
			pdb := aNative("native")
			test.pdb(pdb)
			r.sees(first, pdb)
			answer, err := r.ask(first, "x")
			if err != nil || test.refused == "" && answer != "allowed" || !strings.Contains(answer, test.refused) {
				t.Errorf("the answer is %q, %v", answer, err)
			}
			if test.refused != "" && s.written() != 0 {
				t.Error("something is reserved")
			}
		})
	}
}

func TestTwoNativeBudgets(t *testing.T) {
	s, r, first, _ := started(t)
	r.sees(aNative("one"), aNative("two"))
	answer, err := r.Admit(t.Context(), Request{Pod: first, Holder: "x"})
	if err != nil || !answer.Unsupported || !strings.Contains(answer.Denial, "one, two") || s.written() != 0 {
		t.Errorf("%+v, %v", answer, err)
	}
}

// A new pod is not evicted before the cache has it. A gone pod needs no budget.
func TestPodThatTheCacheDoesNotHave(t *testing.T) {
	_, r, _, _ := started(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	var behind *behindError
	if answer, err := r.askIn(ctx, aPod(3, 30), "x"); !errors.As(err, &behind) {
		t.Errorf("a pod that is not seen yet: %q, %v", answer, err)
	}
	r.want(aPod(3, 9), "x", true)
}

// Hold extends the reservation of a pod that others delete later, whatever the budget allows.
func TestHold(t *testing.T) {
	s, r, first, second := started(t)
	r.want(first, "x", true)
	s.clock.SetTime(start.Add(time.Minute))
	for _, pod := range []*corev1.Pod{first, second} {
		s.must(r.Hold(t.Context(), pod, "y"))
	}
	s.wantReservations("web-1 by x", "web-2 by y")
	for _, held := range s.budget("web").Status.Reservations {
		if want := metav1.NewTime(start.Add(time.Minute + disruption.ReservationTime)); !held.Expires.Equal(&want) {
			t.Errorf("%s is held until %s", held.Pod, held.Expires)
		}
	}
}

// A ZoneShift of a zone closes the others and not its own, until it ends.
func TestShiftedZone(t *testing.T) {
	budget, first, second := objects()
	budget.Spec.MaxUnavailableDomains = new(int32(1))
	second.Spec.NodeName = "b"
	s := newServer(t, budget, first, second)
	r := s.replica().sees(s.budget("web"), first, second)
	out := &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: "out", CreationTimestamp: metav1.NewTime(start)}}
	out.Spec.From, out.Spec.For = v1alpha1.ShiftedDomain{Key: corev1.LabelTopologyZone, Value: "a"}, metav1.Duration{Duration: time.Hour}
	out.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue}}
	if err := r.world.shifts.Add(out); err != nil {
		t.Fatal(err)
	}
	if answer, err := r.ask(second, "x"); err != nil || !strings.Contains(answer, `zone "a" (ZoneShift out) is disturbed, and at most 1 zone may be.`) {
		t.Errorf("%q, %v", answer, err)
	}
	report, err := r.Refresh(t.Context(), client.ObjectKeyFromObject(budget), none)
	if err != nil || !report.Next.Equal(start.Add(time.Hour)) {
		t.Fatalf("%+v, %v", report, err)
	}
	if got := &report.Budget.Status; got.DisturbedDomains != 1 || got.Domains[0].Shift != "out" || got.Domains[0].Disturbed || got.Domains[1].Shift != "" || got.DisruptionsAllowed != 1 {
		t.Errorf("stored is %+v", got)
	}
	r.want(first, "x", true)
	s.clock.SetTime(start.Add(time.Hour))
	r.want(second, "x", true)
}

// Conditions are stored with the numbers, and nothing is written without a change.
func TestRefresh(t *testing.T) {
	_, r, first, _ := started(t)
	key := types.NamespacedName{Namespace: shop, Name: "web"}
	condition := metav1.Condition{Type: "Valid", Status: metav1.ConditionTrue, Reason: "Valid"}
	refresh := func(written bool) *Report {
		t.Helper()
		report, err := r.Refresh(t.Context(), key, func(report *Report) []metav1.Condition {
			if report.Measures.Expected != 2 || len(report.World.Pods) != 2 {
				t.Errorf("known is %+v", report)
			}
			return []metav1.Condition{condition}
		})
		if err != nil || report.Written != written {
			t.Fatalf("%+v, %v", report, err)
		}
		return report
	}
	report := refresh(true)
	if got := report.Budget.Status; got.DisruptionsAllowed != 1 || len(got.Conditions) != 1 || !report.Next.IsZero() {
		t.Errorf("stored is %+v, until %s", got, report.Next)
	}
	refresh(false)
	condition.Status = metav1.ConditionFalse
	refresh(true)
	r.want(first, "x", true)
	if report := refresh(false); !report.Next.Equal(start.Add(disruption.ReservationTime)) {
		t.Errorf("the next change is at %s", report.Next)
	}
	if report, err := r.Refresh(t.Context(), types.NamespacedName{Namespace: shop, Name: "other"}, none); report != nil || err != nil {
		t.Errorf("a missing budget: %+v, %v", report, err)
	}
}

// A pod that is down in the cache may be ready now, and others may count on it. So it is read live before it is evicted as down. If it
// is ready, the cache must catch up first.
func TestPodThatIsReadyByNow(t *testing.T) {
	down := map[string]func(*corev1.Pod){
		"pending": func(p *corev1.Pod) { p.Status.Phase, p.Status.Conditions = corev1.PodPending, nil },
		"unready": func(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse },
	}
	for name, change := range down {
		for _, ready := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, and ready by now: %t", name, ready), func(t *testing.T) {
				budget, first, second := objects()
				budget.Spec.UnhealthyPodEvictionPolicy = new(policyv1.AlwaysAllow)
				budget.Spec.MaxUnavailable.IntVal = 0
				stored := first.DeepCopy()
				if !ready {
					change(stored)
				}
				s := newServer(t, budget, stored, second)
				change(first)
				r := s.replica().sees(s.budget("web"), first, second)
				answer, err := r.ask(first, "x")
				if ready && !errors.Is(err, errReadyByNow) || !ready && answer != "allowed" {
					t.Fatalf("the answer is %q, %v", answer, err)
				}
				if ready {
					s.wantReservations()
					r.sees(stored)
					r.want(stored, "x", false)
				} else {
					s.wantReservations("web-1 by x")
				}
			})
		}
	}
}

// Break-glass admits evictions even if the budget cannot be counted.
func TestBrokenGlassWithoutNumbers(t *testing.T) {
	budget, first, second := objects()
	budget.Annotations = map[string]string{v1alpha1.AnnotationBreakGlass: start.Add(time.Hour).Format(time.RFC3339) + " the zone burns"}
	first.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Cache", Name: "db", UID: "u", Controller: new(true)}}
	s := newServer(t, budget, first, second)
	r := s.replica().sees(s.budget("web"), first, second)
	r.world.scales.client = &scaled{get: func(*autoscalingv1.Scale) error { return errLost }}
	for _, pod := range []*corev1.Pod{first, second} {
		answer, err := r.Admit(t.Context(), Request{Pod: pod, Holder: "x"})
		if err != nil || !answer.Allowed() || len(answer.Warnings) != 1 || !strings.Contains(answer.Warnings[0], "the zone burns") {
			t.Errorf("%+v, %v", answer, err)
		}
	}
	if s.written() != 0 {
		t.Errorf("%d writes", s.written())
	}
	s.clock.SetTime(start.Add(time.Hour))
	if answer, err := r.ask(first, "z"); !errors.Is(err, errLost) {
		t.Errorf("after its end: %q, %v", answer, err)
	}
}

// labelled adds a label to a pod.
func labelled(pod *corev1.Pod, key, value string) *corev1.Pod {
	pod.Labels[key] = value
	return pod
}

// A refusal of the second budget takes no room of the first one, and writes nothing.
func TestRefusalOfOneOfSeveralBudgets(t *testing.T) {
	shut := aBudget("xeb", 0)
	shut.Spec.Selector.MatchLabels = map[string]string{"part": "shut"}
	s := newServer(t, aBudget("web", 1), shut)
	free := aPod(0, 10)
	r := s.replica().sees(s.budget("web"), s.budget("xeb"), free)
	var refused []*corev1.Pod
	for i := 1; i <= 50; i++ {
		refused = append(refused, labelled(aPod(i, 10+i), "part", "shut"))
		r.sees(refused[i-1])
	}
	var work sync.WaitGroup
	for _, pod := range refused {
		work.Go(func() {
			for range 5 {
				if answer, err := r.ask(pod, "x"); err != nil || answer == "allowed" {
					t.Errorf("%q, %v", answer, err)
				}
			}
		})
	}
	r.want(free, "y", true)
	work.Wait()
	if wrote := s.written(); wrote != 1 {
		t.Errorf("%d writes, want that of the one that is admitted", wrote)
	}
}

// If one of the budgets of an eviction stores nothing, the live budgets decide, not an old cache.
func TestBudgetsThatTheCacheDoesNotKnow(t *testing.T) {
	tighten := func(s *server) {
		edited := s.budget("web")
		edited.Spec.MaxUnavailable.IntVal, edited.Generation = 0, 2
		edited.Annotations = nil
		s.must(s.Update(s.Context(), edited))
	}
	other := func(b *v1alpha1.TopologyDisruptionBudget) { b.Spec.Selector.MatchLabels["app"] = "other" }
	glass := func(budget *v1alpha1.TopologyDisruptionBudget) {
		budget.Annotations = map[string]string{v1alpha1.AnnotationBreakGlass: start.Add(time.Hour).Format(time.RFC3339) + " fire"}
	}
	for name, test := range map[string]struct {
		before func(*v1alpha1.TopologyDisruptionBudget) // nil if there was none
		beside bool                                     // another budget, that is known
	}{
		"a new budget":                                {},
		"a budget that covered the pod not":           {before: other},
		"broken glass that was mended":                {before: glass},
		"broken glass that was mended beside another": {before: glass, beside: true},
	} {
		t.Run(name, func(t *testing.T) {
			budget, first, second := objects()
			s := newServer(t, first, second)
			r := s.replica().sees(first, second)
			if test.beside {
				s.must(s.Create(t.Context(), unversioned(aBudget("all", 2))))
				r.sees(s.budget("all"))
			}
			if test.before != nil {
				test.before(budget)
			}
			s.must(s.Create(t.Context(), unversioned(budget)))
			if test.before != nil {
				r.sees(s.budget("web"))
			}
			stored := s.budget("web")
			stored.Spec.Selector.MatchLabels["app"] = "web"
			s.must(s.Update(t.Context(), stored))
			tighten(s)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			var behind *behindError
			if answer, err := r.askIn(ctx, first, "x"); !errors.As(err, &behind) {
				t.Errorf("with an old cache the answer is %q, %v", answer, err)
			}
			go func() {
				time.Sleep(20 * time.Millisecond)
				r.sees(s.budget("web"))
			}()
			r.want(first, "y", false)
			if test.beside {
				s.eventually("other budget to have nothing reserved", func() bool { return len(s.budget("all").Status.Reservations) == 0 })
			}
		})
	}
}

func unversioned(budget *v1alpha1.TopologyDisruptionBudget) *v1alpha1.TopologyDisruptionBudget {
	budget.ResourceVersion = ""
	return budget
}

// A repeated eviction follows the stored budget. Its write proves that, without a list of all budgets.
func TestEvictionThatIsAskedForAgain(t *testing.T) {
	s, r, first, _ := started(t)
	r.lists.client = s.withoutLists()
	for _, holder := range []string{"x", "y", "z"} {
		r.want(first, holder, true)
	}
	edited := s.budget("web")
	edited.Spec.MaxUnavailable.IntVal, edited.Generation = 0, 2
	s.must(s.Update(t.Context(), edited))
	r.want(first, "again", false)
}

// withoutLists is a client that fails the test on a list.
func (s *server) withoutLists() client.Client {
	return interceptor.NewClient(s.WithWatch, interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			s.Error("budgets are listed")
			return nil
		},
	})
}

// No budget protects a terminating or gone pod, so none is read for it.
func TestEvictionsOfPodsThatHaveEnded(t *testing.T) {
	for name, end := range map[string]func(*replica, *corev1.Pod){
		"terminating": func(r *replica, pod *corev1.Pod) { r.sees(terminating(pod, 20)) },
		"gone":        func(r *replica, pod *corev1.Pod) { r.misses(pod, 20) },
		"finished, and of no budget": func(r *replica, pod *corev1.Pod) {
			pod.Labels, pod.ResourceVersion, pod.Status.Phase = nil, "20", corev1.PodSucceeded
			r.sees(pod)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, r, first, _ := started(t)
			end(r, first)
			r.lists.client = s.withoutLists()
			r.want(first, "x", true)
			s.wantReservations()
		})
	}
}

// Waiting evictions share a read of the API server.
func TestReadsOfBudgetsAreShared(t *testing.T) {
	var reads atomic.Int32
	block := make(chan struct{})
	l := &lists{client: interceptor.NewClient(newServer(t).WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if reads.Add(1) == 1 {
				<-block
			}
			return c.List(ctx, list, options...)
		},
	})}
	var work sync.WaitGroup
	ask := func() {
		work.Go(func() {
			if _, err := l.of(t.Context(), shop); err != nil {
				t.Error(err)
			}
		})
	}
	ask()
	for reads.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range 100 {
		ask()
	}
	for waiting := false; !waiting; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		waiting = l.next[shop] != nil
		l.mu.Unlock()
	}
	close(block)
	work.Wait()
	if n := reads.Load(); n < 2 || n > 4 {
		t.Errorf("%d reads for 101 requests", n)
	}
}

// A write that arrives after its undo is undone as soon as it is seen.
func TestWriteThatComesAfterItsUndo(t *testing.T) {
	s, r, first, second := started(t)
	var late func() error
	ctx, cancel := context.WithCancel(t.Context())
	s.onUpdate(func(write func() error) error {
		late = write
		cancel()
		return errLost
	})
	if answer, err := r.askIn(ctx, first, "x"); err == nil {
		t.Fatalf("the answer is %q", answer)
	}
	s.onUpdate(nil)
	r.want(second, "y", true) // which has the budget be another one
	s.must(r.Undo(t.Context(), client.ObjectKeyFromObject(second), second.UID, "y"))
	stored := s.budget("web")
	stored.Status.Reservations = []v1alpha1.Reservation{{UID: first.UID, Pod: first.Name, Holder: "x", Expires: metav1.NewTime(start.Add(disruption.ReservationTime))}}
	s.must(s.Status().Update(t.Context(), stored))
	if late == nil {
		t.Fatal("nothing was written")
	}
	r.sees(s.budget("web"))
	r.world.budgetHandler().OnUpdate(aBudget("web", 1), s.budget("web"))
	s.eventually("budget without the reservation", func() bool { return len(s.reservations()) == 0 })
}
