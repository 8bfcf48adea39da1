package rollout_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/rollout"
	"vicinity.dev/vicinity/test/golden"
)

var evening = time.Date(2026, 3, 1, 23, 0, 0, 0, time.UTC)

// database has two pods in each of three zones. The pods of zone a are updated.
func database() *rollout.State {
	s := &rollout.State{
		Revision: "db-2",
		Spec: rollout.Spec{
			MaxUnavailable: rollout.Amount{Value: 1}, Deadline: 10 * time.Minute, ReadyFor: 30 * time.Second, Bake: 5 * time.Minute,
		},
		Memory: rollout.Memory{Phase: v1alpha1.PhaseProgressing, Revision: "db-2", PreviousRevision: "db-1", Wave: 1, CurrentDomains: []string{"a"}},
	}
	for i := range 6 {
		p := rollout.Pod{
			UID: fmt.Sprint(i), Name: fmt.Sprintf("db-%d", i), Revision: "db-1", Placed: true, Domain: string("abc"[i%3]), Ready: true, Since: evening.Add(-time.Hour),
		}
		if p.Slot = p.Name; p.Domain == "a" {
			p.Revision = "db-2"
		}
		s.Slots = append(s.Slots, rollout.Slot{Name: p.Slot})
		s.Pods = append(s.Pods, p)
	}
	return s
}

func TestRolloutsGolden(t *testing.T) {
	overload := 0.4
	goes := func(pod int, stage string) func(s *rollout.State) {
		return func(s *rollout.State) {
			p := &s.Pods[pod]
			s.Memory.CurrentDomains, s.Memory.Wave = []string{p.Domain}, 2
			s.Memory.Replacements = []v1alpha1.RolloutReplacement{{Slot: p.Slot, Domain: p.Domain, Pod: p.Name, UID: "old", Stage: stage, Since: metav1.NewTime(evening.Add(-time.Minute))}}
			p.Revision, p.Ready, p.Since = s.Revision, false, evening.Add(-10*time.Second)
		}
	}
	var text strings.Builder
	for _, c := range []struct {
		name   string
		change func(s *rollout.State)
	}{
		{"the first look", func(s *rollout.State) { s.Memory = rollout.Memory{} }},
		{"it bakes", func(*rollout.State) {}},
		{"it has baked", func(s *rollout.State) { s.Memory.BakingSince = &metav1.Time{Time: evening.Add(-5 * time.Minute)} }},
		{"a zone is shifted", func(s *rollout.State) {
			s.Memory.BakingSince = &metav1.Time{Time: evening.Add(-5 * time.Minute)}
			s.Shift = rollout.Shift{Name: "out", Key: "topology.kubernetes.io/zone", Domain: "b", Until: evening.Add(time.Hour)}
		}},
		{"a pod is evicted", func(s *rollout.State) {
			goes(4, rollout.Evicting)(s)
			s.Pods[4].UID, s.Pods[4].Revision, s.Pods[4].Ready = "old", "db-1", true
		}},
		{"a pod ends", func(s *rollout.State) {
			goes(4, rollout.Evicting)(s)
			s.Pods[4].UID, s.Pods[4].Revision, s.Pods[4].Terminating, s.Pods[4].Since = "old", "db-1", true, evening.Add(20*time.Second)
		}},
		{"no pod yet", func(s *rollout.State) {
			goes(4, rollout.Gone)(s)
			s.Pods = append(s.Pods[:4], s.Pods[5:]...)
		}},
		{"no node", func(s *rollout.State) { goes(4, rollout.Replaced)(s); s.Pods[4].Placed = false }},
		{"not ready", goes(4, rollout.Replaced)},
		{"ready a moment", func(s *rollout.State) { goes(4, rollout.Replaced)(s); s.Pods[4].Ready = true }},
		{"a budget refuses", func(s *rollout.State) {
			s.Memory.CurrentDomains = []string{"b"}
			for _, uid := range []string{"1", "4"} {
				s.Refusals = map[string]rollout.Refusal{"1": {Reason: "budget shop/db: zone \"b\" has no more to spare", Until: evening.Add(time.Minute)}, uid: {Reason: "budget shop/db: zone \"b\" has no more to spare"}}
			}
		}},
		{"a pod is down by itself", func(s *rollout.State) {
			s.Memory.CurrentDomains = []string{"b"}
			s.Pods[4].Revision, s.Pods[4].Ready, s.Pods[4].Since = "db-2", false, evening.Add(-time.Minute)
		}},
		{"an earlier pod", func(s *rollout.State) {
			s.Kind, s.Memory.CurrentDomains = rollout.Ordered, []string{"b"}
			s.Pods[0].Ready = false
		}},
		{"an earlier pod of a zone that is not approved", func(s *rollout.State) {
			s.Kind, s.Memory.CurrentDomains, s.Spec.PauseBefore = rollout.Ordered, []string{"b"}, []string{"a"}
			s.Pods[0].Ready, s.Pods[0].Revision = false, "db-1"
		}},
		{"a zone before is not healthy", func(s *rollout.State) { s.Memory.CurrentDomains, s.Pods[0].Ready = nil, false }},
		{"the query is false before a wave", func(s *rollout.State) {
			s.Memory.CurrentDomains, s.Spec.HasQuery, s.Query = nil, true, rollout.False
		}},
		{"the query has no answer", func(s *rollout.State) { s.Memory.CurrentDomains, s.Spec.HasQuery = nil, true }},
		{"the query becomes false", func(s *rollout.State) {
			s.Memory.QueryPassed, s.Spec.HasQuery, s.Query = true, true, rollout.False
		}},
		{"overload", func(s *rollout.State) {
			s.Memory.CurrentDomains, s.Spec.MaxOverload, s.Overload = nil, &overload, map[string]float64{"b": 0.555, "c": 0.1}
		}},
		{"overload that may be", func(s *rollout.State) {
			s.Memory.CurrentDomains, s.Spec.MaxOverload, s.Overload = nil, &overload, map[string]float64{"b": 0.333}
		}},
		{"no plan", func(s *rollout.State) { s.Memory.CurrentDomains, s.Spec.MaxOverload = nil, &overload }},
		{"an approval", func(s *rollout.State) { s.Memory.CurrentDomains, s.Spec.PauseBefore = nil, []string{"b"} }},
		{"paused", func(s *rollout.State) { s.Spec.Paused = true }},
		{"a pod fails", func(s *rollout.State) {
			goes(4, rollout.Replaced)(s)
			s.Memory.Replacements[0].Since = metav1.NewTime(evening.Add(-time.Hour))
		}},
		{"a pod fails, and it rolls back", func(s *rollout.State) {
			goes(4, rollout.Replaced)(s)
			s.Memory.Replacements[0].Since, s.Spec.RollsBack = metav1.NewTime(evening.Add(-time.Hour)), true
		}},
		{"a pod does not come", func(s *rollout.State) {
			goes(4, rollout.Gone)(s)
			s.Pods = append(s.Pods[:4], s.Pods[5:]...)
			s.Memory.Replacements[0].Since = metav1.NewTime(evening.Add(-time.Hour))
		}},
		{"a pod does not end", func(s *rollout.State) {
			goes(4, rollout.Evicting)(s)
			s.Pods[4].UID, s.Pods[4].Revision, s.Pods[4].Terminating, s.Pods[4].Since = "old", "db-1", true, evening.Add(-time.Hour)
		}},
		{"it is tried again", func(s *rollout.State) {
			s.Memory.Phase, s.Memory.Failure = v1alpha1.PhaseFailed, &v1alpha1.RolloutFailure{Reason: rollout.GateFailed, Time: metav1.NewTime(evening.Add(-time.Minute))}
			s.Spec.Approved = rollout.Approved{Revision: "db-2", FailuresBefore: evening}
		}},
		{"the revision before comes back", func(s *rollout.State) {
			goes(4, rollout.Replaced)(s)
			s.Pods[4].Revision, s.Revision = "db-2", "db-1"
		}},
		{"another revision", func(s *rollout.State) { s.Revision = "db-3" }},
		{"aborted", func(s *rollout.State) { s.Spec.Stop = rollout.Stop{Revision: "db-2"} }},
		{"a rollback is wanted", func(s *rollout.State) {
			s.Spec.Stop = rollout.Stop{Revision: "db-2", Action: rollout.Rollback}
		}},
		{"a rollback is wanted to nothing", func(s *rollout.State) {
			s.Memory.PreviousRevision, s.Spec.Stop = "", rollout.Stop{Revision: "db-2", Action: rollout.Rollback}
		}},
		{"nodes without the label", func(s *rollout.State) {
			s.Memory.CurrentDomains = nil
			for i := range s.Pods {
				if s.Pods[i].Domain != "a" {
					s.Pods[i].Domain = ""
				}
			}
		}},
		{"complete", func(s *rollout.State) {
			s.Memory.CurrentDomains = nil
			for i := range s.Pods {
				s.Pods[i].Revision = "db-2"
			}
		}},
	} {
		s := database()
		c.change(s)
		step := rollout.Next(s, evening)
		fmt.Fprintf(&text, "# %s\n", c.name)
		for _, line := range lines(rollout.Words{Namespace: "shop", Name: "db", Key: "topology.kubernetes.io/zone"}, &step) {
			fmt.Fprintf(&text, "%s\n", line)
		}
		text.WriteString("\n")
	}
	golden.Compare(t, "testdata/rollouts.txt", text.String())
}

