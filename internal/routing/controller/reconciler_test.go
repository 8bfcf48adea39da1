package controller

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/routing/hints"
)

func TestServiceIsRouted(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	before := w.slices("web")[0]
	w.settle("web")
	if got, want := w.hints(), "a a a a b b b b c c c c"; got != want {
		t.Errorf("hints %s, want %s", got, want)
	}
	if w.service("web").Labels[v1alpha1.LabelRouted] != "true" {
		t.Error("the Service does not have the label")
	}
	condition := w.condition()
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != "Allocated" || condition.LastTransitionTime.IsZero() {
		t.Errorf("condition %+v", condition)
	}
	if reported := w.newEvents(); len(reported) != 1 || !strings.HasPrefix(reported[0], "Normal TopologyAllocated ") {
		t.Errorf("reported %q", reported)
	}

	sent := w.takePatches()
	hints := patchesOf(sent, "*v1.EndpointSlice")
	if len(hints) != 1 || len(patchesOf(sent, "*v1.Service")) != 1 || len(patchesOf(sent, "*v1.Service/status")) != 1 {
		t.Fatalf("sent %q", sent)
	}
	for i, path := range patchPaths(t, hints[0]) {
		want := fmt.Sprintf("add /endpoints/%d/hints", i-1)
		if i == 0 {
			want = "test /metadata/resourceVersion"
		}
		if path != want {
			t.Errorf("operation %d is %s, want %s", i, path, want)
		}
	}
	after := w.slices("web")[0]
	for i := range after.Endpoints {
		after.Endpoints[i].Hints = nil
	}
	delete(after.Labels, v1alpha1.LabelRouted)
	after.ResourceVersion = before.ResourceVersion
	if !reflect.DeepEqual(before, after) {
		t.Errorf("more than hints has changed:\nbefore %+v\nafter  %+v", before, after)
	}

	w.settle("web")
	if sent := w.takePatches(); len(sent) > 0 {
		t.Errorf("a sync of what is as it should be sent %q", sent)
	}
}

// In a cluster of one zone, only the condition is written. It says why. A second zone starts the routing.
func TestOneZoneIsLeftAlone(t *testing.T) {
	w := newWorld(t, aNode("a-1", "a"), preferring("web"), aSlice("web", 0, "a a a a a a a a a a a a"))
	w.settle("web")
	condition := w.condition()
	if condition == nil || condition.Reason != "Waiting" || condition.Message != "balanced: one zone has all nodes and all endpoints, so there is nothing to choose" {
		t.Errorf("condition %+v", condition)
	}
	if sent := w.takePatches(); len(sent) != 1 || len(patchesOf(sent, "*v1.Service/status")) != 1 {
		t.Errorf("sent %q", sent)
	}
	for _, object := range []client.Object{aNode("b-1", "b"), aSlice("web", 1, "b b b b")} {
		if err := w.client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.reconciler.nodes.refresh(t.Context(), newQueue()); err != nil {
		t.Fatal(err)
	}
	w.settle("web")
	if got := w.hints(); !strings.Contains(got, "b") {
		t.Errorf("with a second zone the hints are %s", got)
	}
}

func TestRestartWritesNothing(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, "a a a a a a b b b b c c"), aSlice("web", 1, "a b c"),
		aService("wrong", v1alpha1.AnnotationSameZone, "Prefre"), aSlice("wrong", 0, "a"))...)
	for _, name := range []string{"web", "wrong"} {
		w.settle(name)
	}
	if reported := w.newEvents(); len(reported) != 2 || !strings.HasPrefix(reported[1], "Warning TopologyNotRouted ") {
		t.Errorf("reported %q", reported)
	}
	w.takePatches()
	w.start(testOptions())
	for _, name := range []string{"web", "wrong"} {
		w.settle(name)
	}
	if sent := w.takePatches(); len(sent) > 0 {
		t.Errorf("sent %q", sent)
	}
	if reported := w.newEvents(); len(reported) > 0 {
		t.Errorf("reported %q", reported)
	}
}

// Hints wait until Kubernetes has copied the label, so that the webhook handles the slices. The wait is limited.
func TestHintsWaitForTheLabel(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	if result := w.sync("web"); result.RequeueAfter != settle {
		t.Errorf("to come back in %s", result.RequeueAfter)
	}
	w.sync("web")
	if len(patchesOf(w.takePatches(), "*v1.EndpointSlice")) > 0 {
		t.Error("hints are written at once")
	}
	w.clock.SetTime(w.clock.Now().Add(settle))
	w.sync("web")
	if len(patchesOf(w.takePatches(), "*v1.EndpointSlice")) != 1 {
		t.Error("hints are not written when the label does not come")
	}
}

