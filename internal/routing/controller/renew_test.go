package controller

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// lentHints are hints after an outage: zone b still uses an endpoint of zone a. The overload is below the threshold.
const lentHints = "a=b a=a a=a a=a b=b b=b b=b b=b c=c c=c c=c c=c"

// lentWorld returns a world where the Service web has lentHints and an allocated condition.
func lentWorld(t *testing.T, after time.Duration, annotations ...string) *world {
	t.Helper()
	service := aService("web", append(annotations, v1alpha1.AnnotationSameZone, v1alpha1.Prefer)...)
	service.Labels = map[string]string{v1alpha1.LabelRouted: "true"}
	slice := aSlice("web", 0, lentHints)
	slice.Labels[v1alpha1.LabelRouted] = "true"
	w := newWorld(t, append(threeZones(), service, slice)...)
	options := testOptions()
	options.ReplanAfter, options.ReplanRate = after, 60
	w.start(options)
	current := w.service("web")
	current.Status.Conditions = allocatedCondition()
	if err := w.client.Status().Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	return w
}

// A plan with lent endpoints stays while the Service changes, and is replaced when the Service has been quiet.
func TestQuietServiceGetsABetterPlan(t *testing.T) {
	w := lentWorld(t, 10*time.Minute)
	begun := w.clock.Now()
	if result := w.sync("web"); result.RequeueAfter != 10*time.Minute {
		t.Errorf("to come back in %s", result.RequeueAfter)
	}
	if got := w.hints(); got == twelve {
		t.Fatal("a kept plan is replaced at once")
	}
	w.settle("web")
	if got := w.hints(); got != twelve || w.clock.Now().Sub(begun) < 10*time.Minute {
		t.Errorf("after %s hints %s", w.clock.Now().Sub(begun), got)
	}
	replanned := w.newReplanEvents()
	const want = "Normal TopologyReplanned a better plan replaces the previous one; endpoints that now serve other zones: 1. IPv4: 100 % of the traffic stays in its zone instead of 93.3 %, greatest overload 0 % instead of 33.3 %"
	if len(replanned) != 1 || replanned[0] != want {
		t.Errorf("reported %q, want %q", replanned, want)
	}
	w.takePatches()
	w.settle("web")
	if sent := w.takePatches(); len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
}

// Any change of a Service starts the quiet time again, and so does a restart.
func TestQuietTimeStartsAgain(t *testing.T) {
	w := lentWorld(t, 10*time.Minute)
	w.sync("web")
	w.clock.SetTime(w.clock.Now().Add(9 * time.Minute))
	slice := w.slices("web")[0]
	slice.Endpoints = slice.Endpoints[:11]
	w.update(slice)
	w.sync("web")
	w.clock.SetTime(w.clock.Now().Add(2 * time.Minute))
	if result := w.sync("web"); result.RequeueAfter != 8*time.Minute {
		t.Errorf("after a change: to come back in %s", result.RequeueAfter)
	}
	options := w.reconciler.options
	w.start(options)
	if result := w.sync("web"); result.RequeueAfter != 10*time.Minute {
		t.Errorf("after a restart: to come back in %s", result.RequeueAfter)
	}
}

func TestReplanIsSwitchedOff(t *testing.T) {
	w := lentWorld(t, 0)
	w.settle("web")
	if got := w.hints(); got == twelve {
		t.Error("a kept plan is replaced")
	}
}

// newReplanEvents returns the events about better plans since the last call.
func (w *world) newReplanEvents() []string {
	return slices.DeleteFunc(w.newEvents(), func(event string) bool { return !strings.Contains(event, "TopologyReplanned") })
}

