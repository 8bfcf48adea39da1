package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/shift"
	"vicinity.dev/vicinity/internal/topology"
)

// aShift takes zone a out of service for 72 hours.
func aShift(now time.Time, ramp time.Duration) *v1alpha1.ZoneShift {
	return &v1alpha1.ZoneShift{
		ObjectMeta: metav1.ObjectMeta{Name: "out", Generation: 1, CreationTimestamp: metav1.NewTime(now.Truncate(time.Second))},
		Spec: v1alpha1.ZoneShiftSpec{
			From: v1alpha1.ShiftedDomain{Key: topology.Zone, Value: "a"}, For: metav1.Duration{Duration: 72 * time.Hour}, Ramp: &metav1.Duration{Duration: ramp},
			MaxOverload: 100, Reason: "test",
		},
	}
}

func anAcceptedShift(now time.Time, ramp time.Duration) *v1alpha1.ZoneShift {
	zs := aShift(now, ramp)
	zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue, Reason: "Accepted", LastTransitionTime: zs.CreationTimestamp, ObservedGeneration: 1}}
	return zs
}

// syncShift syncs a ZoneShift and returns it with its conditions, as TYPE=STATUS/REASON.
func (w *world) syncShift(name string) (zs *v1alpha1.ZoneShift, conditions string, again time.Duration) {
	w.t.Helper()
	result, err := shiftReconciler{w.reconciler}.Reconcile(context.Background(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
	if err != nil {
		w.t.Fatal(err)
	}
	zs = new(v1alpha1.ZoneShift)
	if err := w.client.Get(context.Background(), types.NamespacedName{Name: name}, zs); err != nil {
		w.t.Fatal(err)
	}
	var words []string
	for _, c := range zs.Status.Conditions {
		words = append(words, fmt.Sprintf("%s=%s/%s", c.Type, c.Status, c.Reason))
	}
	return zs, strings.Join(words, " "), result.RequeueAfter
}

func messageOf(zs *v1alpha1.ZoneShift, kind string) string {
	if c := meta.FindStatusCondition(zs.Status.Conditions, kind); c != nil {
		return c.Message
	}
	return ""
}

// A shift begins, goes on while endpoints fail and come back, and ends. Then nothing of it is left.
func TestShift(t *testing.T) {
	web := aService("web")
	web.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	w := newWorld(t, append(threeZones(),
		web, aSlice("web", 0, "a b b c c"),
		aService("far"), aSlice("far", 0, "b c"),
		aService("one"), aSlice("one", 0, "a"))...)
	services, slices := w.service("web"), w.slices("web")
	zs := aShift(w.clock.Now(), 0)
	zs.Spec.MaxOverload = 50
	w.create(zs)

	_, conditions, again := w.syncShift("out")
	if want := "Accepted=True/Accepted InForce=False/Writing Yielding=False/WithinBound"; conditions != want || again != surveyWriting {
		t.Fatalf("a new shift: %s, again in %s", conditions, again)
	}
	for _, service := range []string{"web", "far", "one"} {
		w.settle(service)
	}
	if got, want := w.hints(), "no-zone.vicinity.dev a+b+c a+b+c a+b+c a+b+c"; got != want {
		t.Errorf("hints %s, want %s", got, want)
	}
	if sent := patchesOf(w.takePatches(), "*v1.Service"); len(sent) != 1 {
		t.Errorf("Services got %q, want the label of web", sent)
	}
	zs, conditions, again = w.syncShift("out")
	if want := "Accepted=True/Accepted InForce=True/Stored Yielding=False/WithinBound"; conditions != want || again != surveyEvery {
		t.Errorf("a stored shift: %s, again in %s", conditions, again)
	}
	if got, want := messageOf(zs, v1alpha1.ConditionInForce), "hints: stored on 1 of 1 slices"; got != want {
		t.Errorf("in force: %s", got)
	}
	one := v1alpha1.StayingService{Namespace: "shop", Name: "one", Reason: "all its ready endpoints are in the domain"}
	if s := zs.Status; s.Services != 1 || s.Staying != 2 || len(s.Stays) != 2 || s.Stays[0] != one || s.Stays[1].Name != "web" {
		t.Errorf("status %+v", s) // web moves in part
	}

	// Outside, three of four endpoints fail, so the last one would get twice its load.
	slice := w.slices("web")[0]
	for i := range 3 {
		slice.Endpoints[i+1].Conditions.Ready = new(false)
	}
	w.update(slice)
	w.settle("web")
	if labels := w.service("web").Labels; len(labels) > 0 {
		t.Errorf("the Service does not yield: %v", labels)
	}
	w.removeHints() // as Kubernetes' controller does for a Service without the label
	zs, conditions, _ = w.syncShift("out")
	if want := "Accepted=True/Accepted InForce=True/Stored Yielding=True/Overload"; conditions != want || zs.Status.Yielding != 1 || zs.Status.Services != 0 {
		t.Errorf("a Service yields: %s, status %+v", conditions, zs.Status)
	}
	if s := zs.Status; s.Staying != 1 || len(s.Stays) != 2 || !strings.HasPrefix(s.Stays[0].Reason, "yields: ") || s.Stays[1] != one {
		t.Errorf("the Service that yields is not first: %+v", s)
	}
	slice = w.slices("web")[0]
	for i := range slice.Endpoints {
		slice.Endpoints[i].Conditions.Ready = new(true)
	}
	w.update(slice)
	if again := w.sync("web").RequeueAfter; again > yieldFor || again < yieldFor-5*time.Second || len(w.service("web").Labels) > 0 {
		t.Errorf("the Service does not yield for a while: again in %s, labels %v", again, w.service("web").Labels)
	}
	w.settle("web")
	if !strings.HasPrefix(w.hints(), "no-zone") {
		t.Errorf("the Service yields for ever: %s", w.hints())
	}

	w.clock.SetTime(zs.CreationTimestamp.Add(zs.Spec.For.Duration))
	if _, conditions, again = w.syncShift("out"); conditions != "Accepted=True/Accepted InForce=False/Returning Yielding=False/Ended" || again != surveyWriting {
		t.Errorf("the time is over: %s, again in %s", conditions, again)
	}
	w.settle("web")
	w.removeHints()
	if _, conditions, again = w.syncShift("out"); conditions != "Accepted=False/Ended InForce=False/Ended Yielding=False/Ended" || again != 0 {
		t.Errorf("all is back: %s, again in %s", conditions, again)
	}
	if got := w.service("web"); len(got.Labels) != len(services.Labels) || len(got.Annotations) != len(services.Annotations) || len(got.Status.Conditions) != 0 {
		t.Errorf("left on the Service: %+v", got)
	}
	if got := w.slices("web")[0]; len(got.Annotations) != len(slices[0].Annotations) || len(got.Labels) != len(slices[0].Labels) {
		t.Errorf("left on the slice: %+v", got.ObjectMeta)
	}
}

// A Service whose endpoints outside all fail yields for a while, too.
func TestShiftWithoutEndpointsOutside(t *testing.T) {
	w := newWorld(t, append(threeZones(), aService("web"), aSlice("web", 0, "a b b"))...)
	w.create(anAcceptedShift(w.clock.Now(), 0))
	w.settle("web")
	for _, ready := range []bool{false, true} {
		slice := w.slices("web")[0]
		for i := range 2 {
			slice.Endpoints[i+1].Conditions.Ready = &ready
		}
		w.update(slice)
		again := w.sync("web").RequeueAfter
		if labels := w.service("web").Labels; len(labels) > 0 || ready && again < yieldFor-5*time.Second {
			t.Errorf("outside ready %t: labels %v, again in %s", ready, labels, again)
		}
	}
}

// The end of a shift does not wait for the slices of a Service that is being deleted, which nothing writes.
func TestShiftOfADeletedService(t *testing.T) {
	web := aService("web")
	web.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
	w := newWorld(t, append(threeZones(), web, aSlice("web", 0, "a b c"))...)
	w.create(anAcceptedShift(w.clock.Now(), 0))
	w.settle("web")
	if err := w.client.Delete(t.Context(), w.service("web")); err != nil {
		t.Fatal(err)
	}
	w.clock.SetTime(w.clock.Now().Add(73 * time.Hour))
	if _, conditions, _ := w.syncShift("out"); !strings.Contains(conditions, "InForce=False/Ended") {
		t.Error(conditions)
	}
}

// The condition of a shift counts the nodes whose clients do not follow it.
func TestShiftCountsOtherNodes(t *testing.T) {
	windows, homeless := aNode("w-1", "b"), aNode("m-1", "")
	windows.Labels[corev1.LabelOSStable] = "windows"
	homeless.Status.Conditions = nil
	w := newWorld(t, append(threeZones(), windows, homeless)...)
	w.create(anAcceptedShift(w.clock.Now(), 0))
	zs, _, _ := w.syncShift("out")
	want := "hints: stored on 0 of 0 slices; clients on 1 node without the label topology.kubernetes.io/zone follow neither; kube-proxy ignores hints on 1 node of Windows"
	if got := messageOf(zs, v1alpha1.ConditionInForce); got != want {
		t.Error(got)
	}
}

// The condition of a shift follows an edit of its end.
func TestShiftIsExtended(t *testing.T) {
	w := newWorld(t, threeZones()...)
	zs := aShift(w.clock.Now(), 0)
	w.create(zs)
	zs, _, _ = w.syncShift("out")
	zs.Spec.For.Duration -= time.Hour
	zs.Generation++
	w.update(zs)
	zs, _, _ = w.syncShift("out")
	accepted := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted)
	if !strings.HasSuffix(accepted.Message, "until "+shift.Until(zs).UTC().Format(time.RFC3339)) || accepted.ObservedGeneration != zs.Generation {
		t.Errorf("%+v", accepted)
	}
}

// A Service that two shifts overload together yields in the status of each.
func TestTwoShifts(t *testing.T) {
	w := newWorld(t, append(threeZones(), aService("web"), aSlice("web", 0, "a b c"))...)
	first, second := anAcceptedShift(w.clock.Now(), 0), anAcceptedShift(w.clock.Now(), 0)
	second.Name, second.Spec.From.Value = "second", "b"
	w.create(first)
	if zs, _, _ := w.syncShift("out"); zs.Status.Services != 1 || zs.Status.Yielding != 0 {
		t.Errorf("one shift: %+v", zs.Status)
	}
	w.create(second)
	if zs, _, _ := w.syncShift("out"); zs.Status.Services != 0 || zs.Status.Yielding != 1 {
		t.Errorf("two shifts: %+v", zs.Status)
	}
}

func TestRefusedShifts(t *testing.T) {
	for _, test := range []struct {
		name    string
		objects []client.Object
		change  func(*v1alpha1.ZoneShift)
		reason  string
		message string
	}{
		{
			name: "unknown zone", change: func(zs *v1alpha1.ZoneShift) { zs.Spec.From.Value = "z" }, reason: "UnknownDomain",
			message: "spec.from.value: no node has the label topology.kubernetes.io/zone=z; its values are a, b, c",
		},
		{
			name: "unknown key", change: func(zs *v1alpha1.ZoneShift) { zs.Spec.From.Key = "rack" }, reason: "UnknownDomain",
			message: "spec.from.key: no node has the label rack",
		},
		{
			name: "overload", objects: []client.Object{aService("web"), aSlice("web", 0, "a a b c")}, reason: "Overload",
			message: "the Services have 2 ready endpoints in the domain and 2 outside: these would get 100 % more load, and spec.maxOverload is 50; raise it to shift nevertheless",
		},
		{
			name: "overlap", reason: "Overlaps", message: "spec.from: node a-1 is in the domain of ZoneShift first, too; delete that one first",
			objects: []client.Object{func() client.Object {
				first := anAcceptedShift(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), 0)
				first.Name, first.Spec.From = "first", v1alpha1.ShiftedDomain{Key: topology.Hostname, Value: "a-1"}
				return first
			}()},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), test.objects...)...)
			zs := aShift(w.clock.Now(), 0)
			zs.Spec.MaxOverload = 50
			if test.change != nil {
				test.change(zs)
			}
			w.create(zs)
			zs, conditions, again := w.syncShift("out")
			if want := "Accepted=False/" + test.reason + " InForce=False/NotAccepted"; conditions != want || messageOf(zs, v1alpha1.Accepted) != test.message || again != 0 {
				t.Errorf("%s: %s", conditions, messageOf(zs, v1alpha1.Accepted))
			}
			if test.reason != "Overload" {
				return
			}
			// A refusal holds although its cause is gone, and ends with an edit.
			if err := w.client.Delete(t.Context(), w.slices("web")[0]); err != nil {
				t.Fatal(err)
			}
			if _, conditions, _ = w.syncShift("out"); !strings.HasPrefix(conditions, "Accepted=False/") {
				t.Errorf("a refused shift begins by itself: %s", conditions)
			}
			zs.Generation++
			w.update(zs)
			if _, conditions, _ = w.syncShift("out"); !strings.HasPrefix(conditions, "Accepted=True/") {
				t.Errorf("an edited shift: %s", conditions)
			}
		})
	}
}

