package scale

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/admission"
	"vicinity.dev/vicinity/internal/scaledown/pacing"
)

// written is a cluster with a StatefulSet of nine replicas and the ConfigMap of records.
func written(t *testing.T, data map[string]string) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithObjects(
		stored(""),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: v1alpha1.ConfigMapScaleDowns}, Data: data},
	).Build()
}

func aRecord(replicas int32, wanted *int32) record {
	return record{Request: "1", Kind: pacing.StatefulSet, Namespace: "shop", Name: "db", UID: "set-1", Replicas: replicas, Wanted: wanted}
}

// state returns the wanted number of the StatefulSet and the number of records.
func state(t *testing.T, c client.Client) (wanted string, records int) {
	t.Helper()
	var set appsv1.StatefulSet
	var kept corev1.ConfigMap
	err := errors.Join(
		c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "db"}, &set),
		c.Get(t.Context(), types.NamespacedName{Namespace: system, Name: v1alpha1.ConfigMapScaleDowns}, &kept),
	)
	if err != nil {
		t.Fatal(err)
	}
	return set.Annotations[v1alpha1.AnnotationWantedReplicas], len(kept.Data)
}

// looks lets the leader read the records, and waits for its attempts.
func looks(t *testing.T, leader *records) {
	t.Helper()
	if err := errors.Join(leader.look(t.Context()), leader.attempts.Wait()); err != nil {
		t.Fatal(err)
	}
}

// If a process ends before the annotations are written, the leader writes them from the record.
func TestLeaderGoesOnWithRecords(t *testing.T) {
	for name, test := range map[string]struct {
		record record
		wanted string
	}{
		"a write that was stored":         {aRecord(9, new(int32(3))), "3"},
		"one that was refused elsewhere":  {aRecord(7, new(int32(3))), ""},
		"one that has nothing more go":    {aRecord(9, nil), ""},
		"one that was given what it asks": {aRecord(9, new(int32(9))), ""},
		"one of a workload that has gone": {record{Kind: pacing.StatefulSet, Namespace: "shop", Name: "other", UID: "set-2", Replicas: 9, Wanted: new(int32(3))}, ""},
		"one of another of its name":      {record{Kind: pacing.StatefulSet, Namespace: "shop", Name: "db", UID: "set-2", Replicas: 9, Wanted: new(int32(3))}, ""},
	} {
		c := written(t, nil)
		if err := newRecords(c, c, system, logr.Discard()).store(t.Context(), test.record); err != nil {
			t.Fatal(err)
		}
		leader, now := newRecords(c, c, system, logr.Discard()), clocktesting.NewFakeClock(time.Now())
		leader.clock = now
		looks(t, leader)
		if wanted, records := state(t, c); wanted != "" || records != 1 {
			t.Errorf("%s: at the first look %q is wanted, and there are %d records", name, wanted, records)
		}
		now.Step(storeTimeout)
		looks(t, leader)
		if wanted, records := state(t, c); wanted != test.wanted || records != 0 {
			t.Errorf("%s: %q is wanted, and there are %d records", name, wanted, records)
		}
	}
}

// After a conflict or a failure, the record stays for the next attempt.
func TestLeaderRetriesRecords(t *testing.T) {
	fails := 2
	c := interceptor.NewClient(written(t, nil).(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if _, of := object.(*appsv1.StatefulSet); of && fails > 0 {
				fails--
				return apierrors.NewConflict(schema.GroupResource{Resource: "statefulsets"}, "db", nil)
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	leader, now := newRecords(c, c, system, logr.Discard()), clocktesting.NewFakeClock(time.Now())
	leader.clock = now
	if err := leader.store(t.Context(), aRecord(9, new(int32(3)))); err != nil {
		t.Fatal(err)
	}
	for range 4 {
		looks(t, leader)
		now.Step(storeTimeout)
	}
	if wanted, records := state(t, c); wanted != "3" || records != 0 {
		t.Errorf("%q is wanted, and there are %d records", wanted, records)
	}
}

// If a webhook hangs on or refuses the annotations of one workload, other workloads are not delayed. The write is retried at longer
// intervals until it succeeds.
func TestRecordsDoNotDelayOneAnother(t *testing.T) {
	for name, fail := range map[string]func(context.Context) error{
		"hangs":   func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"refuses": func(context.Context) error { return apierrors.NewForbidden(schema.GroupResource{}, "db", nil) },
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testFailingRecord(t, fail) }) })
	}
}

