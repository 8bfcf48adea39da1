package cli

import (
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/rollout"
)

type rolloutPage struct {
	Rollouts []rolloutReport `json:"rollouts"`
}

type rolloutReport struct {
	inspect.RolloutStatus
	// Notes are sentences about what to check.
	Notes    []string `json:"notes,omitempty"`
	NotKnown []string `json:"notKnown,omitempty"`

	missingPods string
	most        string // pods of a domain that may be down
}

func (r *clusterReader) report(d *v1alpha1.DomainRollout, ahead workloadAhead) rolloutReport {
	n := &rolloutNow{DomainRollout: d, now: r.now}
	report := rolloutReport{RolloutStatus: inspect.RolloutStatusOf(d), NotKnown: r.notKnown, missingPods: ahead.missingPods, most: mostText(d.Spec.MaxUnavailable)}
	report.Current = report.Current && ahead.notice == ""
	switch {
	case !n.isRead():
		report.Notes = append(report.Notes, noController)
	case n.isBehind():
		report.Notes = append(report.Notes, fmt.Sprintf("the status is of generation %d and the spec of %d: the controller has not read the last change yet. If this lasts, check that rollouts.enabled is true and that vicinity-controller runs",
			d.Status.ObservedGeneration, d.Generation))
	}
	for _, note := range []string{ahead.notice, ahead.missingPods, ahead.pausedNotice} {
		if note != "" {
			report.Notes = append(report.Notes, note)
		}
	}
	if d.Spec.Paused && d.Status.Phase != v1alpha1.PhasePaused {
		report.Notes = append(report.Notes, "spec.paused is true: no more pods are evicted until "+n.command("resume"))
	}
	for i := range d.Status.Conditions {
		c := &d.Status.Conditions[i]
		isShown := c.Message == d.Status.WaitingFor || c.Type == v1alpha1.ConditionHealthy && d.Status.Failure != nil
		if c.Status != metav1.ConditionTrue && c.Type != v1alpha1.ConditionProgressing && !isShown {
			report.Notes = append(report.Notes, fmt.Sprintf("condition %s is %s: %s", c.Type, c.Status, c.Message))
		}
	}
	return report
}

func updatedText(pods, updated, healthy int32) string {
	return fmt.Sprintf("%d of %s updated, %d healthy", updated, count(int64(pods), "pod", "pods"), healthy)
}

func (n *rolloutNow) words() rollout.Words {
	return rollout.Words{Namespace: n.Namespace, Name: n.Name, Key: n.Spec.TopologyKey}
}

func (n *rolloutNow) failure() string { return inspect.RolloutStatusOf(n.DomainRollout).Failure }

// newestEvents limits the shown history.
const newestEvents = 5

func writeRollout(p *page, r *rolloutReport) {
	p.heading(fmt.Sprintf("DomainRollout %s/%s: %s %s by %s", r.Namespace, r.Name, r.Target.Kind, r.Target.Name, r.TopologyKey))
	p.list("", r.lines())
	if len(r.Status.Domains) > 0 {
		p.table("", domainTable(r))
	}
	if r.Failure != "" {
		p.list("failed", []string{timeText(&r.Status.Failure.Time) + ": " + r.Failure})
	}
	var newest []string
	for i, history := len(r.Status.History)-1, r.Status.History; i >= max(0, len(history)-newestEvents); i-- {
		newest = append(newest, fmt.Sprintf("%s %s: %s", timeText(&history[i].Time), history[i].Event, history[i].Message))
	}
	p.list("newest first", newest)
	p.list("to check", r.Notes)
	p.list("not known", r.NotKnown)
}

func (r *rolloutReport) lines() []string {
	s := &r.Status
	if s.Phase == "" {
		return []string{"phase: none"}
	}
	lines := []string{"phase: " + string(s.Phase)}
	if s.WaitingFor != "" {
		lines = append(lines, sentence(s))
	}
	revision := "revision: " + orDash(s.Revision)
	switch {
	case s.RollingBack:
		revision += ", a rollback to the previous one"
	case s.PreviousRevision != "":
		revision += ", before it " + s.PreviousRevision
	}
	lines = append(lines, revision)
	if len(s.CurrentDomains) > 0 {
		wave := fmt.Sprintf("wave %d: %s", s.Wave, rollout.Words{Key: r.TopologyKey}.Domains(s.CurrentDomains))
		if len(s.CurrentDomains) > 1 {
			wave += ", side by side with at most " + r.most + " of each down"
		}
		lines = append(lines, wave)
	}
	return lines
}

func mostText(maxUnavailable *intstr.IntOrString) string {
	most := ptr.Deref(maxUnavailable, intstr.FromInt32(1))
	if most.Type == intstr.String {
		return most.StrVal
	}
	return count(int64(most.IntVal), "pod", "pods")
}

func sentence(s *v1alpha1.DomainRolloutStatus) string {
	if s.Phase == v1alpha1.PhaseInvalid {
		return s.WaitingFor // its subject is not the rollout
	}
	return "it " + s.WaitingFor
}

func domainTable(r *rolloutReport) plaintext.Table {
	t := plaintext.NewTable("domain", ">pods", ">updated", ">healthy", ">unavailable", "state")
	for i := range r.Status.Domains {
		d := &r.Status.Domains[i]
		name := d.Name
		if name == "" {
			name = "(no label)"
		}
		t.Rows = append(t.Rows, []string{name, podCount(d.Pods), podCount(d.Updated), podCount(d.Healthy), podCount(d.Unavailable), string(d.State)})
	}
	return t
}

func podCount(n int32) string { return strconv.Itoa(int(n)) }

func writeRollouts(p *page, rollouts []rolloutReport) {
	if len(rollouts) == 0 {
		return
	}
	t := plaintext.NewTable("namespace", "name", "target", "phase", "revision", ">pods", ">updated", ">healthy", "note")
	for i := range rollouts {
		r := &rollouts[i]
		note := r.Status.WaitingFor
		if len(r.Notes) > 0 {
			note = r.Notes[0]
		}
		t.Rows = append(t.Rows, []string{
			r.Namespace, r.Name, r.Target.Kind + "/" + r.Target.Name, orDash(string(r.Status.Phase)), orDash(r.Status.Revision),
			podCount(r.Pods), podCount(r.Updated), podCount(r.Healthy), orDash(note),
		})
	}
	p.table("", t)
}
