package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/routing/explain"
)

func writeAnswer(p *page, e *inspect.Explanation) {
	p.heading("Service " + e.Namespace + "/" + e.Service)
	lines := askedText(e)
	if none := cmp.Or(e.NoPlan, e.NoAddresses); none != "" {
		lines = append(lines, "no plan: "+none)
	}
	type part struct {
		family string // the first family that the lines are about
		lines  []string
	}
	var parts []part
	for i := range e.Families {
		answer := familyAnswer(e, &e.Families[i])
		if !slices.ContainsFunc(parts, func(other part) bool { return slices.Equal(other.lines, answer) }) {
			parts = append(parts, part{e.Families[i].Family, answer})
		}
	}
	for _, part := range parts {
		for _, line := range part.lines {
			if len(parts) > 1 {
				line = part.family + " " + line
			}
			lines = append(lines, line)
		}
	}
	lines = append(lines, e.Pending...)
	if e.Written != nil && *e.Written {
		lines = append(lines, "written: all of the plan")
	}
	for _, sentence := range e.NotKnown {
		lines = append(lines, "not known: "+sentence)
	}
	for _, sentence := range nextSteps(e.Next) {
		lines = append(lines, "next: "+sentence)
	}
	if len(e.Families) > 0 {
		lines = append(lines, "more: --all shows the plan, other algorithms and proxies in tables")
	}
	p.list("", lines)
}

func familyAnswer(e *inspect.Explanation, f *inspect.Family) []string {
	state := stateText(e, f)
	lines := append([]string{"state: " + state[0]}, state[1:]...)
	if len(f.Stock) > 0 && !e.LacksNodes {
		region := f.Question.Region
		stored := explain.Prediction(region, f.Stock[0].Figures)
		if stored != explain.Prediction(region, f.Asked().Figures) {
			lines = append(lines, "by the hints as they are stored: "+stored)
		}
	}
	verb := "use"
	switch pending := len(f.Stock) == 0 && len(e.Pending) > 0; {
	case e.Headless && pending:
		verb = "will get from vicinity-dns"
	case e.Headless:
		verb = "get from vicinity-dns"
	case pending:
		verb = "will use"
	}
	served := e.Served(f)
	for _, s := range served[:min(mostServed, len(served))] {
		lines = append(lines, fmt.Sprintf("clients in %s %s: %s", strings.Join(s.Clients, ", "), verb, s.By))
	}
	if more := len(served) - mostServed; more > 0 {
		lines = append(lines, count(int64(more), "more group", "more groups")+" of clients use others")
	}
	if len(f.Stock) > 1 {
		lines = append(lines, "that is for port "+portNames(&f.Stock[0])+"; other ports differ")
	}
	return lines
}

// mostServed limits the groups of clients in the short answer.
const mostServed = 6
