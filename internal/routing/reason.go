package routing

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// Reason is the content of the reason of a Service's condition: words with commas between, which the next decision
// reads back.
type Reason struct {
	// States has one state for each family, or one without a family if all agree. It is empty if nothing is routed.
	States []FamilyState
	// Troubles keep the plan from being in force. The last one matters most.
	Troubles []Trouble
}

// FamilyState is the state of an address family, or of all families if that is empty.
type FamilyState struct {
	Family corev1.IPFamily
	State  allocate.State
}

// Trouble keeps a plan from being in force. It is a word of a reason.
type Trouble string

// The troubles.
const (
	TroubleNeedsGroups Trouble = "NeedsGroups"
	TroubleAwaitsProxy Trouble = "AwaitsProxy"
	TroubleHintsLost   Trouble = "HintsLost"
	TroubleNotWritten  Trouble = "NotWritten"
	TroubleNotInForce  Trouble = "NotInForce"
)

var troubles = []Trouble{TroubleNeedsGroups, TroubleAwaitsProxy, TroubleHintsLost, TroubleNotWritten, TroubleNotInForce}

const wordNotRouted = "NotRouted"

var stateWords = map[allocate.State]string{
	allocate.Waiting:    "Waiting",
	allocate.Allocated:  "Allocated",
	allocate.Downgraded: "Downgraded",
}

// String is the state as a word of a reason.
func (s FamilyState) String() string {
	if s.Family == "" {
		return stateWords[s.State]
	}
	return string(s.Family) + ":" + stateWords[s.State]
}

// String is the reason as conditions store it.
func (r Reason) String() string {
	var words []string
	for _, state := range r.States {
		words = append(words, state.String())
	}
	if len(words) == 0 {
		words = append(words, wordNotRouted)
	}
	for _, trouble := range r.Troubles {
		words = append(words, string(trouble))
	}
	return strings.Join(words, ",")
}

// ReadReason parses the form that String writes, and skips unknown words.
func ReadReason(text string) Reason {
	var r Reason
	for word := range strings.SplitSeq(text, ",") {
		family, name, qualified := strings.Cut(word, ":")
		if !qualified {
			family, name = "", word
		}
		for state, known := range stateWords {
			if known == name {
				r.States = append(r.States, FamilyState{corev1.IPFamily(family), state})
			}
		}
		if trouble := Trouble(word); slices.Contains(troubles, trouble) {
			r.Troubles = append(r.Troubles, trouble)
		}
	}
	return r
}

// isUnwritten reports whether a trouble kept the plan from being written.
func (r Reason) isUnwritten() bool {
	return slices.ContainsFunc(r.Troubles, func(t Trouble) bool { return t != TroubleNotInForce })
}

// IsBalanced reports whether all zones use all endpoints.
func (r Reason) IsBalanced() bool {
	return !slices.ContainsFunc(r.States, func(s FamilyState) bool { return s.State == allocate.Allocated })
}

// State returns the state of a family, Waiting if it is unknown.
func (r Reason) State(family corev1.IPFamily) allocate.State {
	state := allocate.Waiting
	for _, s := range r.States {
		switch s.Family {
		case family:
			return s.State
		case "":
			state = s.State
		}
	}
	return state
}

// Event returns the reason of the event that reports a condition with this reason, and whether it is a warning.
func (r Reason) Event() (reason string, warning bool) {
	switch {
	case len(r.Troubles) > 0:
		trouble := r.Troubles[len(r.Troubles)-1]
		return "Topology" + string(trouble), trouble != TroubleAwaitsProxy
	case len(r.States) > 1: // the families differ
		return "TopologyRouting", false
	case len(r.States) == 0:
		return "Topology" + wordNotRouted, false
	}
	return "Topology" + stateWords[r.States[0].State], r.States[0].State == allocate.Downgraded
}

// ConditionOf returns the condition of a Service with its outcome, or nil.
func ConditionOf(service *corev1.Service) *metav1.Condition {
	return meta.FindStatusCondition(service.Status.Conditions, v1alpha1.ConditionTopologyRouting)
}

func reasonOf(service *corev1.Service) Reason {
	if condition := ConditionOf(service); condition != nil {
		return ReadReason(condition.Reason)
	}
	return Reason{}
}

// IsOn reports whether the Service's condition has the trouble.
func (t Trouble) IsOn(service *corev1.Service) bool {
	return slices.Contains(reasonOf(service).Troubles, t)
}
