package controller

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/requester"
	"vicinity.dev/vicinity/internal/disruption/reservation"
	"vicinity.dev/vicinity/internal/rollout"
)

// world is an API server, an evictor, budgets and a reconciler. The StatefulSet db has four pods of an old revision, two in each of two
// zones.
type world struct {
	*testing.T
	client  client.WithWatch
	clock   *clocktesting.FakePassiveClock
	r       *reconciler
	version int
	mu      sync.Mutex // guards the fields that the evictor writes
	// outcome is the evictor's answer for pods that are not denied. asked has the pods of its requests.
	outcome requester.State
	denied  map[string]bool
	asked   []string
	blocked map[string]bool // pods that budgets block
	// withdrawn has the pods of withdrawn requests. calls counts requests that would reach a real API server.
	withdrawn []string
	// reserved and held have pods of Deployments, for which the reconciler asks the budgets itself.
	reserved, held []string
	calls          atomic.Int64
	cached         []any // the pods of the cache, nil for those of the API server
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

func newWorld(t *testing.T, kind string, strategy appsv1.StatefulSetUpdateStrategyType) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakePassiveClock(time.Unix(100000, 0)), version: 10, outcome: requester.Evicted, denied: map[string]bool{}, blocked: map[string]bool{}}
	replicas := int32(4)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "set", Generation: 1},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, PodManagementPolicy: appsv1.ParallelPodManagement, UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: strategy},
		},
		Status: appsv1.StatefulSetStatus{ObservedGeneration: 1, UpdateRevision: "db-2"},
	}
	objects := []client.Object{set, &v1alpha1.DomainRollout{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "1", Generation: 1, CreationTimestamp: metav1.Unix(1000, 0)},
		Spec:       v1alpha1.DomainRolloutSpec{TargetRef: v1alpha1.RolloutTarget{Kind: kind, Name: "db"}, TopologyKey: corev1.LabelTopologyZone},
	}}
	for i, zone := range []string{"a", "a", "b", "b"} {
		name := strconv.Itoa(i)
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n" + name, Labels: map[string]string{corev1.LabelTopologyZone: zone}}},
			&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shop", Name: "db-" + name, UID: types.UID("u" + name), Labels: map[string]string{appsv1.ControllerRevisionHashLabelKey: "db-1"},
					OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("StatefulSet"))},
				},
				Spec:   corev1.PodSpec{NodeName: "n" + name},
				Status: corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Unix(1000, 0)}}},
			})
	}
	w.client = fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).WithStatusSubresource(&v1alpha1.DomainRollout{}).
		WithIndex(&corev1.Node{}, metav1.ObjectNameField, func(o client.Object) []string { return []string{o.GetName()} }).Build()
	w.restart()
	return w
}

// restart replaces the reconciler by a new one, which knows only stored state.
func (w *world) restart() {
	count := interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, options ...client.SubResourceUpdateOption) error {
			w.calls.Add(1)
			return c.SubResource(sub).Update(ctx, o, options...)
		},
		SubResourceGet: func(_ context.Context, _ client.Client, _ string, o, scale client.Object, _ ...client.SubResourceGetOption) error {
			w.calls.Add(1)
			return readScale(o, scale)
		},
	}
	live := interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			w.calls.Add(1)
			return c.Get(ctx, key, o, options...)
		},
		List: func(ctx context.Context, c client.WithWatch, o client.ObjectList, options ...client.ListOption) error {
			w.calls.Add(1)
			return c.List(ctx, o, options...)
		},
	}
	w.r = newReconciler(reconciler{
		client: interceptor.NewClient(w.client, count), live: interceptor.NewClient(w.client, live), pods: w, evictor: w, recorder: events.NewFakeRecorder(100), clock: w.clock, options: Options{Workers: 1, Budgets: w},
	})
}

