package routing

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/translate"
)

// lent are hints in which an endpoint of a is still lent to b after an outage, below
// the threshold.
const lent = "a=b a=a a=a a=a b=b b=b b=b b=b c=c c=c c=c c=c"

// lentWorld has the Service web as the controller left it after an outage.
func lentWorld(t *testing.T, after time.Duration, annotations ...string) *world {
	t.Helper()
	service := aService("web", append(annotations, translate.AnnotationSameZone, translate.Prefer)...)
	service.Labels = map[string]string{translate.LabelRouted: "true"}
	slice := aSlice("web", 0, lent)
	slice.Labels[translate.LabelRouted] = "true"
	w := newWorld(t, append(threeZones(), service, slice)...)
	options := testOptions()
	options.ReplanAfter, options.ReplanRate = after, 60
	w.start(options)
	// The condition says that it is allocated.
	current := w.service("web")
	current.Status.Conditions = allocatedCondition()
	if err := w.client.Status().Update(t.Context(), current); err != nil {
		t.Fatal(err)
	}
	return w
}

const own = "a a a a b b b b c c c c"

// A plan with lent endpoints stays while things happen, and is replaced when the
// Service has been quiet.
func TestQuietServiceGetsABetterPlan(t *testing.T) {
	w := lentWorld(t, 10*time.Minute)
	begun := w.clock.Now()
	if result := w.sync("web"); result.RequeueAfter != 10*time.Minute {
		t.Errorf("to come back in %s", result.RequeueAfter)
	}
	if got := w.hints(); got == own {
		t.Fatal("a kept plan is replaced at once")
	}
	w.settle("web")
	if got := w.hints(); got != own || w.clock.Now().Sub(begun) < 10*time.Minute {
		t.Errorf("after %s hints %s", w.clock.Now().Sub(begun), got)
	}
	var replanned []string
	for _, event := range w.told() {
		if strings.Contains(event, "TopologyReplanned") {
			replanned = append(replanned, event)
		}
	}
	const want = "Normal TopologyReplanned a better plan replaces the one that was kept; endpoints that serve other zones now: 1. IPv4: 100 % of the traffic stays in its zone instead of 93.3 %"
	if len(replanned) != 1 || replanned[0] != want {
		t.Errorf("told %q, want %q", replanned, want)
	}
	w.sent()
	w.settle("web")
	if sent := w.sent(); len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
}

// What happens to a Service starts the quiet time again, and so does a restart.
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
	if got := w.hints(); got == own {
		t.Error("a kept plan is replaced")
	}
}

// A request is followed at once, also where the rest is switched off, and taken off.
func TestReplanOnRequest(t *testing.T) {
	w := lentWorld(t, 0, translate.AnnotationReplan, "now")
	w.settle("web")
	if got := w.hints(); got != own {
		t.Errorf("hints %s", got)
	}
	if _, found := w.service("web").Annotations[translate.AnnotationReplan]; found {
		t.Error("the request is left")
	}
	if w.service("web").Annotations[translate.AnnotationSameZone] != translate.Prefer {
		t.Error("another annotation is gone")
	}
}

// Renewals of quiet Services wait for those before them.
func TestReplanPace(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := newReplanPace(60)
	if wait := p.wait(now); wait != 0 {
		t.Errorf("the first waits for %s", wait)
	}
	p.moved(now, 30)
	if wait := p.wait(now); wait != 30*time.Second {
		t.Errorf("after 30 endpoints at 60 a minute: %s", wait)
	}
	if wait := p.wait(now.Add(31 * time.Second)); wait != 0 {
		t.Errorf("later: %s", wait)
	}
}

func allocatedCondition() []metav1.Condition {
	return []metav1.Condition{{
		Type: translate.ConditionTopologyRouting, Status: metav1.ConditionTrue, Reason: "Allocated",
		Message:            "endpoints are divided among zones by optimal, the overload stays below 50 %",
		LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}}
}
