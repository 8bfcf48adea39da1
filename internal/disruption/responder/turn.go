package responder

import (
	"slices"

	lifecyclev1alpha1 "k8s.io/api/lifecycle/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"

	"vicinity.dev/vicinity/api/v1alpha1"
)

// turn is the next step of the responder for a pod.
type turn struct {
	step step
	// eviction is the Eviction that asks for the step, nil without one.
	eviction *lifecyclev1alpha1.Eviction
}

type step int

const (
	// nothing: it is not the responder's turn.
	nothing step = iota
	// decide whether the pod may go.
	decide
	// hold the reservations: another responder may delete the pod.
	hold
	// giveUp the reservations: the eviction is cancelled, and no responder may delete the pod.
	giveUp
)

// turnOf returns the turn by the Evictions of a pod. An open Eviction takes precedence over ended ones, because a new request makes a new
// Eviction.
func turnOf(evictions []*lifecyclev1alpha1.Eviction) turn {
	slices.SortFunc(evictions, func(a, b *lifecyclev1alpha1.Eviction) int {
		return a.CreationTimestamp.Compare(b.CreationTimestamp.Time)
	})
	last := turn{}
	for _, eviction := range evictions {
		if !isFinal(eviction) {
			return turn{stepOf(eviction), eviction}
		}
		last = turn{stepOf(eviction), eviction}
	}
	return last
}

func isFinal(eviction *lifecyclev1alpha1.Eviction) bool {
	return isTrue(eviction, lifecyclev1alpha1.EvictionConditionFailed) || isTrue(eviction, lifecyclev1alpha1.EvictionConditionTargetEvicted)
}

func isTrue(eviction *lifecyclev1alpha1.Eviction, condition lifecyclev1alpha1.EvictionConditionType) bool {
	return meta.IsStatusConditionTrue(eviction.Status.Conditions, string(condition))
}

func stepOf(eviction *lifecyclev1alpha1.Eviction) step {
	state, report, ok := ownOf(eviction)
	switch {
	case !ok, state == lifecyclev1alpha1.ResponderStateInactive, isTrue(eviction, lifecyclev1alpha1.EvictionConditionTargetEvicted):
		return nothing
	case state == lifecyclev1alpha1.ResponderStateActive && report.CompletionTime == nil && !isFinal(eviction):
		if isWithdrawn(eviction) {
			// Kubernetes cancels it. The responder does not complete: after a new request in between, the next responder would have
			// its turn.
			return giveUp
		}
		return decide
	case isFinal(eviction) && !othersCame(eviction, report):
		return giveUp
	case !isFinal(eviction) && !isWithdrawn(eviction) && othersLeft(eviction):
		return hold
	}
	return nothing
}

// ownOf returns the state and the report of this responder in an Eviction.
func ownOf(eviction *lifecyclev1alpha1.Eviction) (lifecyclev1alpha1.ResponderStateType, *lifecyclev1alpha1.ResponderStatus, bool) {
	for _, responder := range eviction.Status.TargetResponders {
		for i := range eviction.Status.Responders {
			if responder.Name == v1alpha1.EvictionResponder && eviction.Status.Responders[i].Name == responder.Name {
				return responder.State, &eviction.Status.Responders[i], true
			}
		}
	}
	return "", nil, false
}

// isWithdrawn reports whether all requests are withdrawn.
func isWithdrawn(eviction *lifecyclev1alpha1.Eviction) bool {
	return len(eviction.Status.Requesters) > 0 && !slices.ContainsFunc(eviction.Status.Requesters, func(r lifecyclev1alpha1.Requester) bool {
		return r.Intent != lifecyclev1alpha1.RequesterIntentWithdrawn
	})
}

// deletes reports whether a responder may delete the pod without asking the webhook.
func deletes(name string) bool {
	return name != v1alpha1.EvictionResponder && name != lifecyclev1alpha1.EvictionResponderImperativeEviction
}

// othersLeft reports whether another responder may delete the pod, now or later.
func othersLeft(eviction *lifecyclev1alpha1.Eviction) bool {
	return slices.ContainsFunc(eviction.Status.TargetResponders, func(r lifecyclev1alpha1.TargetResponder) bool {
		return deletes(r.Name) && (r.State == lifecyclev1alpha1.ResponderStateActive || r.State == lifecyclev1alpha1.ResponderStateInactive)
	})
}

// othersCame reports whether such a responder had its turn after this one.
func othersCame(eviction *lifecyclev1alpha1.Eviction, own *lifecyclev1alpha1.ResponderStatus) bool {
	return slices.ContainsFunc(eviction.Status.Responders, func(r lifecyclev1alpha1.ResponderStatus) bool {
		return deletes(r.Name) && r.StartTime != nil && (own.StartTime == nil || !r.StartTime.Before(own.StartTime))
	})
}