// ByIndex implements podStore.
func (w *world) ByIndex(string, string) (found []any, err error) {
	if w.cached != nil {
		return w.cached, nil
	}
	var list corev1.PodList
	err = w.client.List(w.Context(), &list)
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, err
}

// LastStoreSyncResourceVersion implements podStore.
func (w *world) LastStoreSyncResourceVersion() string { return strconv.Itoa(w.version) }

// Request implements evictor.
func (w *world) Request(_ context.Context, pod *corev1.Pod, _, _ string) (requester.Outcome, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked = append(w.asked, pod.Name)
	w.calls.Add(1)
	if !slices.ContainsFunc(w.rollout("db").Status.Replacements, func(e v1alpha1.RolloutReplacement) bool { return e.UID == pod.UID }) {
		w.Errorf("the eviction of %s is requested before it is stored", pod.Name)
	}
	if w.denied[pod.Name] {
		return requester.Outcome{State: requester.Denied, Causes: []string{"the budget is used up"}}, nil
	}
	return requester.Outcome{State: w.outcome}, nil
}

// Withdraw implements evictor.
func (w *world) Withdraw(_ context.Context, pod *corev1.Pod, _ string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.withdrawn = append(w.withdrawn, pod.Name)
	return nil
}

// Try implements evictor.
func (w *world) Try(_ context.Context, pod *corev1.Pod, _ string) (requester.Outcome, error) {
	if w.denied[pod.Name] {
		return requester.Outcome{State: requester.Denied, Causes: []string{"the budget is used up"}}, nil
	}
	return requester.Outcome{State: w.outcome}, nil
}

// Hold implements budgets.
func (w *world) Hold(_ context.Context, pod *corev1.Pod, _ string) error {
	w.held = append(w.held, pod.Name)
	return nil
}

// Admit implements budgets.
func (w *world) Admit(_ context.Context, request reservation.Request) (reservation.Answer, error) {
	if !request.DryRun {
		w.reserved = append(w.reserved, request.Pod.Name)
	}
	if w.blocked[request.Pod.Name] {
		return reservation.Answer{Denial: "none may go"}, nil
	}
	return reservation.Answer{}, nil
}

// sync moves the clock and syncs a DomainRollout.
func (w *world) sync(name string, after time.Duration) reconcile.Result {
	w.Helper()
	w.clock.SetTime(w.clock.Now().Add(after))
	result, err := w.r.Reconcile(w.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Namespace: "shop", Name: name}})
	if err != nil {
		w.Fatal(err)
	}
	return result
}

// patch changes the DomainRollout db.
func (w *world) patch(change func(*v1alpha1.DomainRollout)) {
	w.Helper()
	d := w.rollout("db")
	change(d)
	if err := w.client.Update(w.Context(), d); err != nil {
		w.Fatal(err)
	}
}

// changeSet changes the StatefulSet.
func (w *world) changeSet(change func(*appsv1.StatefulSet)) {
	w.Helper()
	set := &appsv1.StatefulSet{}
	if err := w.client.Get(w.Context(), types.NamespacedName{Namespace: "shop", Name: "db"}, set); err != nil {
		w.Fatal(err)
	}
	change(set)
	status := set.Status // the answer to the first write lacks it
	err := w.client.Update(w.Context(), set)
	set.Status = status
	if err := errors.Join(err, w.client.Status().Update(w.Context(), set)); err != nil {
		w.Fatal(err)
	}
}

func (w *world) rollout(name string) *v1alpha1.DomainRollout {
	w.Helper()
	d := &v1alpha1.DomainRollout{}
	if err := w.client.Get(w.Context(), types.NamespacedName{Namespace: "shop", Name: name}, d); err != nil {
		w.Fatal(err)
	}
	return d
}

