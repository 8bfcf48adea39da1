package cli

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/internal/disruption"
	"vicinity.dev/vicinity/internal/inspect"
)

func writePod(p *page, e *inspect.PodExplanation) {
	p.heading("Pod " + e.Namespace + "/" + e.Pod)
	lines := []string{verdictText(e)}
	if e.Since != nil {
		lines = append(lines, "refused since: "+timeText(e.Since))
	}
	if e.Until != nil {
		lines = append(lines, "time alone changes that at: "+timeText(e.Until))
	}
	if e.Node != "" {
		lines = append(lines, "node: "+e.Node)
	}
	lines = append(lines, "state: "+e.State)
	if e.Unenforced != "" && len(e.Budgets) > 0 {
		lines = append(lines, "TopologyDisruptionBudgets are not checked: "+e.Unenforced)
	}
	p.list("", lines)
	for i := range e.Budgets {
		writeBudget(p, &e.Budgets[i], e.Unenforced != "")
	}
	for _, pdb := range e.PDBs {
		why := []string{pdb.Why}
		if pdb.Since != nil {
			why = append(why, "since "+timeText(pdb.Since))
		}
		p.list(fmt.Sprintf("PodDisruptionBudget %s %s", pdb.Name, verb(pdb.Verdict, false)), why)
	}
	p.list("not known", e.NotKnown)
	p.list("next", nextSteps(e.Next))
}

func verdictText(e *inspect.PodExplanation) string {
	word := "unknown"
	switch e.Verdict {
	case inspect.VerdictAllowed:
		word = "yes"
	case inspect.VerdictRefused:
		word = "not now"
	case inspect.VerdictFails:
		word = "no, it fails"
	case inspect.VerdictUnknown:
	}
	return "may be evicted: " + word + "; " + e.Why
}

func verb(v inspect.Verdict, asIf bool) string {
	switch {
	case v == inspect.VerdictUnknown:
		return "is not known"
	case v == inspect.VerdictAllowed && asIf:
		return "would allow it"
	case v == inspect.VerdictAllowed:
		return "allows it"
	case asIf:
		return "would refuse it"
	}
	return "refuses it"
}

func writeBudget(p *page, b *inspect.BudgetExplanation, unenforced bool) {
	lines := b.Why
	for _, pod := range b.Down {
		line := pod.Name + " is " + string(pod.Why)
		if pod.Since != nil {
			line += ", since " + timeText(pod.Since)
		}
		lines = append(lines, line)
	}
	for _, c := range b.Wrong {
		lines = append(lines, fmt.Sprintf("condition %s is %s since %s: %s", c.Type, c.Status, timeText(&c.LastTransitionTime), c.Message))
	}
	says := verb(b.Verdict, unenforced)
	switch {
	case b.Rule == disruption.RuleNotCovered:
		says = "does not cover it"
	case b.Verdict == inspect.VerdictAllowed && b.Until != nil:
		lines = append(lines, "until "+timeText(b.Until))
	}
	p.list("TopologyDisruptionBudget "+b.Name+" "+says, lines)
}

func timeText(t *metav1.Time) string { return t.UTC().Format(time.RFC3339) }