// lines renders a step: the phase with the wait, then each domain.
func lines(r rollout.Words, s *rollout.Step) []string {
	m := &s.Memory
	first := fmt.Sprintf("%s: revision %s", m.Phase, m.Revision)
	if len(m.CurrentDomains) > 0 {
		first += fmt.Sprintf(", wave %d: %s", m.Wave, r.Domains(m.CurrentDomains))
	}
	lines := []string{first}
	if waiting := r.Waiting(s.Wait); waiting != "" {
		lines = append(lines, waiting)
	}
	for _, d := range s.Memory.Domains {
		lines = append(lines, fmt.Sprintf("%s: %s, %d of %s updated, %d healthy, %d unavailable", r.Domain(d.Name), strings.ToLower(string(d.State)), d.Updated, plaintext.Plural(int(d.Pods), "pod"), d.Healthy, d.Unavailable))
	}
	for _, e := range s.Events {
		lines = append(lines, fmt.Sprintf("%s: %s", e.Type, r.Event(e, m.Revision)))
	}
	for _, targets := range []struct {
		verb string
		list []rollout.Target
	}{{"evicts", s.Evict}, {"deletes", s.Delete}, {"no longer evicts", s.Withdraw}} {
		if len(targets.list) > 0 {
			names := make([]string, len(targets.list))
			for i, t := range targets.list {
				names[i] = t.Pod
			}
			lines = append(lines, targets.verb+" "+plaintext.List(names))
		}
	}
	return lines
}
