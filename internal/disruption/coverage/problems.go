package coverage

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

const (
	// maxMessage bounds the message of a condition, in bytes. The API has the same bound.
	maxMessage = 32768
	// mostNamed bounds the things that a sentence names.
	mostNamed = 5
)

// Reasons of the conditions Valid and Satisfiable, the most severe first.
const (
	ReasonInvalid        = "Invalid"        // the spec is invalid
	ReasonNoNodes        = "NoNodes"        // no node is covered
	ReasonBlocked        = "Blocked"        // some pods can never be evicted
	ReasonNodeWithoutKey = "NodeWithoutKey" // pods are on nodes without a domain
	ReasonSatisfiable    = "Satisfiable"
	ReasonValid          = "Valid"
)

// Finding is a problem or a note about a budget, for people.
type Finding struct {
	Reason  string
	Message string
	// Note says that the finding is not a problem of the budget.
	Note bool
}

// Problems returns the conditions Valid and Satisfiable of a budget, without times.
func Problems(w World, s disruption.State, m disruption.Measures) []metav1.Condition {
	valid := metav1.Condition{
		Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, ObservedGeneration: w.Budget.Generation,
		Reason: ReasonValid, Message: "The spec is valid.",
	}
	satisfiable := metav1.Condition{
		Type: v1alpha1.ConditionSatisfiable, Status: metav1.ConditionTrue, ObservedGeneration: w.Budget.Generation,
		Reason: ReasonSatisfiable, Message: "Every domain can spare a pod when all are healthy.",
	}
	if s.Budget.Invalid != "" {
		valid.Status, valid.Reason = metav1.ConditionFalse, ReasonInvalid
		valid.Message = plaintext.Cut(s.Budget.Invalid+". No pod that the selector matches may be evicted until the spec is corrected.", maxMessage)
		satisfiable.Status, satisfiable.Reason, satisfiable.Message = metav1.ConditionUnknown, ReasonInvalid, "The spec is invalid."
		return []metav1.Condition{valid, satisfiable}
	}
	var messages []string
	for _, found := range Findings(w, s, m) {
		if !found.Note && satisfiable.Status == metav1.ConditionTrue {
			satisfiable.Status, satisfiable.Reason = metav1.ConditionFalse, found.Reason
		}
		messages = append(messages, found.Message)
	}
	if len(messages) > 0 {
		satisfiable.Message = plaintext.Cut(strings.Join(messages, " "), maxMessage)
	}
	return []metav1.Condition{valid, satisfiable}
}

// Findings returns sentences about a valid budget, the most severe first and notes last.
func Findings(w World, s disruption.State, m disruption.Measures) []Finding {
	_, term := BudgetOf(w.Budget)
	f := finder{world: w, state: s, measures: m, term: term}
	f.noNodes()
	f.blocked()
	f.uncovered()
	f.owners()
	return f.found
}

type finder struct {
	world    World
	state    disruption.State
	measures disruption.Measures
	term     *Term
	found    []Finding
}

func (f *finder) add(reason, format string, args ...any) {
	f.found = append(f.found, Finding{Reason: reason, Message: fmt.Sprintf(format, args...)})
}

func (f *finder) note(format string, args ...any) {
	f.found = append(f.found, Finding{Reason: ReasonSatisfiable, Message: fmt.Sprintf(format, args...), Note: true})
}

// noNodes reports a term that matches no node.
func (f *finder) noNodes() {
	if f.term.All() || len(f.world.Nodes) == 0 {
		return
	}
	without := map[string]int{}
	for _, node := range f.world.Nodes {
		if _, covered := f.term.Domain(node.Labels); covered {
			return
		}
		for _, key := range f.term.Missing(node.Labels) {
			without[key]++
		}
	}
	message := fmt.Sprintf("spec.nodeSelectorTerm matches none of the %s, so no pod is covered.", plaintext.Count(int64(len(f.world.Nodes)), "node", "nodes"))
	for _, key := range slices.Sorted(maps.Keys(without)) {
		message += fmt.Sprintf(" %s without the label %s.", plaintext.Count(int64(without[key]), "node is", "nodes are"), key)
	}
	f.add(ReasonNoNodes, "%s", message)
}