// While something removes hints, they are written again after growing delays. The loss is reported once, and so is its
// end.
func TestBackOffWhileHintsAreStripped(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	w.settle("web")
	w.newEvents()
	var waits []time.Duration
	for range 12 {
		w.removeHints()
		result := w.sync("web")
		if w.hints() == twelve {
			t.Fatal("hints are written again at once")
		}
		for w.hints() != twelve {
			waits = append(waits, result.RequeueAfter)
			w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
			result = w.sync("web")
		}
	}
	total := time.Duration(0)
	for _, wait := range waits {
		total += wait
		if wait > hintLosses.longest {
			t.Errorf("waits %s", wait)
		}
	}
	// 1 + 2 + 4 + … + 256 seconds, then thrice the longest.
	if want := 511*time.Second + 3*hintLosses.longest; total != want {
		t.Errorf("waited %s in all, want %s: %v", total, want, waits)
	}
	reported := w.newEvents()
	if len(reported) != 1 || !strings.HasPrefix(reported[0], "Warning TopologyHintsLost ") || !routing.TroubleHintsLost.IsOn(w.service("web")) {
		t.Errorf("reported %q", reported)
	}

	// A restarted controller does not report it again.
	w.start(testOptions())
	w.removeHints()
	w.sync("web")
	if reported := w.newEvents(); len(reported) > 0 || w.hints() != twelve {
		t.Errorf("after a restart: reported %q, hints %s", reported, w.hints())
	}
	w.settle("web")
	reported = w.newEvents()
	if len(reported) != 1 || !strings.HasPrefix(reported[0], "Normal TopologyAllocated ") || routing.TroubleHintsLost.IsOn(w.service("web")) {
		t.Errorf("after they stayed: reported %q", reported)
	}
}

func TestServiceIsNotRoutedAnyMore(t *testing.T) {
	own := aSlice("web", 1, "a")
	own.Labels[discoveryv1.LabelManagedBy] = "by-hand"
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve), own)...)
	w.settle("web")
	w.newEvents()
	for _, slice := range w.slices("web") {
		slice.Annotations = map[string]string{v1alpha1.AnnotationHeld: `{"b":["10.1.0.1"]}`, "note": "mine"}
		w.update(slice)
	}
	service := w.service("web")
	delete(service.Annotations, v1alpha1.AnnotationSameZone)
	w.update(service)
	w.settle("web")
	// Kubernetes' controller removes the hints of its own slices when it copies the labels.
	if got := w.hints(); got != twelve+" | -" {
		t.Errorf("hints %s", got)
	}
	for _, slice := range w.slices("web") {
		if len(slice.Annotations) != 1 {
			t.Errorf("left behind on %s: %v", slice.Name, slice.Annotations)
		}
	}
	service = w.service("web")
	if len(service.Labels) > 0 || routing.ConditionOf(service) != nil {
		t.Errorf("left behind: labels %v, conditions %v", service.Labels, service.Status.Conditions)
	}
	if reported := w.newEvents(); len(reported) != 1 || !strings.HasPrefix(reported[0], "Normal TopologyNotRouted ") {
		t.Errorf("reported %q", reported)
	}
	if len(w.reconciler.memory.services) != 0 || len(w.reconciler.memory.reports) != 0 {
		w.settle("web")
		if len(w.reconciler.memory.services) != 0 || len(w.reconciler.memory.reports) != 0 {
			t.Error("the Service is still remembered")
		}
	}
}

// Hints are removed together with the label. Kubernetes' controller does not do that for a Service of type ExternalName,
// and for one without a selector.
// If hints are switched off, the condition says so.
func TestHintsAreRemoved(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*world)
		says string
	}{
		"a name for something else": {func(w *world) {
			w.changeService(func(s *corev1.Service) {
				s.Spec.Type, s.Spec.ExternalName = corev1.ServiceTypeExternalName, "web.example"
			})
		}, "the Service is a name"},
		"no selector and no wish": {func(w *world) {
			w.changeService(func(s *corev1.Service) { s.Spec.Selector, s.Annotations = nil, nil })
		}, ""},
		"hints are switched off": {func(w *world) {
			w.reconciler.options.Settings.WithoutHints = true
			w.settle("web")
			w.removeHints() // as Kubernetes' controller does without the label
		}, "has no effect: delivery by hints is switched off in this cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
			w.settle("web")
			if w.hints() != twelve || w.service("web").Labels[v1alpha1.LabelRouted] != "true" {
				t.Fatal("there are no hints to take away")
			}
			test.end(w)
			w.settle("web")
			if hints := strings.Trim(w.hints(), "- "); hints != "" || w.service("web").Labels[v1alpha1.LabelRouted] != "" {
				t.Errorf("the hints are %s, the labels are %v", hints, w.service("web").Labels)
			}
			if c := w.condition(); test.says != "" && (c == nil || c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, test.says)) {
				t.Errorf("condition %+v", c)
			}
		})
	}
}

