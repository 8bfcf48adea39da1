package controller

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/rollout"
)

// If a complete rollout becomes invalid, its revision stays the one to go back to.
func TestInvalidKeepsWhetherItWasComplete(t *testing.T) {
	for state, want := range map[v1alpha1.RolloutDomainState]string{v1alpha1.DomainDone: "r1", v1alpha1.DomainWaiting: ""} {
		d := &v1alpha1.DomainRollout{Status: v1alpha1.DomainRolloutStatus{
			Phase: v1alpha1.PhaseComplete, Revision: "r1", Domains: []v1alpha1.RolloutDomain{{Name: "a", State: state}},
		}}
		status := invalid(d, &problem{reasonNotFound, "gone"}, time.Unix(1000, 0))
		step := rollout.Next(&rollout.State{Revision: "r2", Slots: []rollout.Slot{{Name: "db-0"}}, Memory: status}, time.Unix(2000, 0))
		if got := step.Memory.PreviousRevision; got != want || status.Phase != v1alpha1.PhaseInvalid || status.WaitingFor != "gone" {
			t.Errorf("with a domain that is %s, the revision before is %q, want %q; the status was %+v", state, got, want, status)
		}
	}
}

// Messages of conditions stay within the API server's limit.
func TestConditionsHaveRoom(t *testing.T) {
	var unknown []string
	for i := range 1000 {
		unknown = append(unknown, fmt.Sprintf("%03d%s", i, strings.Repeat("x", 60)))
	}
	d := &v1alpha1.DomainRollout{}
	step := rollout.Step{Wait: rollout.Wait{For: rollout.WaitRefused, Reason: strings.Repeat("\u00e4", maxMessage)}}
	status := report(d, &step, unknown, "", time.Unix(1000, 0))
	for _, c := range status.Conditions {
		if len(c.Message) > maxMessage || !utf8.ValidString(c.Message) {
			t.Errorf("the message of %s has %d bytes", c.Type, len(c.Message))
		}
	}
	valid := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionValid)
	if valid.Reason != reasonNoDomain || !strings.Contains(valid.Message, unknown[maxListed-1]+" and 980 more of ") {
		t.Errorf("it says %q", valid.Message)
	}
}

// FuzzSpec reads arbitrary specs: an unreadable maxUnavailable counts as the least, and maxOverload is a finite limit.
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

// FuzzSlot reads arbitrary annotations of released pods: the slot is always a valid name of a pod.
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