// blocked reports pods that can never be evicted, even if all are healthy. If other domains are free, that is intended.
func (f *finder) blocked() {
	b := f.state.Budget
	if len(b.Free) > 0 {
		return
	}
	for _, limit := range []struct {
		name string
		none bool
	}{
		{"maxUnavailable", isNone(b.MaxUnavailable)},
		{"maxUnavailableTotal", isNone(b.MaxTotal)},
		{"maxUnavailableDomains", b.MaxDomains != nil && *b.MaxDomains == 0},
	} {
		if limit.none {
			f.add(ReasonBlocked, "spec.%s is 0, so no healthy pod can ever be evicted. Raise it.", limit.name)
			return
		}
	}
	if len(f.measures.Blocked) == 0 {
		return
	}
	there := map[disruption.DomainKey]int{}
	for i := range f.state.Pods {
		if pod := &f.state.Pods[i]; pod.Place == disruption.Covered && !pod.Finished {
			there[disruption.DomainKey{Group: pod.Group, Domain: pod.Domain}]++
		}
	}
	shares := make([]string, len(f.measures.Blocked))
	for i, m := range f.measures.Blocked {
		shares[i] = fmt.Sprintf("%s has %s and must keep %d (its even share is %d)", f.name(m.Group, m.Domain),
			plaintext.Count(int64(there[disruption.DomainKey{Group: m.Group, Domain: m.Domain}]), "pod", "pods"), m.Desired, m.Expected)
	}
	advice := "Lower spec.minAvailable, or have more replicas."
	if len(f.state.Domains) > 1 {
		advice = "Lower spec.minAvailable, use spec.maxUnavailable, or spread the pods evenly."
	}
	f.add(ReasonBlocked, "No healthy pod can ever be evicted where the budget needs all of them: %s. %s", plaintext.FirstOf(shares, mostNamed), advice)
}

// name names a domain of a group in a sentence.
func (f *finder) name(group, domain string) string {
	var words []string
	if len(f.term.keys) > 0 {
		words = append(words, fmt.Sprintf("domain %q", domain))
	}
	if f.world.Budget.Spec.GroupBy != "" {
		words = append(words, fmt.Sprintf("group %q", group))
	}
	if len(words) == 0 {
		return "the budget"
	}
	return strings.Join(words, " of ")
}

func isNone(amount *disruption.Amount) bool { return amount != nil && amount.Value == 0 }

// uncovered reports pods on nodes outside the budget, and free domains.
func (f *finder) uncovered() {
	if f.term.All() {
		return
	}
	selector := Selector(f.world.Budget)
	lacking, lackingNodes, keys := 0, map[string]bool{}, map[string]bool{}
	outside := 0
	for _, pod := range f.world.Pods {
		node := f.world.Nodes[pod.Spec.NodeName]
		if node == nil || isFinished(pod) || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if _, covered := f.term.Domain(node.Labels); covered {
			continue
		}
		missing := f.term.Missing(node.Labels)
		if len(missing) == 0 {
			outside++
			continue
		}
		lacking++
		lackingNodes[node.Name] = true
		for _, key := range missing {
			keys[key] = true
		}
	}
	if lacking > 0 {
		f.add(ReasonNodeWithoutKey, "%s not covered, because the nodes lack the label %s: %s.", plaintext.Count(int64(lacking), "pod is", "pods are"),
			strings.Join(slices.Sorted(maps.Keys(keys)), ", "), plaintext.FirstOf(slices.Sorted(maps.Keys(lackingNodes)), mostNamed))
	}
	if text := f.state.Budget.OnlyFree(); text != "" {
		f.note("%s", text)
	}
	if outside > 0 {
		f.note("%s not covered, because spec.nodeSelectorTerm leaves out the nodes.", plaintext.Count(int64(outside), "pod is", "pods are"))
	}
}

// owners reports owners whose number of replicas is unknown.
func (f *finder) owners() {
	known, selector, ids := workloadsByUID(f.world.Workloads), Selector(f.world.Budget), map[string]bool{}
	for _, pod := range f.world.Pods {
		ref := controllerOf(pod)
		if ref == nil || !selector.Matches(labels.Set(pod.Labels)) {
			continue
		}
		if owner := known[ref.UID]; owner == nil && !ref.hasNoReplicas() || owner != nil && owner.AsIs {
			ids[ref.ID()] = true
		}
	}
	if len(ids) > 0 {
		f.note("The number of replicas of %s is unknown, so only existing pods count and missing pods go unnoticed.",
			plaintext.FirstOf(slices.Sorted(maps.Keys(ids)), mostNamed))
	}
}