func TestLeftAlone(t *testing.T) {
	in := func(namespace, name string, annotations ...string) []client.Object {
		service, slice := aService(name, annotations...), aSlice(name, 0, twelve)
		service.Namespace, slice.Namespace = namespace, namespace
		return []client.Object{service, slice}
	}
	prefer := []string{v1alpha1.AnnotationSameZone, v1alpha1.Prefer}
	for name, objects := range map[string][]client.Object{
		"kube-system/dns":    in("kube-system", "dns", prefer...),
		"default/kubernetes": in("default", "kubernetes", prefer...),
		"shop/silent":        in("shop", "silent"),
		"shop/upstream":      in("shop", "upstream", v1alpha1.AnnotationTopologyMode, "Auto"),
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), objects...)...)
			for range 3 {
				w.sync(name)
				w.clock.SetTime(w.clock.Now().Add(time.Minute))
			}
			if sent, reported := w.takePatches(), w.newEvents(); len(sent) > 0 || len(reported) > 0 {
				t.Errorf("sent %q, reported %q", sent, reported)
			}
			if len(w.reconciler.memory.services) != 0 {
				t.Error("the Service is remembered")
			}
		})
	}
}

// When two slices exchange zones, both zones keep their old endpoints for the grace period. A controller that starts
// meanwhile reads the plan from the slices and completes it.
func TestZonesAreHeldForTheGrace(t *testing.T) {
	all := func(zones string) string { return strings.TrimSpace(strings.Repeat(zones+" ", 8)) }
	for _, restart := range []bool{false, true} {
		slice := aSlice("web", 0, all("a=b"))
		slice.Annotations = map[string]string{"note": "mine"}
		w := newWorld(t, append(threeZones()[:2], preferring("web"), slice, aSlice("web", 1, all("b=a")))...)
		w.sync("web")
		w.copyLabel("web")
		begun := w.clock.Now()
		result := w.sync("web")
		held := all("a+b") + " | " + all("a+b")
		for w.clock.Now().Before(begun.Add(routing.DefaultShrinkGrace)) {
			if got := w.hints(); got != held {
				t.Errorf("restart %t, after %s: hints %s", restart, w.clock.Now().Sub(begun), got)
			}
			if condition := w.condition(); restart && condition != nil {
				w.start(testOptions())
				w.sync("web")
				break
			}
			w.clock.SetTime(w.clock.Now().Add(min(result.RequeueAfter, reportedAfter)))
			result = w.sync("web")
		}
		if restart && w.hints() != held {
			t.Errorf("after a restart the zones are not held: %s", w.hints())
		}
		w.settle("web")
		if got, want := w.hints(), all("a")+" | "+all("b"); got != want {
			t.Errorf("restart %t, after the grace: hints %s, want %s", restart, got, want)
		}
		if after := w.slices("web")[0].Annotations; len(after) != 1 || hints.Holds(w.slices("web")) {
			t.Errorf("restart %t: annotations %v", restart, after)
		}
	}
}

func TestEventOfConditions(t *testing.T) {
	warned := &routing.Decision{}
	warned.Request.Warnings = []string{"something"}
	for reason, want := range map[string][2]string{
		"Allocated":                   {"Normal", "TopologyAllocated"},
		"Waiting":                     {"Normal", "TopologyWaiting"},
		"Downgraded":                  {"Warning", "TopologyDowngraded"},
		"Allocated,HintsLost":         {"Warning", "TopologyHintsLost"},
		"Allocated,NotWritten":        {"Warning", "TopologyNotWritten"},
		"Allocated,NeedsGroups":       {"Warning", "TopologyNeedsGroups"},
		"Allocated,AwaitsProxy":       {"Normal", "TopologyAwaitsProxy"},
		"IPv4:Allocated,IPv6:Waiting": {"Normal", "TopologyRouting"},
		"NotRouted":                   {"Normal", "TopologyNotRouted"},
	} {
		kind, name := eventOf(&routing.Decision{}, &metav1.Condition{Reason: reason})
		if kind != want[0] || name != want[1] {
			t.Errorf("%s: %s %s, want %v", reason, kind, name, want)
		}
		if kind, _ := eventOf(warned, &metav1.Condition{Reason: reason}); kind != corev1.EventTypeWarning {
			t.Errorf("%s with a warning: %s", reason, kind)
		}
	}
}
