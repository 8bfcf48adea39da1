package routing

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
)

// lent are hints in which an endpoint of a is still lent to b after an outage, below
// the threshold.
const lent = "a=b a=a a=a a=a b=b b=b b=b b=b c=c c=c c=c c=c"

// lentWorld has the Service web as the controller left it after an outage.
func lentWorld(t *testing.T, after time.Duration, annotations ...string) *world {
	t.Helper()
	service := aService("web", append(annotations, v1alpha1.AnnotationSameZone, v1alpha1.Prefer)...)
	service.Labels = map[string]string{v1alpha1.LabelRouted: "true"}
	slice := aSlice("web", 0, lent)
	slice.Labels[v1alpha1.LabelRouted] = "true"
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
	const want = "Normal TopologyReplanned a better plan replaces the one that was kept; endpoints that serve other zones now: 1. IPv4: 100 % of the traffic stays in its zone instead of 93.3 %, greatest overload 0 % instead of 33.3 %"
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
	w := lentWorld(t, 0, v1alpha1.AnnotationReplan, "now")
	w.settle("web")
	if got := w.hints(); got != own {
		t.Errorf("hints %s", got)
	}
	if _, found := w.service("web").Annotations[v1alpha1.AnnotationReplan]; found {
		t.Error("the request is left")
	}
	if w.service("web").Annotations[v1alpha1.AnnotationSameZone] != v1alpha1.Prefer {
		t.Error("another annotation is gone")
	}
}

// replanned are the events about better plans among those since the last time.
func (w *world) replanned() []string {
	return slices.DeleteFunc(w.told(), func(event string) bool { return !strings.Contains(event, "TopologyReplanned") })
}

// replans is the number of better plans that the metric counts.
func (w *world) replans(trigger string) float64 {
	return testutil.ToFloat64(w.reconciler.metrics.replans.WithLabelValues(trigger))
}

// askReplan asks for a better plan of the Service web.
func (w *world) askReplan() {
	w.t.Helper()
	service := w.service("web")
	service.Annotations[v1alpha1.AnnotationReplan] = "now"
	w.update(service)
}

// isReplanAsked reports whether the Service web has a request.
func (w *world) isReplanAsked() bool {
	w.t.Helper()
	return isReplanAsked(w.service("web"))
}

// A better plan that the API server does not store is told of and counted as soon as it is
// stored, and not before. A request for it stays until then.
func TestRenewalThatIsNotStored(t *testing.T) {
	for name, test := range map[string]struct {
		after       time.Duration
		annotations []string
		trigger     string
	}{
		"on request": {0, []string{v1alpha1.AnnotationReplan, "now"}, replanRequest},
		"quiet":      {10 * time.Minute, nil, replanQuiet},
	} {
		t.Run(name, func(t *testing.T) {
			w := lentWorld(t, test.after, test.annotations...)
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
			if sent := of(w.sent(), "*v1.EndpointSlice"); len(sent) < 2 || len(sent) > 10 {
				t.Errorf("%d patches of the slice in an hour", len(sent))
			}
			if told, n := w.replanned(), w.replans(test.trigger); len(told) > 0 || n != 0 {
				t.Errorf("nothing is stored: told %q, the metric counts %v", told, n)
			}
			if wait := w.reconciler.pace.take(w.clock.Now(), 0); wait > 0 || w.recorded().quiet.compared {
				t.Errorf("nothing is stored: others wait for %s", wait)
			}
			if asked := len(test.annotations) > 0; w.isReplanAsked() != asked {
				t.Errorf("asked %t, want %t", !asked, asked)
			}
			if condition := w.condition(); condition.Reason != "Allocated,HintsDropped" {
				t.Errorf("condition %+v", condition)
			}

			w.drop = nil
			w.settle("web")
			if got := w.hints(); got != own {
				t.Errorf("hints %s", got)
			}
			if told, n := w.replanned(), w.replans(test.trigger); len(told) != 1 || n != 1 {
				t.Errorf("once it is stored: told %q, the metric counts %v", told, n)
			}
			if w.isReplanAsked() {
				t.Error("the request is left")
			}
		})
	}
}