// A shift that awaits something is accepted later, unless it is refused at once.
func TestAwaitedShift(t *testing.T) {
	w := newWorld(t, append(threeZones(), aService("web"), aSlice("web", 0, "a b c"))...)
	awaited := "a replica"
	w.reconciler.options.Awaits = func(context.Context, *v1alpha1.ZoneShift) (string, error) { return awaited, nil }
	w.create(aShift(w.clock.Now(), 0))
	for range 2 {
		zs, conditions, again := w.syncShift("out")
		if want := "Accepted=Unknown/Waiting InForce=False/NotAccepted"; conditions != want || messageOf(zs, v1alpha1.Accepted) != awaited || again != surveyWriting {
			t.Errorf("%s, again in %s", conditions, again)
		}
	}
	awaited = ""
	w.clock.SetTime(w.clock.Now().Add(3 * time.Second))
	zs, conditions, _ := w.syncShift("out")
	if c := meta.FindStatusCondition(zs.Status.Conditions, v1alpha1.Accepted); !strings.HasPrefix(conditions, "Accepted=True/Accepted") || !c.LastTransitionTime.Time.Equal(w.clock.Now()) {
		t.Errorf("%s since %s", conditions, c.LastTransitionTime)
	}
	awaited = "another"
	if _, conditions, _ = w.syncShift("out"); !strings.HasPrefix(conditions, "Accepted=True/") {
		t.Errorf("an accepted shift waits: %s", conditions)
	}
	refused := aShift(w.clock.Now(), 0)
	refused.Name, refused.Spec.From.Value = "unknown", "z"
	w.create(refused)
	if _, conditions, _ = w.syncShift("unknown"); !strings.HasPrefix(conditions, "Accepted=False/UnknownDomain") {
		t.Errorf("a faulty shift waits: %s", conditions)
	}
}

