package routing

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// Groups say of which change of endpoints they were written last, and not of one that
// they were not written for.
func TestGroupsTellTheTrigger(t *testing.T) {
	const key = corev1.EndpointsLastChangeTriggerTime
	w := groupedWorld(t, threeZones, slicesOf("a b c", "a b c"), v1alpha1.AnnotationSameZone, v1alpha1.Require)
	at := func(slice int, seconds float64) string {
		text := w.now.Add(time.Duration(seconds * float64(time.Second))).UTC().Format(time.RFC3339Nano)
		w.in.Slices[slice].Annotations = map[string]string{key: text}
		return text
	}
	stamps := func() map[string]int {
		counts := map[string]int{}
		for _, g := range w.groups {
			counts[g.Annotations[key]]++
		}
		return counts
	}
	expect := func(when string, want map[string]int) {
		t.Helper()
		got := stamps()
		if len(got) != len(want) {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
		for text, n := range want {
			if got[text] != n {
				t.Errorf("%s: %v, want %v", when, got, want)
			}
		}
	}

	at(0, -2)
	last := at(1, -1.5)
	w.sync(w.decide())
	expect("when they are made", map[string]int{last: 3})

	// The second endpoint of slice 0 is in zone b.
	no := false
	w.in.Slices[0].Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &no}
	next := at(0, 0.25)
	w.sync(w.decide())
	expect("after a change in one zone", map[string]int{last: 2, next: 1})

	w.in.Service.Annotations[v1alpha1.AnnotationSameZone] = v1alpha1.Prefer
	w.sync(w.decide())
	expect("after a change of something else", map[string]int{last: 2, next: 1})

	w.in.Slices[1].Annotations[key] = "yesterday"
	w.in.Slices[0].Annotations = nil
	w.in.Slices[0].Endpoints[1].Conditions = discoveryv1.EndpointConditions{}
	w.sync(w.decide())
	expect("without a word of when", map[string]int{last: 2, next: 1})
}