func testFailingRecord(t *testing.T, fail func(context.Context) error) {
	var failing atomic.Bool
	var tried atomic.Int32
	failing.Store(true)
	c := interceptor.NewClient(written(t, nil).(client.WithWatch), interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if object.GetName() == "db" && failing.Load() {
				tried.Add(1)
				return fail(ctx)
			}
			return c.Patch(ctx, object, patch, options...)
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	leader := newRecords(c, c, system, logr.Discard())
	if err := leader.store(ctx, aRecord(9, new(int32(3)))); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * maxAttempts {
		set := stored("")
		set.Name, set.UID = fmt.Sprintf("other-%d", i), types.UID(fmt.Sprintf("other-%d", i))
		what := aRecord(9, new(int32(3)))
		what.Name, what.UID = set.Name, set.UID
		if err := errors.Join(c.Create(ctx, set), leader.store(ctx, what)); err != nil {
			t.Fatal(err)
		}
	}
	var work sync.WaitGroup
	work.Go(func() {
		if err := leader.Start(ctx); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(10 * time.Second)
	if wanted, records := state(t, c); wanted != "" || records != 1 {
		t.Errorf("%q is wanted, and there are %d records", wanted, records)
	}
	time.Sleep(10 * time.Minute)
	if n := tried.Load(); n < 5 || n > 20 {
		t.Errorf("it was tried %d times in ten minutes", n)
	}
	failing.Store(false)
	time.Sleep(longestBackoff + storeTimeout + lookEvery)
	if wanted, records := state(t, c); wanted != "3" || records != 0 {
		t.Errorf("in the end %q is wanted, and there are %d records", wanted, records)
	}
	cancel()
	work.Wait()
}

// The newer record of a workload counts, whichever process stored it.
func TestNewerRecordCounts(t *testing.T) {
	c := written(t, nil)
	kept := newRecords(c, c, system, logr.Discard())
	older, newer := aRecord(9, new(int32(3))), aRecord(9, new(int32(5)))
	newer.Request = "2"
	if err := errors.Join(kept.store(t.Context(), older), kept.store(t.Context(), newer)); err != nil {
		t.Fatal(err)
	}
	first, second := string(text(t, older)), string(text(t, newer))
	if err := errors.Join(kept.annotate(t.Context(), "set-1", first), kept.remove(t.Context(), "set-1", first)); err != nil {
		t.Error(err)
	}
	if wanted, records := state(t, c); wanted != "" || records != 1 {
		t.Errorf("after the older %q is wanted, and there are %d records", wanted, records)
	}
	if err := kept.annotate(t.Context(), "set-1", second); err != nil {
		t.Error(err)
	}
	if wanted, records := state(t, c); wanted != "5" || records != 0 {
		t.Errorf("after the newer %q is wanted, and there are %d records", wanted, records)
	}
}

// A HorizontalPodAutoscaler writes the scale with a resource version. No write conflicts, because the leader annotates the workload only
// after the write is stored. In each step, the leader also looks between the webhook's answer and the write.
func TestWritesWithAVersionDoNotConflict(t *testing.T) {
	c := written(t, nil)
	leader, asks := newRecords(c, c, system, logr.Discard()), &allowing{}
	j := judge{kind: pacing.StatefulSet, pacer: asks, namespaces: pacedNamespaces(), live: c, keep: leader.store}
	for i, step := range []struct {
		allowed, asked int32
		given          int32
		wanted         string // the annotation afterwards
	}{
		{allowed: 9, asked: 3, given: 9, wanted: "3"},
		{allowed: 7, asked: 3, given: 9, wanted: "3"}, // a step of the controller
		{allowed: 7, asked: 2, given: 7, wanted: "2"},
		{allowed: 7, asked: 12, given: 12, wanted: ""},
		{allowed: 5, asked: 5, given: 5, wanted: ""},
	} {
		var set appsv1.StatefulSet
		if err := c.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: "db"}, &set); err != nil {
			t.Fatal(err)
		}
		asks.replicas = step.allowed
		patch := judgeScale(t, j, i, step.asked).Patch
		if step.given != step.asked && !strings.Contains(string(patch), fmt.Sprintf(`"value":%d}`, step.given)) {
			t.Errorf("step %d: the patch is %s", i, patch)
		}
		looks(t, leader)
		set.Spec.Replicas = &step.given
		if err := c.Update(t.Context(), &set); err != nil {
			t.Errorf("step %d: %v", i, err)
		}
		looks(t, leader)
		if wanted, records := state(t, c); wanted != step.wanted || records != 0 {
			t.Errorf("step %d: %q is wanted, and there are %d records", i, wanted, records)
		}
	}
}

// judgeScale lets the webhook judge a write of the scale.
func judgeScale(t *testing.T, j judge, number int, replicas int32) admission.Verdict {
	t.Helper()
	request := &admission.Request{UID: fmt.Sprint(number), Operation: "UPDATE", SubResource: "scale", Namespace: "shop", Name: "db"}
	verdict, err := j.judge(t.Context(), request, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), nil)
	if err != nil {
		t.Fatal(err)
	}
	return verdict
}