// If a pod is denied, the rollout evicts another pod of its domain that budgets would admit.
func TestDeniedPodYields(t *testing.T) {
	w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
	w.denied["db-1"], w.blocked["db-1"] = true, true
	w.sync("db", 2*unknownTime) // denials count by then
	w.sync("db", 100*time.Millisecond)
	if want := []string{"db-1", "db-0"}; !slices.Equal(w.asked, want) {
		t.Errorf("evictions are requested for %v, want %v", w.asked, want)
	}
	if d := w.rollout("db"); len(d.Status.Replacements) != 1 || d.Status.Replacements[0].Pod != "db-0" {
		t.Errorf("replacements are %+v", d.Status.Replacements)
	}
}

// While budgets admit no pod, the rollout requests no eviction. It does once they would admit one.
func TestDeniedDomainWaits(t *testing.T) {
	w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
	for i := range 2 {
		name := fmt.Sprintf("db-%d", i)
		w.denied[name], w.blocked[name] = true, true
	}
	w.sync("db", 2*unknownTime)
	for range 5 {
		w.sync("db", 100*time.Millisecond)
	}
	if !slices.Equal(w.asked, []string{"db-1"}) {
		t.Errorf("evictions are requested for %v", w.asked)
	}
	if w.rollout("db").Status.WaitingFor == "" {
		t.Error("the status has no wait")
	}
	w.denied["db-0"], w.blocked["db-0"] = false, false
	w.sync("db", 100*time.Millisecond)
	if !slices.Equal(w.asked, []string{"db-1", "db-0"}) {
		t.Errorf("then evictions are requested for %v", w.asked)
	}
}

// A rollout that is denied for ten minutes makes few requests, however often it is woken. The cause of the denial does not matter.
func TestDenialsAreCheap(t *testing.T) {
	for name, known := range map[string]bool{"by a budget that is known": true, "by another webhook": false} {
		w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
		w.patch(func(d *v1alpha1.DomainRollout) { d.Spec.MaxUnavailable = new(intstr.FromInt32(2)) })
		for i := range 4 {
			w.denied[fmt.Sprintf("db-%d", i)], w.blocked[fmt.Sprintf("db-%d", i)] = true, known
		}
		w.clock.SetTime(w.clock.Now().Add(2 * unknownTime))
		for range 10 * 60 * 2 {
			w.sync("db", 500*time.Millisecond)
		}
		// It asks after 1, 2, 4, 8 and 16 seconds, and then every 20 seconds or later. Each attempt costs an eviction, a read of the
		// pod, and two writes of the status.
		if most := 5 + 600/20; len(w.asked) < 20 || len(w.asked) > most || w.calls.Load() > int64(4*most+5) {
			t.Errorf("denied %s, it requests %d evictions and makes %d calls", name, len(w.asked), w.calls.Load())
		}
		if !slices.Contains(w.asked, "db-0") || !slices.Contains(w.asked, "db-1") {
			t.Errorf("denied %s, it requests the eviction of one pod only", name)
		}
	}
}

// If a pod stays, its eviction is requested again, even if the rollout is woken in between.
func TestAsksAgain(t *testing.T) {
	w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
	w.sync("db", time.Second)
	result := w.sync("db", time.Second)
	if result.RequeueAfter == 0 || result.RequeueAfter > askTime {
		t.Errorf("it requeues after %v", result.RequeueAfter)
	}
	w.sync("db", result.RequeueAfter)
	if !slices.Equal(w.asked, []string{"db-1", "db-1"}) {
		t.Errorf("evictions are requested for %v", w.asked)
	}
}

