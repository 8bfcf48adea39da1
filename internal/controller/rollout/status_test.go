package rollout

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/rollout"
)

// What a step remembers is read back as it was, or a restarted controller would go on from something else.
func TestMemoryIsReadBack(t *testing.T) {
	at := time.Unix(1000, 0)
	all := rollout.Memory{
		Phase: rollout.Baking, Revision: "r3", Previous: "r2", Abandoned: []string{"r1"}, RollingBack: true, Wave: 2, Current: []string{"a", ""},
		Last: []string{"b"}, Proven: 3, BakingSince: at, QueryPassed: true,
		Failure: &rollout.Failure{Reason: rollout.PodUnhealthy, Domain: "a", Pod: "db-1", At: at},
		Replacements: []rollout.Replacement{
			{Slot: "db-1", Domain: "a", Pod: "db-1", UID: "u", Stage: rollout.Gone, Since: at, IfUnready: true},
			{Slot: "db-2", Domain: "a", Pod: "db-2", Stage: rollout.Replaced, Since: at},
		},
	}
	value := reflect.ValueOf(all)
	for i := range value.NumField() {
		if value.Field(i).IsZero() {
			t.Errorf("the test does not set %s", value.Type().Field(i).Name)
		}
	}
	for _, m := range []rollout.Memory{all, {}} {
		var status v1alpha1.DomainRolloutStatus
		remember(&status, &m)
		if got := memoryOf(&status); !reflect.DeepEqual(got, m) {
			t.Errorf("it is read back as %+v, not %+v", got, m)
		}
	}
}

// A rollout that was complete before its target could not be updated leaves a revision to go back to.
func TestInvalidKeepsWhetherItWasComplete(t *testing.T) {
	for state, want := range map[v1alpha1.RolloutDomainState]rollout.Phase{
		v1alpha1.DomainDone: rollout.Complete, v1alpha1.DomainWaiting: rollout.Waiting,
	} {
		d := &v1alpha1.DomainRollout{Status: v1alpha1.DomainRolloutStatus{
			Phase: v1alpha1.PhaseComplete, Revision: "r1", Domains: []v1alpha1.RolloutDomain{{Name: "a", State: state}},
		}}
		status := invalid(d, &problem{reasonNotFound, "gone"}, time.Unix(1000, 0))
		if got := memoryOf(&status); got.Phase != want || got.Revision != "r1" || status.WaitingFor != "gone" {
			t.Errorf("with a domain that is %s it becomes %+v", state, got)
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
