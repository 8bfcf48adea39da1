package routing

import (
	"context"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"vicinity.dev/vicinity/internal/routing"
)

// syncsIn counts the syncs that a Service asks for by itself within some time.
func (w *world) syncsIn(name string, period time.Duration) int {
	w.t.Helper()
	for n, end := 1, w.clock.Now().Add(period); ; n++ {
		result := w.sync(name)
		if result.RequeueAfter == 0 || n > 10000 {
			return n
		}
		w.clock.SetTime(w.clock.Now().Add(result.RequeueAfter))
		if w.clock.Now().After(end) {
			return n
		}
	}
}

// recorded is what the syncs of a Service remember.
func (w *world) recorded(name string) *record {
	w.t.Helper()
	record, _ := w.reconciler.memory.record(client.ObjectKeyFromObject(w.service(name)))
	return record
}

// Hints were removed, and before they can be written again the Service needs none, or
// somebody has put them back, or all slices are gone: the losses are over.
func TestLossesEndWhereNothingIsWritten(t *testing.T) {
	for name, change := range map[string]func(*world){
		"too few endpoints": func(w *world) {
			slice := w.slices("api")[0]
			slice.Endpoints = append(slice.Endpoints[:1:1], slice.Endpoints[4], slice.Endpoints[8])
			w.update(slice)
		},
		"put back": func(w *world) {
			slice := w.slices("api")[0]
			for i := range slice.Endpoints {
				slice.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: *slice.Endpoints[i].Zone}}}
			}
			w.update(slice)
		},
		"no slice": func(w *world) {
			if err := w.client.Delete(context.Background(), w.slices("api")[0]); err != nil {
				w.t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, append(threeZones(), preferring("api"), aSlice("api", 0, twelve))...)
			w.settle("api")
			w.strip("api")
			w.sync("api")
			record := w.recorded("api")
			if record.backoff.Failures != 1 {
				t.Fatalf("%d losses, want 1", record.backoff.Failures)
			}
			change(w)
			if n := w.syncsIn("api", 10*time.Minute); n > 10 {
				t.Errorf("%d syncs without an event", n)
			}
			if record.backoff.Failures != 0 {
				t.Errorf("%d losses are still counted", record.backoff.Failures)
			}
		})
	}
}

// A controller that starts while the condition speaks of losses, and finds the hints
// in place, takes the word back once they have stayed.
func TestRestartAfterLosses(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("api"), aSlice("api", 0, twelve))...)
	w.settle("api")
	service := w.service("api")
	service.Status.Conditions = []metav1.Condition{routing.WithHintsLost(*routing.ConditionOf(service))}
	if err := w.client.Status().Update(context.Background(), service); err != nil {
		t.Fatal(err)
	}
	w.start(testOptions())
	if n := w.syncsIn("api", 10*time.Minute); n > 10 {
		t.Errorf("%d syncs without an event", n)
	}
	if condition := w.condition("api"); condition.Reason != "Allocated" || condition.Status != metav1.ConditionTrue {
		t.Errorf("condition %+v", condition)
	}
}

// Slices come and go; those that are gone are not remembered.
func TestSlicesThatAreGoneAreForgotten(t *testing.T) {
	w := newWorld(t, append(threeZones(), preferring("web"), aSlice("web", 0, twelve))...)
	w.settle("web")
	for i := 1; i < 5; i++ {
		if err := w.client.Delete(context.Background(), w.slices("web")[0]); err != nil {
			t.Fatal(err)
		}
		w.create(aSlice("web", i, twelve))
		w.settle("web")
	}
	record := w.recorded("web")
	if len(record.slices) != 1 || record.slices["web-04"] == "" {
		t.Errorf("remembered are %v", record.slices)
	}
}