// The EvictionRequests of a paused, invalid or deleted rollout are withdrawn once.
func TestRequestsAreWithdrawn(t *testing.T) {
	for name, change := range map[string]func(w *world){
		"paused": func(w *world) { w.patch(func(d *v1alpha1.DomainRollout) { d.Spec.Paused = true }) },
		"invalid": func(w *world) {
			w.changeSet(func(set *appsv1.StatefulSet) {
				set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
			})
		},
		"deleted": func(w *world) {
			if err := w.client.Delete(w.Context(), w.rollout("db")); err != nil {
				w.Fatal(err)
			}
		},
	} {
		w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
		pod := &corev1.Pod{}
		if err := w.client.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "db-1"}, pod); err != nil {
			t.Fatal(err)
		}
		pod.Spec.EvictionResponders = []corev1.EvictionResponder{{Name: "example.com/backup"}}
		if err := w.client.Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		w.outcome = requester.Waiting
		w.sync("db", time.Second)
		change(w)
		for range 60 {
			w.sync("db", time.Second)
		}
		if len(w.withdrawn) == 0 || len(w.withdrawn) > 4 || w.withdrawn[0] != "db-1" || !slices.Equal(w.asked, []string{"db-1"}) {
			t.Errorf("%s: evictions of %v are requested, and of %v withdrawn", name, w.asked, w.withdrawn)
		}
	}
}

// overloads has the overload that plans expect, by domain.
type overloads map[string]float64

// Overload implements plans.
func (o overloads) Overload(_ context.Context, _ string, sets map[string][]string) (map[string]float64, error) {
	if !slices.Equal(sets["a"], []string{"db-0", "db-1"}) || len(sets) > 1 {
		return nil, fmt.Errorf("the overload is asked for %v", sets)
	}
	return o, nil
}

// If a node no longer matches the DaemonSet, the rollout does not wait for a pod there.
func TestNodesThatCeaseToMatch(t *testing.T) {
	w := newWorld(t, v1alpha1.KindDaemonSet, appsv1.OnDeleteStatefulSetStrategyType)
	daemons := &appsv1.DaemonSet{Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
		NodeSelector: map[string]string{corev1.LabelTopologyZone: "a"},
		Tolerations:  []corev1.Toleration{{Key: "special", Operator: corev1.TolerationOpExists}},
	}}}}
	taint := func(name, key string, effect corev1.TaintEffect) {
		node := &corev1.Node{}
		if err := w.client.Get(t.Context(), client.ObjectKey{Name: name}, node); err != nil {
			t.Fatal(err)
		}
		node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: effect})
		if err := w.client.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	taint("n0", "special", corev1.TaintEffectNoSchedule)
	taint("n0", "maybe", corev1.TaintEffectPreferNoSchedule)
	taint("n0", corev1.TaintNodeUnschedulable, corev1.TaintEffectNoSchedule)
	taint("n1", "other", corev1.TaintEffectNoExecute)
	now := w.clock.Now()
	s := &rollout.State{
		Pods: []rollout.Pod{{Name: "db-3", Slot: "n3"}},
		Memory: rollout.Memory{Replacements: []v1alpha1.RolloutReplacement{
			{Slot: "n0", Stage: rollout.Gone, Since: metav1.NewTime(now.Add(-time.Hour))},
			{Slot: "n1", Stage: rollout.Gone, Since: metav1.NewTime(now.Add(-time.Hour))},                 // its taint is not tolerated
			{Slot: "n2", Stage: rollout.Gone, Since: metav1.NewTime(now.Add(-time.Hour))},                 // in another zone
			{Slot: "n2", Stage: rollout.Gone, Since: metav1.NewTime(now.Add(-overdueTime + time.Second))}, // not overdue yet
			{Slot: "n3", Stage: rollout.Gone, Since: metav1.NewTime(now.Add(-time.Hour))},                 // has a pod
			{Slot: "n4", Stage: rollout.Gone, Since: metav1.NewTime(now.Add(-time.Hour))},                 // does not exist
			{Slot: "n2", Stage: rollout.Evicting, Since: metav1.NewTime(now.Add(-time.Hour))},
		}},
	}
	left, err := w.r.withoutLost(t.Context(), daemons, s)
	if want := slices.Delete(slices.Clone(s.Memory.Replacements), 1, 3); err != nil || !slices.Equal(left, want) {
		t.Errorf("%+v, %v, want %+v", left, err, want)
	}
}

