package routing

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/translate"
)

// maxMessage is the length that a message is cut to: what an event can carry, too.
const maxMessage = 1000

// HintsLost is what the condition says while something takes the hints away.
const HintsLost = "the hints do not stay: something removes them, as Kubernetes does where Vicinity's webhook is not served"

// IsReported reports whether there is anything to keep of the decision. Of a Service
// that asks for nothing there is not, nor of one that a policy chose which has no use for
// it: each write to a Service wakes all proxies, and a policy may choose a whole cluster.
func (d Decision) IsReported() bool {
	return d.Delivery != DeliveryNone || len(d.Request.Warnings) > d.Request.SelectedWarnings || len(d.Notes) > d.unreported ||
		d.Request.NoPlan != "" && d.Request.Source != "" && !d.Request.Selected
}

// Condition keeps the outcome in the Service's status. Its reason is the state, of
// each family if they differ, which the next decision reads back; its message is in
// words without numbers that change. Only what IsReported should be written.
func (d Decision) Condition() metav1.Condition {
	condition := metav1.Condition{
		Type:   v1alpha1.ConditionTopologyRouting,
		Status: metav1.ConditionFalse,
		Reason: wordNotRouted,
	}
	var sentences []string
	switch {
	case d.Request.NoPlan != "":
		sentences = append(sentences, d.Request.NoPlan)
	case d.Delivery == DeliveryNone:
		if d.Request.Upstream {
			sentences = append(sentences, "left to Kubernetes: "+d.Request.Source)
		}
	default:
		inForce := d
		if d.Meanwhile != nil {
			inForce = *d.Meanwhile // which may have another algorithm
		}
		words, outcomes, allocated := inForce.states()
		condition.Reason = strings.Join(words, ",")
		sentences = outcomes
		switch {
		case d.Undelivered:
			condition.Reason += "," + wordNeedsGroups
			sentences = nil
		case d.Meanwhile != nil && d.Meanwhile.Undelivered:
			condition.Reason += "," + wordAwaitsProxy
			sentences = []string{awaitsProxy}
			if d.Meanwhile.Delivery == DeliveryNone {
				sentences = []string{awaitsProxyAlone}
			}
		case allocated && inForce.Ignored != IgnoredNone:
			condition.Reason += "," + wordProxiesIgnoreHints
		case allocated:
			condition.Status = metav1.ConditionTrue
		}
		if condition.Status == metav1.ConditionTrue && inForce.leavesZones() {
			sentences = append(sentences, unreached)
		}
	}
	sentences = slices.Concat(sentences, d.Notes, d.Request.Warnings)
	condition.Message = cut(strings.Join(sentences, ". "))
	return condition
}

// awaitsProxy is what the condition says while nobody does what is asked for.
const awaitsProxy = "vicinity-proxy does not serve the Service yet, and hints cannot express what is asked for: until then all zones use all endpoints"

// awaitsProxyAlone is the same where there are no hints at all.
const awaitsProxyAlone = "vicinity-proxy does not serve the Service yet, and " + translate.HintsAreOff + ": until then all zones use all endpoints"

// unreached is what the condition says of zones that what is asked for keeps from all
// endpoints.
const unreached = "there are zones that reach no endpoint, since what is asked for allows no farther one"

// leavesZones reports whether there are endpoints, and zones that reach none.
func (d Decision) leavesZones() bool {
	return slices.ContainsFunc(d.Families, func(f FamilyDecision) bool {
		return f.Outcome.Figures.Unreached > 0 && len(f.Endpoints) > 0
	})
}

// states are the words and the sentences of the families, one if all agree. A Service
// without slices waits for endpoints.
func (d Decision) states() (words, outcomes []string, allocated bool) {
	for i := range d.Families {
		f := &d.Families[i]
		words = append(words, string(f.Family)+":"+stateWord(f.Outcome.State))
		outcomes = append(outcomes, string(f.Family)+": "+explain.Brief(f.Outcome))
		allocated = allocated || !f.Outcome.IsBalanced()
	}
	if len(words) == 0 {
		return []string{stateWord(allocate.Waiting)}, []string{"balanced: no endpoint is ready"}, false
	}
	return agreed(words, d.Families, ":"), agreed(outcomes, d.Families, ": "), allocated
}

// agreed takes the families away if all say the same.
func agreed(texts []string, families []FamilyDecision, separator string) []string {
	first := strings.TrimPrefix(texts[0], string(families[0].Family)+separator)
	for i := range texts {
		if texts[i] != string(families[i].Family)+separator+first {
			return texts
		}
	}
	return []string{first}
}

// WithHintsLost is the condition while the hints that were written do not stay.
func WithHintsLost(condition metav1.Condition) metav1.Condition {
	condition.Status = metav1.ConditionFalse
	condition.Reason += "," + wordHintsLost
	condition.Message = cut(HintsLost + ". " + condition.Message)
	return condition
}

// WithHintsDropped is the condition while the API server does not store the hints that
// are written.
func WithHintsDropped(condition metav1.Condition, loss Loss) metav1.Condition {
	condition.Status = metav1.ConditionFalse
	condition.Reason += "," + wordHintsDropped
	condition.Message = cut(string(loss) + ". " + condition.Message)
	return condition
}

// DroppedHints reports whether the Service's condition says that what was written is not
// stored.
func DroppedHints(service *corev1.Service) bool { return hasWord(service, wordHintsDropped) }

// LostHints reports whether the Service's condition says that hints did not stay.
func LostHints(service *corev1.Service) bool { return hasWord(service, wordHintsLost) }

// hasWord reports whether a word is in the reason of the Service's condition.
func hasWord(service *corev1.Service, word string) bool {
	condition := ConditionOf(service)
	return condition != nil && slices.Contains(strings.Split(condition.Reason, ","), word)
}

// WithNotWritten is the condition while what was decided cannot be written.
func WithNotWritten(condition metav1.Condition, cause error) metav1.Condition {
	condition.Status = metav1.ConditionFalse
	condition.Reason += "," + wordNotWritten
	condition.Message = cut(strings.TrimSuffix("what was decided cannot be written: "+strings.TrimSuffix(cause.Error(), ".")+". "+condition.Message, ". "))
	return condition
}

// NotWritten reports whether the Service's condition says that what was decided could
// not be written.
func NotWritten(service *corev1.Service) bool { return hasWord(service, wordNotWritten) }

// cut shortens a text, at a rune.
func cut(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	const more = " ..."
	end := 0
	for i := range text {
		if i > maxMessage-len(more) {
			break
		}
		end = i
	}
	return text[:end] + more
}
