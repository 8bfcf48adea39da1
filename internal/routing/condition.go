package routing

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/intent"
)

// maxMessage is the longest message, which an event can also carry.
const maxMessage = 1000

const hintsLost = "the hints do not stay: another webhook or controller removes them, or Vicinity's webhook for EndpointSlices is not served"

// IsReported reports whether the decision gets a condition. A Service that asks for nothing gets none, nor one that a
// selecting policy does not apply to: each write to a Service wakes all proxies, and a policy or a zone shift may select
// a whole cluster.
func (d Decision) IsReported() bool {
	return d.Delivery != allocate.DeliveryNone && !d.onlyShifted || len(d.Request.Warnings) > d.Request.SelectedWarnings || len(d.Notes) > d.unreported ||
		d.Request.NoPlan != "" && d.Request.Source != "" && !d.Request.Selected && (!d.Request.Headless || !d.Request.AsksNothing())
}

// IsUnremarkable reports whether a Service without a condition gets none for the decision: it has no endpoints yet.
func (d Decision) IsUnremarkable() bool {
	for i := range d.Families {
		if d.Families[i].Outcome.Rule != allocate.RuleNoEndpoints {
			return false
		}
	}
	return d.Delivery != allocate.DeliveryNone && len(d.Notes) == 0 && len(d.Request.Warnings) == 0
}

// Condition returns the outcome for the Service's status. The next decision reads its Reason back. The message has no
// numbers that change often. Only decisions that IsReported accepts are written.
func (d Decision) Condition() metav1.Condition {
	condition := metav1.Condition{Type: v1alpha1.ConditionTopologyRouting, Status: metav1.ConditionFalse}
	var reason Reason
	var sentences []string
	switch {
	case d.Request.NoPlan != "":
		sentences = append(sentences, d.Request.NoPlan)
	case d.Delivery == allocate.DeliveryNone:
		if d.Request.Upstream {
			sentences = append(sentences, "left to Kubernetes: "+d.Request.Source)
		}
	default:
		inForce := d
		if d.Meanwhile != nil {
			inForce = *d.Meanwhile
		}
		var allocated bool
		reason.States, sentences, allocated = inForce.states()
		switch {
		case d.Undelivered:
			reason.Troubles = []Trouble{TroubleNeedsGroups}
			sentences = nil
		case d.Meanwhile != nil && d.Meanwhile.Undelivered:
			reason.Troubles = []Trouble{TroubleAwaitsProxy}
			sentences = []string{awaitsProxy}
			if d.Meanwhile.Delivery == allocate.DeliveryNone {
				sentences = []string{awaitsProxyAlone}
			}
		case allocated:
			condition.Status = metav1.ConditionTrue
		}
		if allocated && d.Request.Headless {
			sentences = append(sentences, deliveredToDNS)
		}
		if condition.Status == metav1.ConditionTrue && inForce.hasUnreachedZones() {
			sentences = append(sentences, someUnreached)
		}
		sentences = append(sentences, d.byPolicy()...)
	}
	sentences = slices.Concat(sentences, d.Notes, d.Request.Warnings)
	condition.Reason, condition.Message = reason.String(), truncate(strings.Join(sentences, ". "))
	return condition
}

// byPolicy says what a policy does for what the Service itself asks for.
func (d Decision) byPolicy() (sentences []string) {
	if by := d.Request.BoundBy; by != "" {
		sentences = append(sentences, "bounded by "+by)
	}
	if by := d.Request.GroupsBy; d.Request.Groups && by != intent.ProxyAnnotation {
		sentences = append(sentences, "delivered by groups because of "+by)
	}
	return sentences
}

const awaitsProxy = "vicinity-proxy does not serve the Service yet, and hints cannot express its plan: until then all zones use all endpoints"

const awaitsProxyAlone = "vicinity-proxy does not serve the Service yet, and " + intent.HintsAreOff + ": until then all zones use all endpoints"

const deliveredToDNS = "delivered to DNS servers: vicinity-dns follows the plan; other servers give all endpoints to every client"

const someUnreached = "some zones reach no endpoint, because the requirement allows no farther one"

// hasUnreachedZones reports whether a zone reaches no endpoint although endpoints are ready.
func (d Decision) hasUnreachedZones() bool {
	return slices.ContainsFunc(d.Families, func(f FamilyDecision) bool {
		return f.Outcome.Figures.Unreached > 0 && len(f.Endpoints) > 0
	})
}

// states returns the states and the outcome sentences of the families, one each if all families agree.
func (d Decision) states() (states []FamilyState, outcomes []string, allocated bool) {
	for i := range d.Families {
		f := &d.Families[i]
		states = append(states, FamilyState{f.Family, f.Outcome.State})
		outcomes = append(outcomes, explain.Brief(f.Outcome))
		allocated = allocated || !f.Outcome.IsBalanced()
	}
	switch {
	case len(states) == 0:
		return []FamilyState{{State: allocate.Waiting}}, []string{"balanced: no endpoint is ready"}, false
	case !slices.ContainsFunc(states, func(s FamilyState) bool { return s.State != states[0].State }):
		states = []FamilyState{{State: states[0].State}}
	}
	if !slices.ContainsFunc(outcomes, func(text string) bool { return text != outcomes[0] }) {
		return states, outcomes[:1], allocated
	}
	for i := range outcomes {
		outcomes[i] = string(d.Families[i].Family) + ": " + outcomes[i]
	}
	return states, outcomes, allocated
}

// AddTo adds a trouble to the condition, which is false then.
func (t Trouble) AddTo(condition metav1.Condition, sentence string) metav1.Condition {
	condition.Status = metav1.ConditionFalse
	condition.Reason += "," + string(t)
	condition.Message = truncate(strings.TrimSuffix(sentence+". "+condition.Message, ". "))
	return condition
}

// WithHintsLost changes the condition to say that hints do not stay.
func WithHintsLost(condition metav1.Condition) metav1.Condition {
	return TroubleHintsLost.AddTo(condition, hintsLost)
}

// WithNotWritten changes the condition to say that the decision cannot be written.
func WithNotWritten(condition metav1.Condition, cause error) metav1.Condition {
	return TroubleNotWritten.AddTo(condition, "the decision cannot be written: "+strings.TrimSuffix(cause.Error(), "."))
}

func truncate(text string) string {
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
