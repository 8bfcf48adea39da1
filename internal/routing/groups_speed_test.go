package routing

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// bigGroupWorld is a Service of many endpoints over three zones, with its groups
// written.
func bigGroupWorld(t fataler, endpoints int) (*groupWorld, Decision) {
	t.Helper()
	nodes := nodesIn(map[string]int{"a": 100, "b": 100, "c": 100})
	service := routedService(v1alpha1.AnnotationProxy, "true", v1alpha1.AnnotationSameZone, v1alpha1.Prefer)
	service.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
	var eps []*discoveryv1.EndpointSlice
	for n := 0; n < endpoints; n += 100 {
		slice := slicesOf("a")[0]
		slice.Name = fmt.Sprintf("web-%03d", n/100)
		slice.Endpoints = nil
		for i := n; i < min(n+100, endpoints); i++ {
			zone, ready := string(rune('a'+i%3)), true
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", i/60000, i/250%240, i%250+1)},
				Conditions: discoveryv1.EndpointConditions{Ready: &ready},
				NodeName:   new(fmt.Sprintf("%s-%d", zone, i/3%100+1)), Zone: &zone,
			})
		}
		eps = append(eps, slice)
	}
	w := newGroupWorld(t, inputOf(service, nodes, eps))
	d := w.decide()
	w.settle(d, GroupState{})
	return w, d
}

// turn changes the readiness of an endpoint, in a slice of its own.
func (w *groupWorld) turn(slice, endpoint int) {
	changed := w.in.Slices[slice].DeepCopy()
	e := &changed.Endpoints[endpoint]
	e.Conditions.Ready = new(!*e.Conditions.Ready)
	w.in.Slices[slice] = changed
}

// TestGroupsOfManyEndpoints has a pod of ten thousand become unready and ready.
func TestGroupsOfManyEndpoints(t *testing.T) {
	w, _ := bigGroupWorld(t, 10_000)
	if n := len(w.groups); n < 100 || n > 103 {
		t.Errorf("%d groups of 100 for 10000 endpoints in 3 zones", n)
	}
	for range 4 {
		w.turn(17, 3)
		d := w.decide()
		writes, _ := w.sync(d)
		w.now = w.now.Add(time.Minute)
		more, after := w.sync(d)
		if writes+more < 1 || writes+more > 2 || after != 0 {
			t.Errorf("%d writes at once and %d later for one endpoint that changed, then wait %s; want 1 or 2", writes, more, after)
		}
	}
}

func BenchmarkGroupsOneOfManyChanged(b *testing.B) {
	w, _ := bigGroupWorld(b, 10_000)
	w.turn(17, 3)
	d := w.decide()
	in := w.input()
	b.ReportAllocs()
	for b.Loop() {
		changes := Groups(in, d, GroupState{Now: w.now})
		if n := changes.Writes(); n < 1 || n > 2 {
			b.Fatalf("%d writes", n)
		}
	}
}

func BenchmarkGroupsFromNothing(b *testing.B) {
	w, d := bigGroupWorld(b, 10_000)
	in := w.input()
	in.Groups = nil
	b.ReportAllocs()
	for b.Loop() {
		if n := len(Groups(in, d, GroupState{Now: w.now}).Create); n < 100 {
			b.Fatalf("%d groups", n)
		}
	}
}