// A shift wakes the Services with endpoints in its domain when it is accepted, over or deleted: the largest first.
func TestShiftsWakeServices(t *testing.T) {
	w := newWorld(t, append(threeZones(), aSlice("small", 0, "a b"), aSlice("large", 0, "a a b"), aSlice("far", 0, "b c"))...)
	before, after := aShift(w.clock.Now(), 0), anAcceptedShift(w.clock.Now(), 0)
	q := &delayedQueue{TypedRateLimitingInterface: newQueue()}
	h := w.reconciler.shiftHandler()
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: after, ObjectNew: after}, q)
	if len(q.added) > 0 {
		t.Errorf("a change of nothing wakes %v", q.added)
	}
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: after}, q)
	if got, want := strings.Join(q.added, " "), "shop/large+0s shop/small+20ms shop/large+0s shop/small+20ms"; got != want {
		t.Errorf("woken %s, want %s", got, want)
	}
	// A missed deletion and a creation are one update.
	another := aShift(w.clock.Now(), 0)
	another.UID, another.Spec.From.Value = "another", "c"
	q.added = nil
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: after, ObjectNew: another}, q)
	if got, want := strings.Join(q.added, " "), "shop/large+0s shop/small+20ms shop/far+0s"; got != want {
		t.Errorf("woken %s by another shift of the name, want %s", got, want)
	}
}