// While hints are removed no plan is compared, so a request stays until they are not.
func TestReplanWaitsForLostHints(t *testing.T) {
	for name, after := range map[string]time.Duration{"on request": 0, "quiet": time.Minute} {
		t.Run(name, func(t *testing.T) {
			w := lentWorld(t, after)
			w.sync("web")
			for range 4 {
				w.clock.SetTime(w.clock.Now().Add(w.recorded().backoff.Wait(w.clock.Now())))
				w.strip()
				w.sync("web") // finds the loss
				w.clock.SetTime(w.clock.Now().Add(w.recorded().backoff.Wait(w.clock.Now())))
				w.sync("web") // writes anew
			}
			w.strip()
			w.sync("web")
			if after == 0 {
				w.askReplan()
			}
			w.sync("web")
			if losses := w.recorded().backoff.Failures; losses == 0 || w.isReplanAsked() != (after == 0) {
				t.Errorf("after %d losses: asked %t", losses, w.isReplanAsked())
			}
			w.settle("web")
			if got := w.hints(); got != own || w.isReplanAsked() {
				t.Errorf("hints %s, asked %t", got, w.isReplanAsked())
			}
			if told := w.replanned(); len(told) != 1 {
				t.Errorf("told %q", told)
			}
		})
	}
}

// A request that is made while one is being answered is not taken for that.
func TestSecondReplanRequestStays(t *testing.T) {
	w := lentWorld(t, 0, v1alpha1.AnnotationReplan, "first")
	second := false
	w.refuse = func(object client.Object, body string) error {
		if _, ok := object.(*corev1.Service); !ok || second || !strings.Contains(body, "replan") {
			return nil
		}
		second = true
		read := w.service("web")
		service := read.DeepCopy()
		service.Annotations[v1alpha1.AnnotationReplan] = "second"
		w.update(service)
		if guarded, _ := json.Marshal(shell.Guard(read)); strings.Contains(body, string(guarded)) {
			return apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "web", errors.New("it has changed"))
		}
		return nil
	}
	for !second {
		result := w.sync("web")
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	if got := w.service("web").Annotations[v1alpha1.AnnotationReplan]; got != "second" {
		t.Errorf("the second request is %q", got)
	}
	w.settle("web")
	if w.isReplanAsked() {
		t.Error("the second request is left")
	}
	if told := w.replanned(); len(told) != 1 {
		t.Errorf("told %q", told)
	}
}

// Taking the request off is a write like any other, which the cache may be behind for a
// while.
func TestReplanRequestIsAWrite(t *testing.T) {
	w := lentWorld(t, 0)
	w.settle("web")
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.askReplan()
	w.settle("web")
	w.clock.SetTime(w.clock.Now().Add(time.Hour))
	w.sent()
	w.askReplan() // nothing better is left
	w.sync("web")
	if sent := w.sent(); len(sent) != 1 || w.isReplanAsked() {
		t.Fatalf("sent %q", sent)
	}
	if record := w.recorded(); record.trust.Left(w.clock.Now()) != shell.TrustFor || record.service != w.service("web").ResourceVersion {
		t.Errorf("the write counts for %s", record.trust.Left(w.clock.Now()))
	}
}

// The hints that a Service follows until vicinity-proxy serves it get better plans, too.
func TestReplanWhileProxyIsAwaited(t *testing.T) {
	w := lentWorld(t, 0, v1alpha1.AnnotationProxy, "true", v1alpha1.AnnotationReplan, "now")
	for range 20 {
		result := w.sync("web")
		w.clock.SetTime(w.clock.Now().Add(max(result.RequeueAfter, time.Second)))
	}
	if got := w.hints(); got != own || w.isReplanAsked() {
		t.Fatalf("hints %s, asked %t", got, w.isReplanAsked())
	}
	told := w.replanned()
	if len(told) != 1 || !strings.Contains(told[0], "endpoints that serve other zones now: 1. IPv4: 100 % of the traffic stays in its zone instead of 93.3 %, greatest overload 0 % instead of 33.3 %") {
		t.Errorf("told %q", told)
	}
}

// Renewals of quiet Services wait for those before them.
func TestReplanPace(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	p := newReplanPace(60)
	if wait := p.take(now, 30); wait != 0 {
		t.Errorf("the first waits for %s", wait)
	}
	if wait := p.take(now, 1); wait != 30*time.Second {
		t.Errorf("after 30 endpoints at 60 a minute: %s", wait)
	}
	p.moved(now, 10) // on request
	if wait := p.take(now, 1); wait != 40*time.Second {
		t.Errorf("after 10 more on request: %s", wait)
	}
	p.giveBack(30)
	if wait := p.take(now, 1); wait != 10*time.Second {
		t.Errorf("after 30 of them were not moved: %s", wait)
	}
	if wait := p.take(now.Add(11*time.Second), 1); wait != 0 {
		t.Errorf("later: %s", wait)
	}
}

func allocatedCondition() []metav1.Condition {
	return []metav1.Condition{{
		Type: v1alpha1.ConditionTopologyRouting, Status: metav1.ConditionTrue, Reason: "Allocated",
		Message:            "endpoints are divided among zones by optimal, the overload stays below 50 %",
		LastTransitionTime: metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)),
	}}
}