func pacedNamespaces() client.Reader {
	return fake.NewClientBuilder().WithObjects(paced(v1alpha1.PaceClamp)).Build()
}

// The wanted number is written even if the API server stores the write late, for example after a slow webhook.
func TestLateStoredWrite(t *testing.T) {
	c := written(t, nil)
	leader, now := newRecords(c, c, system, logr.Discard()), clocktesting.NewFakeClock(time.Now())
	leader.clock = now
	if err := leader.store(t.Context(), aRecord(7, new(int32(3)))); err != nil {
		t.Fatal(err)
	}
	for range storeTimeout / lookEvery {
		looks(t, leader)
		now.Step(lookEvery)
	}
	set := stored("")
	set.Spec.Replicas = new(int32(7))
	if err := c.Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	looks(t, leader)
	if wanted, records := state(t, c); wanted != "3" || records != 0 {
		t.Errorf("%q is wanted, and there are %d records", wanted, records)
	}
}

// A scale-down that is cancelled before it is annotated does not continue.
func TestCancelledScaleDown(t *testing.T) {
	c := written(t, nil)
	leader := newRecords(c, c, system, logr.Discard())
	j := judge{kind: pacing.StatefulSet, pacer: &allowing{replicas: 9}, namespaces: pacedNamespaces(), live: c, keep: leader.store}
	judgeScale(t, j, 1, 3)
	judgeScale(t, j, 2, 9)
	for range 2 {
		looks(t, leader)
	}
	if wanted, records := state(t, c); wanted != "" || records != 0 {
		t.Errorf("%q is wanted, and there are %d records", wanted, records)
	}
}

// Records that are unreadable or under another workload's key are deleted without effect.
func TestInvalidRecords(t *testing.T) {
	c := written(t, map[string]string{"set-1": "{", "set-9": `{"uid":"set-1","kind":"StatefulSet","namespace":"shop","name":"db","replicas":9,"wanted":1}`})
	leader, now := newRecords(c, c, system, logr.Discard()), clocktesting.NewFakeClock(time.Now())
	leader.clock = now
	for range 2 {
		looks(t, leader)
		now.Step(storeTimeout)
	}
	if wanted, records := state(t, c); wanted != "" || records != 0 {
		t.Errorf("%q is wanted, and there are %d records", wanted, records)
	}
}

// If the wanted number cannot be stored, the write is denied.
func TestWriteThatCannotBeRecorded(t *testing.T) {
	none := interceptor.NewClient(written(t, nil).(client.WithWatch), interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("no room")
		},
	})
	kept := newRecords(none, none, system, logr.Discard())
	namespaces := fake.NewClientBuilder().WithObjects(paced(v1alpha1.PaceClamp)).Build()
	j := judge{kind: pacing.StatefulSet, pacer: &allowing{replicas: 9}, namespaces: namespaces, live: none, keep: kept.store}
	request := &admission.Request{Operation: "UPDATE", SubResource: "scale", Namespace: "shop", Name: "db"}
	_, err := j.judge(t.Context(), request, []byte(`{"spec":{"replicas":3}}`), nil)
	if err == nil || !strings.Contains(err.Error(), "storing the wanted replicas of StatefulSet shop/db in ConfigMap vicinity-system/vicinity-scale-downs: no room") {
		t.Error(err)
	}
}
