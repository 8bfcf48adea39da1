package rollout

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/controller/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	maxHistory = 20
	maxDomains = 500
	// maxMessage is how many bytes of a condition's message the API server takes.
	maxMessage = 32768
	// maxListed is how many domains a condition names.
	maxListed = 20
)

// memoryOf reads what a status remembers.
func memoryOf(s *v1alpha1.DomainRolloutStatus) rollout.Memory {
	m := rollout.Memory{
		Phase: rollout.Phase(s.Phase), Revision: s.Revision, Previous: s.PreviousRevision, Abandoned: s.AbandonedRevisions,
		RollingBack: s.RollingBack, Wave: int(s.Wave), Current: s.CurrentDomains, Last: s.LastDomains, Proven: int(s.ProvenDomains),
		QueryPassed: s.QueryPassed,
	}
	if s.Phase == v1alpha1.PhaseInvalid {
		m.Phase = phaseBefore(s)
	}
	if s.BakingSince != nil {
		m.BakingSince = s.BakingSince.Time
	}
	if f := s.Failure; f != nil {
		m.Failure = &rollout.Failure{Reason: rollout.FailureReason(f.Reason), Domain: f.Domain, Pod: f.Pod, At: f.Time.Time}
	}
	for _, e := range s.Replacements {
		m.Replacements = append(m.Replacements, rollout.Replacement{
			Slot: e.Slot, Domain: e.Domain, Pod: e.Pod, UID: string(e.UID), Stage: rollout.Stage(e.Stage), Since: e.Since.Time, IfUnready: e.IfUnready,
		})
	}
	return m
}

// phaseBefore is the phase that a rollout had before it could not be followed, as far as it matters: one that
// was complete leaves a revision to go back to.
func phaseBefore(s *v1alpha1.DomainRolloutStatus) rollout.Phase {
	if len(s.CurrentDomains) > 0 || len(s.Replacements) > 0 || s.Failure != nil {
		return rollout.Waiting
	}
	for i := range s.Domains {
		if s.Domains[i].State != v1alpha1.DomainDone {
			return rollout.Waiting
		}
	}
	return rollout.Complete
}

// remember writes what has to be remembered to a status.
func remember(s *v1alpha1.DomainRolloutStatus, m *rollout.Memory) {
	s.Phase, s.Revision, s.PreviousRevision, s.AbandonedRevisions = v1alpha1.RolloutPhase(m.Phase), m.Revision, m.Previous, m.Abandoned
	s.RollingBack, s.Wave, s.CurrentDomains, s.LastDomains = m.RollingBack, int32(m.Wave), m.Current, m.Last
	s.ProvenDomains, s.QueryPassed = int32(m.Proven), m.QueryPassed
	s.BakingSince, s.Failure, s.Replacements = nil, nil, nil
	if !m.BakingSince.IsZero() {
		s.BakingSince = &metav1.Time{Time: m.BakingSince}
	}
	if f := m.Failure; f != nil {
		s.Failure = &v1alpha1.RolloutFailure{Reason: string(f.Reason), Domain: f.Domain, Pod: f.Pod, Time: metav1.NewTime(f.At)}
	}
	for _, e := range m.Replacements {
		s.Replacements = append(s.Replacements, v1alpha1.RolloutReplacement{
			Slot: e.Slot, Domain: e.Domain, Pod: e.Pod, UID: types.UID(e.UID), Stage: string(e.Stage), Since: metav1.NewTime(e.Since), IfUnready: e.IfUnready,
		})
	}
}