// Prometheus is asked only if the answer can matter.
func TestWhenPrometheusIsAsked(t *testing.T) {
	failure := &v1alpha1.RolloutFailure{Time: metav1.Unix(1000, 0)}
	failed := func(approved string, before time.Time) func(*rollout.State) {
		return func(s *rollout.State) {
			s.Memory.Phase, s.Memory.Failure = v1alpha1.PhaseFailed, failure
			s.Spec.Approved = rollout.Approved{Revision: approved, FailuresBefore: before}
		}
	}
	for name, test := range map[string]struct {
		change func(*rollout.State)
		want   bool
	}{
		"progressing":                 {func(*rollout.State) {}, true},
		"a domain waits for approval": {func(s *rollout.State) { s.Memory.Phase = v1alpha1.PhasePaused }, true},
		"complete":                    {func(s *rollout.State) { s.Memory.Phase = v1alpha1.PhaseComplete }, false},
		"another revision":            {func(s *rollout.State) { s.Memory.Phase, s.Revision = v1alpha1.PhaseComplete, "3" }, true},
		"paused":                      {func(s *rollout.State) { s.Spec.Paused = true }, false},
		"paused, another revision":    {func(s *rollout.State) { s.Spec.Paused, s.Revision = true, "3" }, false},
		"stopped":                     {func(s *rollout.State) { s.Spec.Stop.Revision = "2" }, false},
		"stopped no more":             {func(s *rollout.State) { s.Memory.Phase = v1alpha1.PhaseAborted }, true},
		"rolling back":                {func(s *rollout.State) { s.Memory.Phase, s.Memory.RollingBack = v1alpha1.PhaseRollingBack, true }, false},
		"failed":                      {failed("", time.Time{}), false},
		"failed and approved":         {failed("2", failure.Time.Time), true},
		"failed after the approval":   {failed("2", failure.Time.Add(-time.Second)), false},
		"another revision approved":   {failed("1", failure.Time.Time), false},
	} {
		s := &rollout.State{Revision: "2", Memory: rollout.Memory{Revision: "2", Phase: v1alpha1.PhaseProgressing}}
		test.change(s)
		if got := isAsked(s); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// A wave does not begin if plans expect too much overload. Only the domains of that wave are computed.
func TestMaxOverload(t *testing.T) {
	for name, test := range map[string]struct {
		plans overloads
		says  string
		asks  bool
	}{
		"within the limit": {plans: overloads{"a": 0.4}, asks: true},
		"too much":         {plans: overloads{"a": 0.41}, says: "an overload of 41%"},
		"no endpoint":      {plans: overloads{"a": math.Inf(1)}, says: "would have no endpoint"},
		"unknown":          {plans: overloads{"b": 0}, says: "cannot be computed"},
	} {
		w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
		w.patch(func(d *v1alpha1.DomainRollout) { d.Spec.HealthGate = &v1alpha1.HealthGate{MaxOverload: "40%"} })
		w.r.options.Plans = test.plans
		result := w.sync("db", time.Second)
		d := w.rollout("db")
		if (len(w.asked) > 0) != test.asks || !strings.Contains(d.Status.WaitingFor, test.says) || result.RequeueAfter == 0 {
			t.Errorf("%s: it evicts %v, waits for %q and requeues after %s", name, w.asked, d.Status.WaitingFor, result.RequeueAfter)
		}
	}
}

// delays is a queue that notes delayed requests.
type delays struct {
	queue
	requests []reconcile.Request
}

func (d *delays) AddAfter(request reconcile.Request, _ time.Duration) {
	d.requests = append(d.requests, request)
}

// A ZoneShift of a node with a pod holds the next wave, and its deletion wakes the rollout. Another ZoneShift does not.
func TestShiftedZoneHoldsWaves(t *testing.T) {
	w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
	shifted := func(name, value string) *v1alpha1.ZoneShift {
		zs := &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(w.clock.Now())}, Spec: v1alpha1.ZoneShiftSpec{
			From: v1alpha1.ShiftedDomain{Key: corev1.LabelTopologyZone, Value: value}, For: metav1.Duration{Duration: time.Hour},
		}}
		zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue}}
		if err := w.client.Create(t.Context(), zs); err != nil {
			t.Fatal(err)
		}
		return zs
	}
	shifted("other", "c")
	out := shifted("out", "b")
	result := w.sync("db", time.Second)
	d := w.rollout("db")
	progressing := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionProgressing)
	if want := `ZoneShift out takes zone "b" out of service`; len(w.asked) > 0 || !strings.Contains(d.Status.WaitingFor, want) || !strings.Contains(progressing.Message, want) {
		t.Errorf("it evicts %v, waits for %q and says %q", w.asked, d.Status.WaitingFor, progressing.Message)
	}
	if result.RequeueAfter == 0 || result.RequeueAfter > time.Hour {
		t.Errorf("it requeues after %s", result.RequeueAfter)
	}
	if err := w.client.Delete(t.Context(), out); err != nil {
		t.Fatal(err)
	}
	q := &delays{}
	w.r.nodeHandler(nil).Delete(t.Context(), event.DeleteEvent{Object: out}, q)
	if len(q.requests) != 1 {
		t.Errorf("the deletion wakes %v", q.requests)
	}
	if w.sync("db", time.Second); len(w.asked) == 0 {
		t.Error("after the deletion it evicts nothing")
	}
}

