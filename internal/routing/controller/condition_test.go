package controller

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// syncLater syncs the Service web after some time, and returns the error.
func (w *world) syncLater(after time.Duration) error {
	w.clock.SetTime(w.clock.Now().Add(after))
	_, err := w.reconciler.Reconcile(context.Background(), serviceNamed("shop", "web")[0])
	w.copyLabel("web")
	return err
}

// A write that fails for a long time is reported once, and the report is removed when it succeeds. A short failure is
// not reported.
func TestFailingWritesAreReported(t *testing.T) {
	refuse := func(object client.Object, _ string) error {
		if _, slice := object.(*discoveryv1.EndpointSlice); slice {
			return errors.New("the rules of the shop forbid it")
		}
		return nil
	}
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	if err := w.syncLater(0); err != nil {
		t.Fatal(err)
	}
	w.refuse = refuse
	for range 9 {
		if err := w.syncLater(failingReported / 10); err == nil {
			t.Fatal("no error")
		}
	}
	if w.condition() != nil || len(w.newEvents()) > 0 {
		t.Errorf("reported at once: %+v", w.condition())
	}
	for range 9 {
		if err := w.syncLater(failingReported); err != nil && !strings.Contains(err.Error(), "the rules of the shop") {
			t.Fatal(err)
		}
	}
	condition := w.condition()
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != "Allocated,NotWritten" ||
		!strings.HasPrefix(condition.Message, "the decision cannot be written: writing hints of EndpointSlice web-00: the rules of the shop forbid it. endpoints are divided") {
		t.Fatalf("condition %+v", condition)
	}
	if reported := w.newEvents(); len(reported) != 1 || !strings.HasPrefix(reported[0], "Warning TopologyNotWritten ") {
		t.Errorf("reported %q", reported)
	}

	w.refuse = nil
	w.settle("web")
	if condition := w.condition(); condition.Status != metav1.ConditionTrue || condition.Reason != "Allocated" {
		t.Errorf("condition %+v", condition)
	}
	w.newEvents()
	// The next failure counts from its own start.
	w.refuse = refuse
	w.removeHints()
	for range 3 {
		if err := w.syncLater(failingReported / 2); err != nil {
			break
		}
	}
	if reported := w.newEvents(); len(reported) > 0 {
		t.Errorf("reported %q", reported)
	}
}
