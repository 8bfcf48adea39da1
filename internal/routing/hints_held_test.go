package routing

import (
	"fmt"
	"reflect"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/routing/hints"
)

// Zones that endpoints keep for a moment count as neither written nor unwritten: they are held, as long as the hints
// agree.
func TestHeldAndUnwritten(t *testing.T) {
	eps := slicesOf("a=a a=a a=a a=a a=a b=b b=b b=b b=b b=b")
	in := inputOf(routedService(sameZone, "Prefer"), nodesIn(map[string]int{"a": 1, "b": 1}), eps)
	d := mustDecide(t, in)
	slice := eps[0]
	if n := d.Hints().Unwritten(slice); n != 0 {
		t.Fatalf("%d endpoints of a slice that is as planned are unwritten", n)
	}
	address := func(i int) string { return slice.Endpoints[i].Addresses[0] }
	also := func(i int, zones ...string) {
		hints := &discoveryv1.EndpointHints{}
		for _, zone := range append([]string{*slice.Endpoints[i].Zone}, zones...) {
			hints.ForZones = append(hints.ForZones, discoveryv1.ForZone{Name: zone})
		}
		slice.Endpoints[i].Hints = hints
	}
	also(0, "b")      // held
	also(1, "b")      // not held
	also(2, "b", "c") // only one of the two is held
	// The fourth no longer has its held zone, and the last is gone.
	slice.Annotations = map[string]string{v1alpha1.AnnotationHeld: fmt.Sprintf(`{"b":["%s","%s","%s","10.9.9.9"]}`, address(0), address(2), address(3))}
	if n := d.Hints().Unwritten(slice); n != 2 {
		t.Errorf("%d endpoints are unwritten, want 2", n)
	}
	want := map[string][]string{address(0): {"b"}, address(2): {"b"}}
	if held := hints.Held(eps); !reflect.DeepEqual(held, want) {
		t.Errorf("held %v, want %v", held, want)
	}
	// Held zones of a plan that is not written count as unwritten.
	slice.Endpoints[0].Hints.ForZones = slice.Endpoints[0].Hints.ForZones[1:]
	if n := d.Hints().Unwritten(slice); n != 3 {
		t.Errorf("%d endpoints are unwritten, want 3", n)
	}
	slice.Annotations[v1alpha1.AnnotationHeld] = "no JSON"
	if held := hints.Held(eps); len(held) > 0 {
		t.Errorf("held by an annotation that is broken: %v", held)
	}
}
