package cli

import (
	"fmt"
	"strings"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
)

func writeName(p *page, e *inspect.NameExplanation) {
	p.heading(strings.TrimSuffix(e.Name, ".") + " for " + clientText(&e.Client))
	switch e.Rule {
	case inspect.RuleUnchanged:
		p.list("", []string{"the answer of CoreDNS for every client: Vicinity does not change it"})
	case inspect.RuleAlias:
		p.list("", []string{"another name of " + e.Alias + ": a client gets the answer for that name"})
	default:
		var lines []string
		for i := range e.Answers {
			lines = append(lines, answerText(&e.Answers[i]))
		}
		p.list("", lines)
		writeRecords(p, e)
	}
	p.list("why", whyText(e))
	p.list("not known", e.NotKnown)
	p.list("next", nextSteps(e.Next))
}

func clientText(c *inspect.NameClient) string {
	if c.Pod == "" {
		return c.Address
	}
	return "pod " + c.Pod + " (" + c.Address + ")"
}

func answerText(a *inspect.NameAnswer) string {
	text := a.Type + ": "
	switch n := len(a.Records); {
	case a.Result == inspect.ResultUnknown:
		text += "unknown"
	case a.Of == 0:
		text += "no record"
	case n == 0:
		text += "none of " + count(int64(a.Of), "record", "records") + " (NODATA)"
	case n < a.Of:
		text += fmt.Sprintf("%d of %s", n, count(int64(a.Of), "record", "records"))
	default:
		text += count(int64(n), "record", "records")
	}
	return text + "; " + a.Why
}

func writeRecords(p *page, e *inspect.NameExplanation) {
	table := plaintext.NewTable("name", "type", "data", "zone", "node")
	for i := range e.Answers {
		for _, r := range e.Answers[i].Records {
			table.Rows = append(table.Rows, []string{r.Name, r.Type, r.Address, orDash(r.Zone), orDash(r.Node)})
		}
	}
	p.longTable("records", table)
}

func whyText(e *inspect.NameExplanation) []string {
	var lines []string
	if len(e.Answers) > 0 {
		lines = append(lines, "rule: "+ruleText(e))
	}
	if len(e.Keys) > 0 {
		var keys []string
		for _, key := range e.Keys {
			switch {
			case key.Key == "*":
				keys = append(keys, "* (anywhere)")
			case key.Value == "":
				keys = append(keys, key.Key+" (the client has none)")
			default:
				keys = append(keys, key.Key+" ("+key.Value+")")
			}
		}
		lines = append(lines, "keys, with the client's values: "+strings.Join(keys, ", "))
	}
	if e.Source != "" {
		lines = append(lines, "asked for by: "+e.Source)
	}
	lines = append(lines, e.Why...)
	for _, warning := range e.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	return lines
}

func ruleText(e *inspect.NameExplanation) string {
	switch e.Rule {
	case inspect.RuleGroups:
		if e.Groups == 0 {
			return "the groups of the Service"
		}
		return fmt.Sprintf("the groups of the Service, %d of %d for clients in that place", e.GroupsUsed, e.Groups)
	case inspect.RuleWhole:
		return "a headless Service without groups: all endpoints"
	case inspect.RuleLeftOver:
		return "leftover groups do not count: all endpoints"
	}
	return "not known"
}
