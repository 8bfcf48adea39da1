package controller

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/kit/shell"
	"vicinity.dev/vicinity/internal/rollout"
)

const (
	maxHistory = 20
	// maxMessage bounds the message of a condition, in bytes. The API has the same bound.
	maxMessage = 32768
	// maxListed bounds the domains that a condition names.
	maxListed = 20
)

// report returns the status after a step.
func report(d *v1alpha1.DomainRollout, step *rollout.Step, unknown []string, addition string, now time.Time) v1alpha1.DomainRolloutStatus {
	s := *step.Memory.DeepCopy()
	s.ObservedGeneration = d.Generation
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
		valid.Message = fmt.Sprintf("no node has the value %s of %s that spec.order or spec.pauseBefore names; it is skipped", plaintext.FirstOf(unknown, maxListed), d.Spec.TopologyKey)
	}
	setConditions(d, &s, valid, now)
	return s
}

// invalid returns the status while the target cannot be updated. Its memory stays.
func invalid(d *v1alpha1.DomainRollout, p *problem, now time.Time) v1alpha1.DomainRolloutStatus {
	s := *d.Status.DeepCopy()
	s.Phase, s.ObservedGeneration, s.WaitingFor = v1alpha1.PhaseInvalid, d.Generation, p.message
	setConditions(d, &s, metav1.Condition{Type: v1alpha1.ConditionValid, Status: metav1.ConditionFalse, Reason: p.reason, Message: p.message}, now)
	return s
}

// setConditions sets the condition Valid, and the conditions that follow from the rest of a status.
func setConditions(d *v1alpha1.DomainRollout, s *v1alpha1.DomainRolloutStatus, valid metav1.Condition, now time.Time) {
	progressing := metav1.Condition{Type: v1alpha1.ConditionProgressing, Status: metav1.ConditionFalse, Reason: string(s.Phase), Message: s.WaitingFor}
	switch s.Phase {
	case v1alpha1.PhaseProgressing, v1alpha1.PhaseBaking, v1alpha1.PhaseRollingBack:
		progressing.Status = metav1.ConditionTrue
	}
	healthy := metav1.Condition{Type: v1alpha1.ConditionHealthy, Status: metav1.ConditionTrue, Reason: "NoFailure", Message: "no updated pod and no health gate has failed"}
	if f := s.Failure; f != nil {
		healthy.Status, healthy.Reason = metav1.ConditionFalse, f.Reason
		healthy.Message = rollout.Words{Namespace: d.Namespace, Name: d.Name, Key: d.Spec.TopologyKey}.Failure(f)
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

// sameStatus ignores the version of pods, which changes all the time.
func sameStatus(a, b *v1alpha1.DomainRolloutStatus) bool {
	left := *a
	left.PodsObserved = b.PodsObserved
	return equality.Semantic.DeepEqual(&left, b)
}

// unknownDomains returns the domains that a spec names and no node has.
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
