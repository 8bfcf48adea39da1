package routing

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
)

// states are the states of a Service's families, as its condition keeps them.
type states map[corev1.IPFamily]allocate.State

// anyFamily is the family of a state that holds for all.
const anyFamily corev1.IPFamily = ""

func (s states) of(family corev1.IPFamily) allocate.State {
	if state, found := s[family]; found {
		return state
	}
	return s[anyFamily]
}

// Words in the reason of the condition beside the states.
const (
	wordNeedsGroups        = "NeedsGroups"
	wordHintsLost          = "HintsLost"
	wordHintsDropped       = "HintsDropped"
	wordProxiesIgnoreHints = "ProxiesIgnoreHints"
	wordAwaitsProxy        = "AwaitsProxy"
	wordNotRouted          = "NotRouted"
	wordNotWritten         = "NotWritten"
)

// Words of the states.
var stateWords = map[string]allocate.State{
	"Waiting":    allocate.Waiting,
	"Allocated":  allocate.Allocated,
	"Downgraded": allocate.Downgraded,
}

func stateWord(state allocate.State) string {
	for word, s := range stateWords {
		if s == state {
			return word
		}
	}
	return ""
}

// ConditionOf is the condition of a Service that keeps its outcome, or nil.
func ConditionOf(service *corev1.Service) *metav1.Condition {
	for i := range service.Status.Conditions {
		if service.Status.Conditions[i].Type == v1alpha1.ConditionTopologyRouting {
			return &service.Status.Conditions[i]
		}
	}
	return nil
}

// readStates reads the reason that Decision.Condition writes. What it does not know
// it leaves out: a Service of which nothing is known is one that has not started.
func readStates(service *corev1.Service) states {
	known := states{}
	condition := ConditionOf(service)
	if condition == nil {
		return known
	}
	for part := range strings.SplitSeq(condition.Reason, ",") {
		family, word, qualified := strings.Cut(part, ":")
		if !qualified {
			family, word = string(anyFamily), part
		}
		if state, found := stateWords[word]; found {
			known[corev1.IPFamily(family)] = state
		}
	}
	return known
}
