package rollout

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/rollout"
)

// A rollout that was complete before its target could not be updated leaves a revision to go back to.
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

// The API server takes messages of conditions up to a length, whatever a spec names and others say.
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