// delayedQueue notes what is added with a delay.
type delayedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []string
}

func (q *delayedQueue) AddAfter(request reconcile.Request, after time.Duration) {
	q.added = append(q.added, fmt.Sprintf("%s+%s", request, after))
}

// A Service of vicinity-proxy leaves by a ramp, and the shift is in force when all proxies have programmed its end.
func TestShiftByGroups(t *testing.T) {
	w := newWorld(t, append(threeZones(), proxied(), aSlice("web", 0, "a b b c c"))...)
	w.sync("web")
	w.acknowledge(w.newestVersion())
	w.settle("web")
	shifted := aShift(w.clock.Now(), time.Minute)
	shifted.Spec.DrainConnections = &metav1.Duration{Duration: 5 * time.Minute}
	w.create(shifted)
	w.syncShift("out")
	step := func(after time.Duration) string {
		w.clock.SetTime(w.clock.Now().Add(after))
		w.acknowledge("1")
		for range 3 {
			w.sync("web")
		}
		zs, _, _ := w.syncShift("out")
		return messageOf(zs, v1alpha1.ConditionInForce)
	}
	step(30 * time.Second) // and then the grace period of what zones lose
	if got := step(14 * time.Second); !strings.HasSuffix(got, "groups: stored in 1 of 1, programmed on 0 of 3 nodes") {
		t.Errorf("seven tenths of the ramp: %s", got)
	}
	for _, group := range w.groups() {
		if group.Spec.Endpoints[0].Zone == "a" && group.Spec.Consumers[0].Weight != 300 {
			t.Errorf("seven tenths of the ramp: %+v", group.Spec)
		}
	}
	step(30 * time.Second)
	step(time.Minute)
	w.acknowledge(w.newestVersion())
	zs, conditions, _ := w.syncShift("out")
	if got := messageOf(zs, v1alpha1.ConditionInForce); !strings.Contains(conditions, "InForce=True/Stored") || !strings.HasSuffix(got, "programmed on 3 of 3 nodes") {
		t.Errorf("all of the ramp: %s: %s", conditions, got)
	}
	if got := w.readyAddresses("b"); strings.Contains(got, "10.0.0.1,") || len(strings.Fields(strings.ReplaceAll(got, ",", " "))) != 4 {
		t.Errorf("zone b still uses %s", got)
	}
	drained := func() (addresses []string) {
		for _, group := range w.groups() {
			addresses = append(addresses, group.Spec.Drained...)
		}
		return addresses
	}
	if got := drained(); len(got) > 0 {
		t.Errorf("%v are drained early", got)
	}
	if got := step(5 * time.Minute); !slices.Equal(drained(), []string{"10.1.0.1"}) || !strings.HasSuffix(got, "programmed on 0 of 3 nodes") {
		t.Errorf("%v are drained: %s", drained(), got)
	}
}

