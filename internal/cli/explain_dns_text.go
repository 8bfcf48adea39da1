package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/inspect"
)

func dnsFormat(output string) (func(io.Writer, *inspect.NameExplanation) error, error) {
	return formatOf(output, explainFormats, map[string]func(io.Writer, *inspect.NameExplanation) error{
		"text": func(w io.Writer, e *inspect.NameExplanation) error { return writeName(&page{w: w}, e) },
	})
}

// writeName writes the answer, the records, why the client gets them, and what to do next.
func writeName(p *page, e *inspect.NameExplanation) error {
	p.heading(strings.TrimSuffix(e.Name, ".") + " for " + clientText(&e.Client))
	var lines []string
	for i := range e.Answers {
		lines = append(lines, answerText(&e.Answers[i]))
	}
	p.list("", lines)
	writeRecords(p, e)
	p.list("why", whyText(e))
	if len(e.NotKnown) > 0 {
		p.list("not known", e.NotKnown)
	}
	next := e.Next
	if len(next) == 0 {
		next = []string{"nothing to do"}
	}
	p.list("next", next)
	return p.err
}

func clientText(c *inspect.NameClient) string {
	if c.Pod == "" {
		return c.Address
	}
	return "pod " + c.Pod + " (" + c.Address + ")"
}

// answerText is an answer in a sentence.
func answerText(a *inspect.NameAnswer) string {
	text := a.Type + ": "
	switch n := recordsOf(a); a.Result {
	case inspect.ResultRecords:
		if n < a.Of {
			text += fmt.Sprintf("%d of %s", n, count(int64(a.Of), "record", "records"))
		} else {
			text += count(int64(n), "record", "records")
		}
	case inspect.ResultEmpty:
		text += "no record (NODATA)"
		if a.Of > 0 {
			text = a.Type + ": none of " + count(int64(a.Of), "record", "records") + " (NODATA)"
		}
	case inspect.ResultNoName:
		text += "no such name (NXDOMAIN)"
	default:
		text += "unknown"
	}
	return text + "; " + a.Why
}

// recordsOf is the number of records of the type, without those that lead to them.
func recordsOf(a *inspect.NameAnswer) int {
	n := 0
	for i := range a.Records {
		if a.Records[i].Type == a.Type || a.Of == 1 {
			n++
		}
	}
	return min(n, a.Of)
}

func writeRecords(p *page, e *inspect.NameExplanation) {
	table := explain.Table{Columns: []explain.Column{{Title: "name"}, {Title: "type"}, {Title: "data"}, {Title: "zone"}, {Title: "node"}}}
	add := func(records []inspect.NameRecord) {
		for i := range records {
			r := &records[i]
			data := cmp.Or(r.Address, r.Target)
			if r.Port != nil {
				data = strconv.Itoa(int(*r.Port)) + " " + r.Target
			}
			row := []string{r.Name, r.Type, data, orDash(r.Zone), orDash(r.Node)}
			if !slices.ContainsFunc(table.Rows, func(other []string) bool { return slices.Equal(other, row) }) { // an alias begins the answers of both types
				table.Rows = append(table.Rows, row)
			}
		}
	}
	for i := range e.Answers {
		add(e.Answers[i].Records)
	}
	for i := range e.Answers {
		add(e.Answers[i].Additional)
	}
	more := len(table.Rows) - mostEndpoints
	if more > 0 {
		table.Rows = table.Rows[:mostEndpoints]
	}
	if len(table.Rows) == 0 {
		p.list("records", []string{"none"})
		return
	}
	p.table("records", table)
	if more > 0 {
		p.printf("    and %d more; -o json has all\n", more)
	}
}

func whyText(e *inspect.NameExplanation) []string {
	lines := []string{"rule: " + ruleText(e)}
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
	if e.Target != nil {
		lines = append(lines, "alias of "+e.Target.Name)
		lines = append(lines, whyText(e.Target)...)
	}
	for _, warning := range e.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	return lines
}

// ruleText says which rule decides.
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
		return "groups that are left over do not count: all endpoints"
	case inspect.RuleEndpoint:
		return "the name of an endpoint"
	case inspect.RuleZoneName:
		return "a name with a zone, which is CoreDNS' own (option zonal)"
	case inspect.RuleClusterIP:
		return "a Service with a cluster IP"
	case inspect.RuleExternalName:
		return "an external name, which is an alias"
	case inspect.RuleOutside:
		return "a name of another zone"
	case inspect.RuleUnread:
		return "not known"
	}
	return "a name of no Service"
}
