package controller

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	clientfake "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/topology"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// world is a cluster with a replica on node a-1 and a Lease.
type world struct {
	*testing.T
	client  client.Client
	clock   *clocktesting.FakePassiveClock
	replica *Standby
	lock    resourcelock.Interface
	log     []string
	changes []bool
	left    int
	broken  error // of all reads
}

// newWorld has ready replicas on nodes, each named after its zone, as in "a-1 b-1". The first is this one.
func newWorld(t *testing.T, ready string, objects ...client.Object) *world {
	t.Helper()
	w := &world{T: t, clock: clocktesting.NewFakePassiveClock(start)}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a-1", "a-2", "b-1", "c-1"} {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{topology.Zone: name[:1], topology.Hostname: name}}})
	}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "vicinity"}}, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "vicinity", Name: "webhook"}})
	w.client = clientfake.NewClientBuilder().WithScheme(scheme).WithObjects(append(objects, slice(ready))...).
		WithInterceptorFuncs(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
			if w.broken != nil {
				return w.broken
			}
			return c.List(ctx, list, options...)
		}}).Build()
	w.restart()
	return w
}

// restart replaces the replica on node a-1 by one without memory.
func (w *world) restart() {
	w.replica = New(Options{
		Node: "a-1", Service: types.NamespacedName{Namespace: "vicinity", Name: "webhook"},
		OnChange: func(standsBy bool) { w.changes = append(w.changes, standsBy) }, Leave: func() { w.left++ },
	})
	w.replica.client, w.replica.clock = w.client, w.clock
	w.replica.log = funcr.New(func(_, line string) { w.log = append(w.log, line) }, funcr.Options{})
	w.lock = w.replica.Lock(&resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: "vicinity", Name: "lease"}, Client: fake.NewClientset().CoordinationV1(), LockConfig: resourcelock.ResourceLockConfig{Identity: "me"},
	})
}

// slice has the replicas, with "!" behind unready ones.
func slice(ready string) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: "vicinity", Name: "webhook-1", Labels: map[string]string{discoveryv1.LabelServiceName: "webhook"}},
		AddressType: discoveryv1.AddressTypeIPv4,
	}
	for i, word := range strings.Fields(ready) {
		node, failed := strings.CutSuffix(word, "!")
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("10.0.0.%d", i+1)}, NodeName: &node, Conditions: discoveryv1.EndpointConditions{Ready: new(!failed)},
		})
	}
	return s
}

// zoneShift takes a zone out of service for an hour. Its condition Accepted has a status, unless that is empty.
func zoneShift(zone string, accepted metav1.ConditionStatus) *v1alpha1.ZoneShift {
	zs := &v1alpha1.ZoneShift{
		ObjectMeta: metav1.ObjectMeta{Name: "out-" + zone, CreationTimestamp: metav1.NewTime(start)},
		Spec:       v1alpha1.ZoneShiftSpec{From: v1alpha1.ShiftedDomain{Key: topology.Zone, Value: zone}, For: metav1.Duration{Duration: time.Hour}},
	}
	if accepted != "" {
		zs.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: accepted}}
	}
	return zs
}

func (w *world) set(ready string) {
	w.Helper()
	after, stored := slice(ready), new(discoveryv1.EndpointSlice)
	err := w.client.Get(w.Context(), client.ObjectKeyFromObject(after), stored)
	stored.Endpoints = after.Endpoints
	if err := errors.Join(err, w.client.Update(w.Context(), stored)); err != nil {
		w.Fatal(err)
	}
}

// lead takes the Lease or renews it.
func (w *world) lead() error {
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaseDurationSeconds: 15}
	if _, _, err := w.lock.Get(w.Context()); err != nil {
		return w.lock.Create(w.Context(), record)
	}
	return w.lock.Update(w.Context(), record)
}

// look lets the replica look after a while, and returns why it does not serve.
func (w *world) look(after time.Duration) string {
	w.clock.SetTime(w.clock.Now().Add(after))
	w.replica.look(w.Context())
	if err := w.replica.Ready(nil); err != nil {
		return err.Error()
	}
	return ""
}

const standsBy = "ZoneShift out-a takes a out of service, and 1 other replica is ready"

func TestWhoStandsBy(t *testing.T) {
	deleted := zoneShift("a", metav1.ConditionTrue)
	deleted.Finalizers, deleted.DeletionTimestamp = []string{"x/y"}, &metav1.Time{Time: start}
	over := zoneShift("a", metav1.ConditionTrue)
	over.CreationTimestamp = metav1.NewTime(start.Add(-time.Hour))
	host := zoneShift("a", metav1.ConditionTrue)
	host.Spec.From = v1alpha1.ShiftedDomain{Key: topology.Hostname, Value: "a-2"}
	some := zoneShift("a", metav1.ConditionTrue)
	some.Spec.Services.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "shop"}}
	for _, test := range []struct {
		name, ready string
		shifts      []client.Object
		want        string
	}{
		{"accepted", "a-1 b-1", []client.Object{zoneShift("a", metav1.ConditionTrue)}, standsBy},
		{"waiting, this one is unready", "a-1! a-2 b-1 c-1", []client.Object{zoneShift("a", metav1.ConditionUnknown)}, "ZoneShift out-a takes a out of service, and 2 other replicas are ready"},
		{"refused", "a-1 b-1", []client.Object{zoneShift("a", metav1.ConditionFalse)}, ""},
		{"not judged yet", "a-1 b-1", []client.Object{zoneShift("a", "")}, ""},
		{"another zone", "a-1 b-1", []client.Object{zoneShift("b", metav1.ConditionTrue)}, ""},
		{"another node", "a-1 b-1", []client.Object{host}, ""},
		{"the only replica", "a-1", []client.Object{zoneShift("a", metav1.ConditionTrue)}, ""},
		{"both in the zone", "a-1 a-2", []client.Object{zoneShift("a", metav1.ConditionTrue)}, ""},
		{"the other is unready", "a-1 b-1!", []client.Object{zoneShift("a", metav1.ConditionTrue)}, ""},
		{"the other leaves, too", "a-1 b-1", []client.Object{zoneShift("a", metav1.ConditionTrue), zoneShift("b", metav1.ConditionTrue)}, ""},
		{"for few Services", "a-1 b-1", []client.Object{some}, standsBy},
		{"deleted", "a-1 b-1", []client.Object{deleted}, ""},
		{"over", "a-1 b-1", []client.Object{over}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.ready, test.shifts...)
			if got := w.look(0); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
	// A leader that cannot even refuse a ZoneShift must not hold up the others.
	w := newWorld(t, "a-1 b-1", zoneShift("a", ""))
	if got := w.look(5 * time.Second); got != standsBy {
		t.Errorf("without a judgement: %q", got)
	}
}