// The series of a shift follow its status until its time is over, and vanish with it.
func TestMetricsOfShifts(t *testing.T) {
	w := newWorld(t, threeZones()...)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(w.reconciler.metrics.shifts)
	expect := func(samples string) {
		t.Helper()
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, family := range families {
			for _, m := range family.GetMetric() {
				labels := ""
				for _, label := range m.GetLabel() {
					labels += " " + label.GetValue()
				}
				got = append(got, fmt.Sprintf("%s%s %.0f", strings.TrimPrefix(family.GetName(), "vicinity_zone_shift_"), labels, m.GetGauge().GetValue()))
			}
		}
		if all := strings.Join(got, ", "); all != samples {
			t.Errorf("got  %s\nwant %s", all, samples)
		}
	}
	store := func(zs *v1alpha1.ZoneShift) {
		t.Helper()
		if err := w.client.Status().Update(context.Background(), zs); err != nil {
			t.Fatal(err)
		}
	}
	now := w.clock.Now().Unix()
	times := fmt.Sprintf("created_timestamp_seconds out %d, end_timestamp_seconds out %d, ", now, now+72*3600)
	zs := aShift(w.clock.Now(), time.Minute)
	w.create(zs)
	expect("accepted out 0, " + times + "in_force a topology.kubernetes.io/zone out 0, services moving out 0, services staying out 0, services yielding out 0")

	zs.Status = v1alpha1.ZoneShiftStatus{Services: 3, Yielding: 2, Staying: 1, Conditions: anAcceptedShift(w.clock.Now(), 0).Status.Conditions}
	store(zs)
	expect("accepted out 1, " + times + "in_force a topology.kubernetes.io/zone out 0, services moving out 3, services staying out 1, services yielding out 2")

	meta.SetStatusCondition(&zs.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionInForce, Status: metav1.ConditionTrue, Reason: shift.ReasonStored, ObservedGeneration: zs.Generation})
	store(zs)
	expect("accepted out 1, " + times + "in_force a topology.kubernetes.io/zone out 1, services moving out 3, services staying out 1, services yielding out 2")

	w.clock.SetTime(w.clock.Now().Add(73 * time.Hour)) // even if no controller notes the end
	expect("accepted out 0, " + times + "in_force a topology.kubernetes.io/zone out 0, services moving out 0, services staying out 0, services yielding out 0")
	if err := w.client.Delete(context.Background(), zs); err != nil {
		t.Fatal(err)
	}
	expect("")
}

// A shift is not in force beside a program that ignores hints.
func TestShiftBesideCilium(t *testing.T) {
	for setting, want := range map[string]string{"true": "InForce=True/Stored", "": "InForce=False/HintsIgnored"} {
		w := newWorld(t, append(threeZones(), aService("web"), aSlice("web", 0, "a b c"), cilium(setting))...)
		w.reconciler.cilium.read(t.Context())
		w.create(aShift(w.clock.Now(), 0))
		w.syncShift("out")
		w.settle("web")
		zs, conditions, _ := w.syncShift("out")
		if !strings.Contains(conditions, want) {
			t.Errorf("enable-service-topology %q: %s: %s", setting, conditions, messageOf(zs, v1alpha1.ConditionInForce))
		}
	}
}