// After a restart, the previous process may still request the eviction: a denial proves nothing.
func TestDenialAfterRestartProvesNothing(t *testing.T) {
	w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
	w.denied["db-1"], w.blocked["db-1"] = true, true
	w.sync("db", time.Second)
	w.sync("db", 100*time.Millisecond)
	if d := w.rollout("db"); len(d.Status.Replacements) != 1 || d.Status.Replacements[0].Pod != "db-1" || slices.Contains(w.asked, "db-0") {
		t.Errorf("replacements are %+v, and evictions are requested for %v", d.Status.Replacements, w.asked)
	}
}

// If a revision comes back while a pod of it is taken down, a denied pod stays.
func TestDeniedPodOfTheRevisionThatComesBack(t *testing.T) {
	w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
	w.denied["db-1"], w.blocked["db-1"] = true, true
	w.sync("db", 2*unknownTime)
	w.changeSet(func(set *appsv1.StatefulSet) { set.Status.UpdateRevision = "db-1" })
	for range 60 {
		w.sync("db", 500*time.Millisecond)
	}
	if d := w.rollout("db"); d.Status.Phase != v1alpha1.PhaseComplete || len(w.asked) > 1 {
		t.Errorf("the phase is %s after %d requests for evictions; it waits for %q", d.Status.Phase, len(w.asked), d.Status.WaitingFor)
	}
}

