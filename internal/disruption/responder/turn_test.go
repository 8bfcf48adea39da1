package responder

import (
	"testing"
	"time"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
)

const (
	before  = "example.com/before" // comes before the budgets
	evictor = lifecyclev1alpha1.EvictionResponderImperativeEviction

	inactive    = lifecyclev1alpha1.ResponderStateInactive
	active      = lifecyclev1alpha1.ResponderStateActive
	completed   = lifecyclev1alpha1.ResponderStateCompleted
	interrupted = lifecyclev1alpha1.ResponderStateInterrupted
	canceled    = lifecyclev1alpha1.ResponderStateCanceled
)

// part is the part of a responder in an Eviction. Times are minutes since its start, 0 for none.
type part struct {
	name           string
	state          lifecyclev1alpha1.ResponderStateType
	start, heart   int
	completionTime int
}

var begin = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

func minute(n int) *metav1.Time {
	if n == 0 {
		return nil
	}
	return new(metav1.NewTime(begin.Add(time.Duration(n) * time.Minute)))
}

// newEviction is an open Eviction with a request.
func newEviction(parts ...part) *lifecyclev1alpha1.Eviction {
	eviction := &lifecyclev1alpha1.Eviction{ObjectMeta: metav1.ObjectMeta{
		Namespace: "shop", Name: "pod-1-web", CreationTimestamp: *minute(1), Labels: map[string]string{v1alpha1.EvictionResponder: "responder"},
	}}
	eviction.Spec.Target.Pod = &lifecyclev1alpha1.EvictionPodReference{Name: "web", UID: "uid-web"}
	eviction.Status.Requesters = []lifecyclev1alpha1.Requester{{Name: "example.com/drain", Intent: lifecyclev1alpha1.RequesterIntentEviction}}
	for _, p := range parts {
		eviction.Status.TargetResponders = append(eviction.Status.TargetResponders, lifecyclev1alpha1.TargetResponder{Name: p.name, State: p.state})
		eviction.Status.Responders = append(eviction.Status.Responders, lifecyclev1alpha1.ResponderStatus{
			Name: p.name, StartTime: minute(p.start), HeartbeatTime: minute(p.heart), CompletionTime: minute(p.completionTime),
		})
	}
	return eviction
}

func withdrawn(eviction *lifecyclev1alpha1.Eviction) *lifecyclev1alpha1.Eviction {
	for i := range eviction.Status.Requesters {
		eviction.Status.Requesters[i].Intent = lifecyclev1alpha1.RequesterIntentWithdrawn
	}
	return eviction
}

func final(eviction *lifecyclev1alpha1.Eviction, condition lifecyclev1alpha1.EvictionConditionType) *lifecyclev1alpha1.Eviction {
	eviction.Status.Conditions = []metav1.Condition{{Type: string(condition), Status: metav1.ConditionTrue}}
	return eviction
}

func failed(eviction *lifecyclev1alpha1.Eviction) *lifecyclev1alpha1.Eviction {
	return final(eviction, lifecyclev1alpha1.EvictionConditionFailed)
}

func TestTurns(t *testing.T) {
	const own = v1alpha1.EvictionResponder
	again := newEviction(part{name: own, state: active, start: 9}, part{name: evictor, state: inactive})
	again.CreationTimestamp = *minute(9)
	for name, test := range map[string]struct {
		evictions []*lifecyclev1alpha1.Eviction
		want      step
	}{
		"none":               {nil, nothing},
		"not filled in yet":  {[]*lifecyclev1alpha1.Eviction{newEviction()}, nothing},
		"another one's turn": {[]*lifecyclev1alpha1.Eviction{newEviction(part{name: before, state: active, start: 1}, part{name: own, state: inactive})}, nothing},
		"its turn":           {[]*lifecyclev1alpha1.Eviction{newEviction(part{name: own, state: active, start: 1}, part{name: evictor, state: inactive})}, decide},
		"withdrawn":          {[]*lifecyclev1alpha1.Eviction{withdrawn(newEviction(part{name: own, state: active, start: 1}, part{name: evictor, state: inactive}))}, giveUp},
		"cancelled": {[]*lifecyclev1alpha1.Eviction{
			failed(withdrawn(newEviction(part{name: own, state: canceled, start: 1}, part{name: evictor, state: inactive}))),
		}, giveUp},
		"requested again": {[]*lifecyclev1alpha1.Eviction{
			again, failed(withdrawn(newEviction(part{name: own, state: canceled, start: 1}, part{name: evictor, state: inactive}))),
		}, decide},
		"completed, and the evictor is next": {[]*lifecyclev1alpha1.Eviction{
			newEviction(part{name: own, state: active, start: 1, completionTime: 2}, part{name: evictor, state: inactive}),
		}, nothing},
		"the evictor's turn": {[]*lifecyclev1alpha1.Eviction{
			newEviction(part{name: own, state: completed, start: 1, completionTime: 2}, part{name: evictor, state: active, start: 2}),
		}, nothing},
		"completed, and another one is next": {[]*lifecyclev1alpha1.Eviction{
			newEviction(part{name: own, state: active, start: 1, completionTime: 2}, part{name: deleter, state: inactive}, part{name: evictor, state: inactive}),
		}, hold},
		"the turn of another one that deletes": {[]*lifecyclev1alpha1.Eviction{
			newEviction(part{name: own, state: completed, start: 1, completionTime: 2}, part{name: deleter, state: active, start: 2}, part{name: evictor, state: inactive}),
		}, hold},
		// The pod may be deleted although no budget was asked, so it counts as down.
		"its turn was taken away": {[]*lifecyclev1alpha1.Eviction{
			newEviction(part{name: own, state: interrupted, start: 1}, part{name: deleter, state: active, start: 21}, part{name: evictor, state: inactive}),
		}, hold},
		"the other one has completed": {[]*lifecyclev1alpha1.Eviction{newEviction(part{name: own, state: completed, start: 1, completionTime: 2},
			part{name: deleter, state: completed, start: 2, completionTime: 3}, part{name: evictor, state: active, start: 3})}, nothing},
		"withdrawn in the turn of another one": {[]*lifecyclev1alpha1.Eviction{
			withdrawn(newEviction(part{name: own, state: completed, start: 1, completionTime: 2}, part{name: deleter, state: active, start: 2})),
		}, nothing},
		// It may not have seen that yet.
		"cancelled in the turn of another one": {[]*lifecyclev1alpha1.Eviction{
			failed(withdrawn(newEviction(part{name: own, state: completed, start: 1, completionTime: 2}, part{name: deleter, state: canceled, start: 2}))),
		}, nothing},
		"cancelled in the evictor's turn": {[]*lifecyclev1alpha1.Eviction{
			failed(withdrawn(newEviction(part{name: own, state: completed, start: 2, completionTime: 3}, part{name: evictor, state: canceled, start: 3}))),
		}, giveUp},
		"cancelled after one that came before": {[]*lifecyclev1alpha1.Eviction{failed(withdrawn(newEviction(
			part{name: before, state: completed, start: 1, completionTime: 2}, part{name: own, state: canceled, start: 2}, part{name: evictor, state: inactive})))}, giveUp},
		"evicted": {[]*lifecyclev1alpha1.Eviction{final(
			newEviction(part{name: own, state: completed, start: 1, completionTime: 2}, part{name: evictor, state: completed, start: 2}),
			lifecyclev1alpha1.EvictionConditionTargetEvicted)}, nothing},
	} {
		if got := turnOf(test.evictions); got.step != test.want {
			t.Errorf("%s: the step is %d, want %d", name, got.step, test.want)
		}
	}
}
