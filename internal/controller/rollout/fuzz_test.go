package rollout

import (
	"encoding/json"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// FuzzSpec reads the spec of a rollout: what cannot be read takes the least pods down at a time, and no bound is one that nothing exceeds.
func FuzzSpec(f *testing.F) {
	for _, spec := range []string{
		`{"maxUnavailable":1}`, `{"maxUnavailable":"50%"}`, `{"maxUnavailable":"x"}`, `{"maxUnavailable":"-5%"}`, `{"maxUnavailable":0}`, `{"maxUnavailable":"1000%"}`,
		`{"healthGate":{"maxOverload":"NaN%"}}`, `{"healthGate":{"maxOverload":"40%","progressDeadline":"1m"}}`, `{"healthGate":{"maxOverload":"-1%"}}`, `{"waves":{"type":"Exponential","most":4}}`,
	} {
		f.Add(spec, 7)
	}
	f.Fuzz(func(t *testing.T, text string, pods int) {
		var spec v1alpha1.DomainRolloutSpec
		if json.Unmarshal([]byte(text), &spec) != nil || pods < 1 || pods > 1_000_000 {
			return
		}
		read := specOf(&spec)
		if n := read.MaxUnavailable.Of(pods); n < 1 || read.MaxUnavailable.Percent && n > pods {
			t.Fatalf("%+v of %d pods is %d", read.MaxUnavailable, pods, n)
		}
		if g := spec.HealthGate; g != nil && g.MaxOverload != "" && read.MaxOverload != nil && !(*read.MaxOverload >= 0 && *read.MaxOverload <= 10) {
			t.Fatalf("%q is %v", g.MaxOverload, *read.MaxOverload)
		}
	})
}

// FuzzSlot reads the annotations of a pod that was released: the slot comes into the status of the rollout, and is always a name that a
// pod can have.
func FuzzSlot(f *testing.F) {
	for _, text := range []string{"", "web-7d9f-x", "Web", "\x1b[2J", "a/b", "2026-01-02T15:04:05Z"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web-1", Annotations: map[string]string{
			v1alpha1.AnnotationReleasedFor: text, v1alpha1.AnnotationReleasedAt: text,
		}}}
		slot := slotOf(pod)
		if slot != text && slot != "web-1" || len(validation.IsDNS1123Subdomain(slot)) > 0 {
			t.Fatalf("%q is the slot %q", text, slot)
		}
		if at := releasedAt(pod); !at.IsZero() && slot == text {
			t.Fatalf("%q is a name and the time %s", text, at)
		}
	})
}