// While the cache of pods is older than the status, the controller does nothing.
func TestWaitsForPods(t *testing.T) {
	w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
	w.sync("db", time.Second)
	if got := w.rollout("db").Status.PodsObserved; got != "10" {
		t.Fatalf("the version of pods is %q", got)
	}
	w.restart()
	d, asked := w.rollout("db"), len(w.asked)
	d.Status.PodsObserved = "11"
	if err := w.client.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	live := fake.NewClientBuilder().WithScheme(testScheme(t)).Build()
	w.r.live = listVersion{live, "20"}
	if after := w.sync("db", 2*askTime); len(w.asked) != asked || after.RequeueAfter == 0 {
		t.Errorf("with an old cache it evicts %v, and requeues after %v", w.asked[asked:], after)
	}
	w.version = 11
	if w.sync("db", askTime); len(w.asked) == asked {
		t.Error("with a new cache it evicts nothing")
	}
	// A version that a person has edited does not stop it either.
	w.restart()
	d, asked = w.rollout("db"), len(w.asked)
	d.Status.PodsObserved = "none"
	if err := w.client.Status().Update(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if w.sync("db", 2*askTime); len(w.asked) == asked {
		t.Error("with an invalid version it evicts nothing")
	}
}

// The status reports if the revision of a StatefulSet stays unknown, as when a quota refuses its record.
func TestReportsUnobservedChange(t *testing.T) {
	w := newWorld(t, v1alpha1.KindStatefulSet, appsv1.OnDeleteStatefulSetStrategyType)
	w.changeSet(func(set *appsv1.StatefulSet) { set.Generation = 2 })
	if w.sync("db", time.Second); w.waitingFor() != "" {
		t.Errorf("it waits for %q at once", w.waitingFor())
	}
	if w.sync("db", shortTime); !strings.Contains(w.waitingFor(), "StatefulSet db to observe its last change") || len(w.asked) > 0 {
		t.Errorf("it waits for %q, and evicts %v", w.waitingFor(), w.asked)
	}
	w.changeSet(func(set *appsv1.StatefulSet) { set.Status.ObservedGeneration = 2 })
	if w.sync("db", shortTime); strings.Contains(w.waitingFor(), "last change") || len(w.asked) == 0 {
		t.Errorf("it waits for %q, and evicts %v", w.waitingFor(), w.asked)
	}
}

// listVersion is a reader that sets the version of its lists.
type listVersion struct {
	client.Reader
	version string
}

func (l listVersion) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	err := l.Reader.List(ctx, list, options...)
	list.SetResourceVersion(l.version)
	return err
}

func TestTargetsThatCannotBeUpdated(t *testing.T) {
	for name, test := range map[string]struct {
		kind, target string
		strategy     appsv1.StatefulSetUpdateStrategyType
		second       bool
		order        []string
		replicas     int32
		reason       string
		goesOn       bool
	}{
		"one that can be":  {reason: reasonValid, goesOn: true},
		"no Deployment":    {kind: v1alpha1.KindDeployment, reason: reasonNotFound},
		"none":             {target: "web", reason: reasonNotFound},
		"rolling update":   {strategy: appsv1.RollingUpdateStatefulSetStrategyType, reason: reasonNotOnDelete},
		"too many pods":    {replicas: 2_000_000_000, reason: reasonTooLarge},
		"a second rollout": {second: true, reason: reasonTaken},
		"unknown domain":   {order: []string{"a", "z"}, reason: reasonNoDomain, goesOn: true},
	} {
		if test.kind == "" {
			test.kind = v1alpha1.KindStatefulSet
		}
		if test.strategy == "" {
			test.strategy = appsv1.OnDeleteStatefulSetStrategyType
		}
		w := newWorld(t, test.kind, test.strategy)
		d := w.rollout("db")
		if test.second {
			d.ObjectMeta = metav1.ObjectMeta{Namespace: "shop", Name: "again", UID: "2", CreationTimestamp: metav1.Unix(2000, 0)}
			if err := w.client.Create(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
		d.Spec.Order = test.order
		if test.replicas > 0 {
			w.changeSet(func(set *appsv1.StatefulSet) { set.Spec.Replicas = &test.replicas })
		}
		if test.target != "" {
			d.Spec.TargetRef.Name = test.target
		}
		if err := w.client.Update(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		w.sync(d.Name, time.Second)
		got := w.rollout(d.Name)
		valid := meta.FindStatusCondition(got.Status.Conditions, v1alpha1.ConditionValid)
		if valid == nil || valid.Reason != test.reason || (got.Status.Phase != v1alpha1.PhaseInvalid) != test.goesOn || (len(w.asked) > 0) != test.goesOn {
			t.Errorf("%s: phase %s, %+v, and it asks for %v", name, got.Status.Phase, valid, w.asked)
		}
	}
}