// A better plan that the API server does not store is written again and again, and reported once.
func TestRenewalThatIsNotStored(t *testing.T) {
	w := lentWorld(t, 10*time.Minute)
	before := w.slices("web")[0].Endpoints
	w.drop = func(object client.Object) {
		if slice, ok := object.(*discoveryv1.EndpointSlice); ok {
			slice.Endpoints = before
		}
	}
	for end := w.clock.Now().Add(time.Hour); w.clock.Now().Before(end); {
		result := w.sync("web")
		if result.RequeueAfter == 0 {
			t.Fatal("it is never tried again")
		}
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	if w.recordOfWeb().quiet.compared {
		t.Error("nothing is stored, and it is taken for done")
	}
	w.drop = nil
	w.settle("web")
	if got := w.hints(); got != twelve {
		t.Errorf("hints %s", got)
	}
	if reported, n := w.newReplanEvents(), testutil.ToFloat64(w.reconciler.metrics.replans); len(reported) != 1 || n != 1 {
		t.Errorf("reported %q, the metric counts %v", reported, n)
	}
}

// While something removes hints, no plan is compared.
func TestReplanWaitsForLostHints(t *testing.T) {
	w := lentWorld(t, time.Minute)
	w.sync("web")
	for range 4 {
		w.clock.SetTime(w.clock.Now().Add(w.recordOfWeb().backoff.Wait(w.clock.Now())))
		w.removeHints()
		w.sync("web") // finds the loss
		w.clock.SetTime(w.clock.Now().Add(w.recordOfWeb().backoff.Wait(w.clock.Now())))
		w.sync("web") // writes anew
	}
	w.removeHints()
	w.sync("web")
	if losses, reported := w.recordOfWeb().backoff.Failures, w.newReplanEvents(); losses == 0 || len(reported) > 0 {
		t.Errorf("after %d losses: reported %q", losses, reported)
	}
	w.settle("web")
	if got, reported := w.hints(), w.newReplanEvents(); got != twelve || len(reported) != 1 {
		t.Errorf("hints %s, reported %q", got, reported)
	}
}

// The hints of a Service that waits for vicinity-proxy get better plans, too.
func TestReplanWhileProxyIsAwaited(t *testing.T) {
	w := lentWorld(t, time.Minute, v1alpha1.AnnotationProxy, "true")
	for range 100 {
		result := w.sync("web")
		w.clock.SetTime(w.clock.Now().Add(max(result.RequeueAfter, time.Second)))
	}
	if got := w.hints(); got != twelve {
		t.Fatalf("hints %s", got)
	}
	reported := w.newReplanEvents()
	if len(reported) != 1 || !strings.Contains(reported[0], "endpoints that now serve other zones: 1. IPv4: 100 % of the traffic stays in its zone instead of 93.3 %") {
		t.Errorf("reported %q", reported)
	}
}

// Renewals of quiet Services wait for earlier renewals.
func TestReplanPace(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := newReplanPace(60)
	if wait := p.takeTurn(now, 30); wait > 0 {
		t.Errorf("the first waits for %s", wait)
	}
	if wait := p.takeTurn(now, 1); wait != 30*time.Second {
		t.Errorf("after 30 endpoints at 60 a minute: %s", wait)
	}
	if wait := p.takeTurn(now.Add(31*time.Second), 20); wait > 0 {
		t.Errorf("later: %s", wait)
	}
	p.returnTurn(20)
	if wait := p.takeTurn(now.Add(31*time.Second), 1); wait > 0 {
		t.Errorf("after a turn that was given back: %s", wait)
	}
}

// A renewal takes its turn when it is decided, and gives it back if it cannot be written.
func TestRenewalThatIsNotWrittenGivesItsTurnBack(t *testing.T) {
	w := lentWorld(t, time.Minute)
	w.sync("web")
	w.clock.SetTime(w.clock.Now().Add(time.Minute))
	taken := time.Duration(0)
	w.refuse = func(object client.Object, _ string) error {
		if _, is := object.(*discoveryv1.EndpointSlice); !is {
			return nil
		}
		taken = w.reconciler.pace.takeTurn(w.clock.Now(), 1)
		return errors.New("refused")
	}
	if _, err := w.reconciler.Reconcile(t.Context(), serviceNamed("shop", "web")[0]); err == nil {
		t.Fatal("no slice is written")
	}
	if taken <= 0 {
		t.Error("another renewal goes on beside it")
	}
	if wait := w.reconciler.pace.takeTurn(w.clock.Now(), 1); wait > 0 {
		t.Errorf("the next waits for %s", wait)
	}
}

func allocatedCondition() []metav1.Condition {
	return []metav1.Condition{{
		Type: v1alpha1.ConditionTopologyRouting, Status: metav1.ConditionTrue, Reason: "Allocated",
		Message:            "endpoints are divided among zones by optimal, the overload stays below 50 %",
		LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}}
}
