package shell

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestConditions(t *testing.T) {
	service := aService(nil)
	other := metav1.Condition{Type: "Other", Status: metav1.ConditionTrue, Reason: "Fine"}
	service.Status.Conditions = []metav1.Condition{other}
	c := stored(t, service)
	shown := func() (list []string) {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(service), service); err != nil {
			t.Fatal(err)
		}
		for _, condition := range service.Status.Conditions {
			list = append(list, fmt.Sprintf("%s=%s", condition.Type, condition.Reason))
		}
		return list
	}
	for _, reason := range []string{"One", "Two"} {
		written := aService(nil)
		if err := WriteCondition(t.Context(), c, written, metav1.Condition{Type: "Mine", Status: metav1.ConditionTrue, Reason: reason}); err != nil {
			t.Fatal(err)
		}
		got := shown()
		if len(got) != 2 || !slices.Contains(got, "Mine="+reason) || written.ResourceVersion != service.ResourceVersion {
			t.Errorf("conditions %v, version %s, want %s", got, written.ResourceVersion, service.ResourceVersion)
		}
	}
	if err := RemoveCondition(t.Context(), c, aService(nil), "Mine"); err != nil {
		t.Fatal(err)
	}
	if got := shown(); len(got) != 1 || got[0] != "Other=Fine" {
		t.Errorf("conditions %v", got)
	}
	gone := aService(nil)
	gone.Name = "gone"
	if err := WriteCondition(t.Context(), c, gone, other); !errors.Is(err, ErrChanged) {
		t.Errorf("of an object that is gone: %v", err)
	}
}

func TestTransitions(t *testing.T) {
	begin, now := time.Unix(1000, 0), time.Unix(2000, 5)
	before := &metav1.Condition{Status: metav1.ConditionTrue, Reason: "One", LastTransitionTime: metav1.NewTime(begin)}
	for _, test := range []struct {
		name   string
		before *metav1.Condition
		status metav1.ConditionStatus
		want   time.Time
	}{
		{"new", nil, metav1.ConditionTrue, time.Unix(2000, 0)},
		{"the same status", before, metav1.ConditionTrue, begin},
		{"another status", before, metav1.ConditionFalse, time.Unix(2000, 0)},
	} {
		got := Transition(test.before, metav1.Condition{Status: test.status, Reason: "Two"}, now)
		if !got.LastTransitionTime.Time.Equal(test.want) || got.Reason != "Two" {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
	later := *before
	later.LastTransitionTime = metav1.NewTime(now)
	if !SameCondition(before, &later) {
		t.Error("conditions that differ in time alone are not the same")
	}
	if later.Message = "x"; SameCondition(before, &later) {
		t.Error("conditions with different messages are the same")
	}
}