// A leader gives up the Lease, and does not take it until the replicas outside fail or the shift ends.
func TestLeaderStandsBy(t *testing.T) {
	w := newWorld(t, "a-1 b-1")
	if err := w.lead(); err == nil {
		t.Error("a replica campaigns before it knows")
	}
	if got := w.look(0); got != "" || w.lead() != nil {
		t.Fatalf("without a ZoneShift: %q", got)
	}
	zs := zoneShift("a", metav1.ConditionUnknown)
	if err := w.client.Create(t.Context(), zs); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got := w.look(time.Second); got != standsBy || w.left != 1 {
			t.Errorf("a leader inside: %q, left %d times", got, w.left)
		}
	}
	if err := w.lead(); err != nil {
		t.Errorf("it cannot renew while it ends: %v", err)
	}
	if err := w.lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err != nil {
		t.Errorf("it cannot release: %v", err)
	}
	if err := w.lead(); err == nil || err.Error() != standsBy {
		t.Errorf("it campaigns again: %v", err)
	}
	if len(w.log) != 2 || !strings.Contains(w.log[0], "Stands by") || !strings.Contains(w.log[1], "Gives up the Lease") {
		t.Errorf("the log has %q", w.log)
	}

	w.restart()
	w.log, w.changes = nil, nil
	if got := w.look(0); got != standsBy || w.lead() == nil {
		t.Errorf("after the restart: %q", got)
	}
	w.set("a-1! b-1!")
	if got := w.look(time.Second); got != "" || w.lead() != nil {
		t.Errorf("the replica outside fails: %q", got)
	}
	w.set("a-1 b-1")
	if got := w.look(trustAfter - time.Second); got != "" || w.left != 1 {
		t.Errorf("the replica outside is back: %q", got)
	}
	if got := w.look(time.Second); got != standsBy || w.left != 2 {
		t.Errorf("it is back for a minute: %q, left %d times", got, w.left)
	}
	if err := w.client.Delete(t.Context(), zs); err != nil {
		t.Fatal(err)
	}
	if got := w.look(time.Second); got != standsBy {
		t.Errorf("it serves while it ends: %q", got)
	}
	w.restart()
	if got := w.look(0); got != "" {
		t.Errorf("the ZoneShift is gone: %q", got)
	}
	if got := fmt.Sprint(w.changes); got != "[true false true]" || len(w.log) != 4 {
		t.Errorf("changes %s, log %q", got, w.log)
	}
}

// A replica that cannot read serves, and keeps its last decision later.
func TestUnreadable(t *testing.T) {
	w := newWorld(t, "a-1 b-1", zoneShift("a", metav1.ConditionTrue))
	w.broken = errors.New("forbidden")
	if got := w.look(0); got != "" || w.lead() != nil {
		t.Errorf("unreadable from the start: %q", got)
	}
	w.broken = nil
	w.look(0)
	w.broken = errors.New("forbidden")
	if got := w.look(0); got != standsBy {
		t.Errorf("unreadable later: %q", got)
	}
	if len(w.log) != 3 {
		t.Errorf("the log has %q", w.log)
	}
}

func TestAwaits(t *testing.T) {
	const others, leads = " of vicinity-controller in the domain still get requests; they stop first, within 15s", "vicinity-controller leads from the domain; a replica outside takes over first"
	for _, test := range []struct {
		name, ready, zone string
		after             time.Duration
		leads             bool
		want              string
	}{
		{"leader outside", "a-1 b-1 c-1", "b", 0, true, "1 replica" + others},
		{"several inside", "a-1 a-2 b-1", "a", 0, false, "2 replicas" + others},
		{"they have left", "a-1 b-1! c-1", "b", 0, true, ""},
		{"they do not leave", "a-1 b-1 c-1", "b", awaitTime, true, ""},
		{"leader inside", "a-1! b-1", "a", awaitTime, true, leads},
		{"only inside", "a-1 a-2", "a", 0, true, ""},
		{"no webhooks", "", "a", 0, true, ""},
	} {
		w := newWorld(t, test.ready)
		w.replica.leads.Store(test.leads)
		w.clock.SetTime(start.Add(test.after))
		got, err := w.replica.Awaits(t.Context(), zoneShift(test.zone, ""))
		if err != nil || got != test.want {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
}
