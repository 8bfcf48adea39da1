package controller

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/shift"
)

// A ZoneShift wakes all budgets when it is accepted or deleted.
func TestShiftsWakeBudgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReconciler(base{options: testOptions()}, nil)
		woken := 0
		if err := r.nodes.Source("counting", func(context.Context, queue) error { woken++; return nil }).Start(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		created := &v1alpha1.ZoneShift{ObjectMeta: metav1.ObjectMeta{Name: "out"}}
		accepted := created.DeepCopy()
		accepted.Status.Conditions = []metav1.Condition{{Type: v1alpha1.Accepted, Status: metav1.ConditionTrue}}
		counted := accepted.DeepCopy()
		counted.Status.Services = 3
		h := shell.OnChange(r.allChanged, shell.Same(shift.Same))
		for i, change := range []func(){
			func() { h.Update(t.Context(), event.UpdateEvent{ObjectOld: created, ObjectNew: accepted}, nil) },
			func() { h.Update(t.Context(), event.UpdateEvent{ObjectOld: accepted, ObjectNew: counted}, nil) },
			func() { h.Delete(t.Context(), event.DeleteEvent{Object: counted}, nil) },
		} {
			change()
			time.Sleep(time.Minute)
			synctest.Wait()
			if want := []int{1, 1, 2}[i]; woken != want {
				t.Errorf("after change %d all budgets are woken %d times, want %d", i, woken, want)
			}
		}
	})
}