// report is a status after a step.
func report(d *v1alpha1.DomainRollout, step *rollout.Step, unknown []string, addition string, now time.Time) v1alpha1.DomainRolloutStatus {
	s := *d.Status.DeepCopy()
	remember(&s, &step.Memory)
	s.ObservedGeneration, s.Domains = d.Generation, nil
	for _, domain := range step.Domains[:min(len(step.Domains), maxDomains)] {
		s.Domains = append(s.Domains, v1alpha1.RolloutDomain{
			Name: domain.Name, Pods: int32(domain.Pods), Updated: int32(domain.Updated), Healthy: int32(domain.Healthy),
			Unavailable: int32(domain.Unavailable), State: v1alpha1.RolloutDomainState(domain.State),
		})
	}
	words := rollout.Words{Namespace: d.Namespace, Name: d.Name, Key: d.Spec.TopologyKey}
	s.WaitingFor = words.Waiting(step.Wait)
	if addition != "" {
		s.WaitingFor = strings.TrimPrefix(s.WaitingFor+": "+addition, ": ")
	}
	for _, e := range step.Events {
		s.History = append(s.History, v1alpha1.RolloutTransition{
			Time: metav1.NewTime(now.Truncate(time.Second)), Event: string(e.Type), Revision: s.Revision, Domains: e.Domains, Message: words.Event(e, s.Revision),
		})
	}
	s.History = s.History[max(0, len(s.History)-maxHistory):]
	valid := metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionTrue, Reason: reasonValid, Message: "the target can be updated by domain"}
	if len(unknown) > 0 {
		valid.Status, valid.Reason = metav1.ConditionFalse, reasonNoDomain
		valid.Message = fmt.Sprintf("no node has the value %s of %s, which spec.order or spec.pauseBefore names; it is passed over", listed(unknown), d.Spec.TopologyKey)
	}
	setConditions(d, &s, valid, now)
	return s
}

// listed names the first of some domains: a condition has room for few.
func listed(names []string) string {
	first := names[:min(len(names), maxListed)]
	if left := len(names) - len(first); left > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(first, ", "), left)
	}
	return strings.Join(first, ", ")
}

// invalid is a status while the target cannot be updated. What it remembers stays.
func invalid(d *v1alpha1.DomainRollout, p *problem, now time.Time) v1alpha1.DomainRolloutStatus {
	s := *d.Status.DeepCopy()
	s.Phase, s.ObservedGeneration, s.WaitingFor = v1alpha1.PhaseInvalid, d.Generation, p.message
	setConditions(d, &s, metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionFalse, Reason: p.reason, Message: p.message}, now)
	return s
}

// setConditions has the condition Valid, and those that follow from the rest of a status.
func setConditions(d *v1alpha1.DomainRollout, s *v1alpha1.DomainRolloutStatus, valid metav1.Condition, now time.Time) {
	progressing := metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: string(s.Phase), Message: s.WaitingFor}
	switch s.Phase {
	case v1alpha1.PhaseProgressing, v1alpha1.PhaseBaking, v1alpha1.PhaseRollingBack:
		progressing.Status = metav1.ConditionTrue
	}
	healthy := metav1.Condition{Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionTrue, Reason: "NoFailure", Message: "no updated pod and no health gate has failed"}
	if f := s.Failure; f != nil {
		healthy.Status, healthy.Reason = metav1.ConditionFalse, f.Reason
		healthy.Message = rollout.Words{Namespace: d.Namespace, Name: d.Name, Key: d.Spec.TopologyKey}.Failure(memoryOf(s).Failure)
	}
	for _, c := range []metav1.Condition{valid, progressing, healthy} {
		before := meta.FindStatusCondition(s.Conditions, c.Type)
		c.ObservedGeneration = d.Generation
		c.Message = strings.ToValidUTF8(c.Message[:min(len(c.Message), maxMessage)], "") // a webhook that refuses an eviction may say anything
		c = shell.Transition(before, c, now)
		if before != nil {
			*before = c
		} else {
			s.Conditions = append(s.Conditions, c)
		}
	}
}

// sameStatus compares but for the version of pods, which changes all the time.
func sameStatus(a, b *v1alpha1.DomainRolloutStatus) bool {
	left := *a
	left.PodsObserved = b.PodsObserved
	return equality.Semantic.DeepEqual(&left, b)
}

// unknownDomains are those that a spec names and no node has.
func unknownDomains(s *v1alpha1.DomainRolloutSpec, known map[string]bool) []string {
	var unknown []string
	for _, name := range slices.Concat(s.Order, s.PauseBefore) {
		if !known[name] && !slices.Contains(unknown, name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return unknown
}
