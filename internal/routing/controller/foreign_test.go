package controller

import (
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// foreignSlice returns a slice that Kubernetes' controller does not manage.
func foreignSlice(number int, zones string) *discoveryv1.EndpointSlice {
	slice := aSlice("web", number, zones)
	delete(slice.Labels, discoveryv1.LabelManagedBy)
	return slice
}

// markedSlices returns the names of the slices with the label for routed slices.
func (w *world) markedSlices() string {
	var names []string
	for _, slice := range w.slices("web") {
		if slice.Labels[v1alpha1.LabelRouted] != "" {
			names = append(names, slice.Name)
		}
	}
	return strings.Join(names, " ")
}

// Kubernetes does not copy the label to foreign slices, so the controller writes it together with the hints.
func TestForeignSlicesAreMarked(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), foreignSlice(0, twelve))...)
	for range 3 {
		result := w.sync("web")
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	if got := w.hints(); got != twelve || w.markedSlices() != "web-00" {
		t.Fatalf("hints %s, marked %q", got, w.markedSlices())
	}
	if sent := patchesOf(w.takePatches(), "*v1.EndpointSlice"); len(sent) != 1 {
		t.Errorf("sent %q, want one patch", sent)
	}
	// A slice without hints is marked, too, so that the webhook keeps it without hints.
	w = newWorld(t, append(threeZones(), preferring("web"), foreignSlice(0, "a"))...)
	for range 3 {
		result := w.sync("web")
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
	}
	if w.markedSlices() != "web-00" {
		t.Errorf("marked %q", w.markedSlices())
	}
	w.takePatches()
	w.settle("web")
	if sent := patchesOf(w.takePatches(), "*v1.EndpointSlice"); len(sent) > 0 {
		t.Errorf("sent %q once it is marked", sent)
	}
}

// Vicinity removes its hints and label from foreign slices, whatever ends the routing.
func TestForeignSlicesAreReleased(t *testing.T) {
	for name, stopRouting := range map[string]func(t *testing.T, w *world){
		"the annotation goes": func(_ *testing.T, w *world) {
			service := w.service("web")
			service.Annotations = nil
			w.update(service)
		},
		"the annotation and the label go while no controller runs": func(_ *testing.T, w *world) {
			service := w.service("web")
			service.Annotations, service.Labels, service.Status.Conditions = nil, nil, nil
			w.update(service)
			w.start(testOptions())
		},
		"the Service is deleted": func(t *testing.T, w *world) {
			if err := w.client.Delete(t.Context(), w.service("web")); err != nil {
				t.Fatal(err)
			}
		},
		"the Service is deleted while no controller runs": func(t *testing.T, w *world) {
			if err := w.client.Delete(t.Context(), w.service("web")); err != nil {
				t.Fatal(err)
			}
			w.start(testOptions())
		},
		"the namespace is excluded": func(_ *testing.T, w *world) {
			options := testOptions()
			options.Exclusion.Namespaces = append(options.Exclusion.Namespaces, "shop")
			w.start(options)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), preferring("web"), foreignSlice(0, twelve))...)
			w.settle("web")
			if w.markedSlices() != "web-00" {
				t.Fatalf("marked %q", w.markedSlices())
			}
			stopRouting(t, w)
			for range 5 {
				result := w.sync("web")
				w.clock.SetTime(w.clock.Now().Add(max(result.RequeueAfter, time.Second)))
			}
			if got := w.hints(); strings.ContainsAny(got, "abc") || w.markedSlices() != "" {
				t.Errorf("hints %s and the label on %q remain", got, w.markedSlices())
			}
			if m := w.reconciler.memory; len(m.services) > 0 {
				t.Errorf("the memory has %v", m.services)
			}
		})
	}
}
