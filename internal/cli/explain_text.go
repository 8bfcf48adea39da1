package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/intent"
)

func askedText(e *inspect.Explanation) []string {
	lines := []string{"asks for: " + e.AsksFor}
	if e.Source != "" {
		lines = append(lines, "written as: "+e.Source)
	}
	lines = append(lines, "delivery: "+deliveryText(e))
	lines = append(lines, e.ZoneShifts...)
	for _, sentence := range e.ServedBy {
		lines = append(lines, "served by: "+sentence)
	}
	if e.GroupsBy != "" {
		lines = append(lines, "groups because of: "+e.GroupsBy)
	}
	for _, sentence := range meanwhileText(e.Meanwhile) {
		lines = append(lines, "until then: "+sentence)
	}
	switch c := e.Condition; {
	case c != nil:
		lines = append(lines, fmt.Sprintf("condition: %s is %s since %s, %s: %s", c.Type, c.Status, c.Since, c.Reason, c.Message))
	case e.AwaitsCondition():
		lines = append(lines, "condition: none yet; the controller writes it after some seconds")
	default:
		lines = append(lines, "condition: none is written")
	}
	for _, warning := range e.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	return lines
}

func writeExplanation(p *page, e *inspect.Explanation) {
	p.heading("Service " + e.Namespace + "/" + e.Service)
	lines := askedText(e)
	if e.NoPlan != "" {
		lines = append(lines, "no plan: "+e.NoPlan)
	}
	p.list("", lines)
	writeFamilies(p, e)
	switch {
	case e.NoPlan != "":
	case e.NoAddresses != "":
		p.list("", []string{"no plan: " + e.NoAddresses})
	case e.NoProxy != "":
		p.list("stock proxies", []string{"none: " + e.NoProxy})
	}
	switch {
	case len(e.Pending) > 0:
		p.list("written", e.Pending)
	case e.Written != nil:
		p.list("written", []string{"all of the plan"})
	}
	var limits []string
	for _, limit := range e.Limits {
		limits = append(limits, fmt.Sprintf("%s: %s (%s)", limit.Name, limit.Text, limit.Link))
	}
	p.list("where it cannot help", limits)
	p.list("not known", e.NotKnown)
}

func deliveryText(e *inspect.Explanation) string {
	groups := count(int64(e.Groups), "group", "groups")
	switch {
	case e.Delivery == allocate.DeliveryHints && e.Undelivered:
		return "Hints, which cannot express it, so there are none"
	case e.Delivery == allocate.DeliveryHints:
		return "Hints, for any proxy"
	case e.AwaitsProxy:
		return fmt.Sprintf("Groups, for vicinity-proxy; stock proxies serve the Service until every node has it (%s so far)", groups)
	case e.Delivery == allocate.DeliveryGroups && e.Headless && e.Groups == 0:
		return "Groups, for DNS servers; none is written, so every client gets all endpoints"
	case e.Delivery == allocate.DeliveryGroups && e.Headless:
		return "Groups, for DNS servers: vicinity-dns answers from " + groups + "; other servers give all endpoints to every client"
	case e.Delivery == allocate.DeliveryGroups && e.Groups == 0 && e.Written != nil && !*e.Written:
		return "Groups, for vicinity-proxy; none is written yet"
	case e.Delivery == allocate.DeliveryGroups && e.Groups == 0:
		return "Groups, for vicinity-proxy"
	case e.Delivery == allocate.DeliveryGroups:
		return "Groups, for vicinity-proxy, which serves the Service from " + groups
	case e.LeftAlone != "":
		return "None: vicinity-controller ignores the Service, because " + e.LeftAlone
	case e.Upstream && !e.Headless:
		return "None by Vicinity: Kubernetes does itself what is asked for"
	}
	return "None: there is nothing to deliver"
}

// meanwhileText says what hints do for a Service until it is handed over to vicinity-proxy. It is
// empty for most Services.
func meanwhileText(m *inspect.Interim) []string {
	switch {
	case m == nil:
		return nil
	case m.Delivery == allocate.DeliveryNone:
		return []string{intent.HintsAreOff + ", so all zones use all endpoints"}
	case m.Undelivered:
		return []string{"hints cannot express the request, so all zones use all endpoints"}
	}
	var sentences []string
	for i := range m.Families {
		f := &m.Families[i]
		sentence := "hints for them; " + f.State + "; " + f.Why
		if i > 0 && sentences[0] == sentence {
			break
		}
		sentences = append(sentences, sentence)
	}
	if len(sentences) > 1 {
		for i := range sentences {
			sentences[i] = m.Families[i].Family + ": " + sentences[i]
		}
	}
	return append(sentences, m.Notes...)
}

// writeFamilies writes a part for each family, or one for both if they are equal.
func writeFamilies(p *page, e *inspect.Explanation) {
	var texts []string
	for i := range e.Families {
		var text strings.Builder
		writeFamily(&page{w: &text, begun: true}, e, &e.Families[i])
		texts = append(texts, text.String())
	}
	all := len(texts) > 1 && !slices.ContainsFunc(texts, func(text string) bool { return text != texts[0] })
	for i, text := range texts {
		switch {
		case all && i > 0:
			continue
		case all:
			p.heading("IPv4 and IPv6")
		case len(texts) > 1:
			p.heading(e.Families[i].Family)
		}
		p.printf("%s", text)
	}
}

func writeFamily(p *page, e *inspect.Explanation, f *inspect.Family) {
	p.list("state", stateText(e, f))
	region := f.Question.Region
	if !e.LacksNodes {
		p.table("zones", explain.Region(region, unitTitle(f.Unit)))
		p.table(planTitle(e, f), explain.Plan(region, *f.Asked()))
		p.table("who serves whom", explain.Groups(region, *f.Asked()))
		p.list("sent to other zones", explain.Excess(region, f.Asked().Plan))
		p.list("nodes that do not use their own endpoints", explain.Skips(*f.Asked()))
		p.table(comparisonTitle(&f.Plans), planComparison(&f.Plans))
	}
	for i := range f.Stock {
		title := stockTitle(f.Stock, i)
		if !e.LacksNodes {
			title += " (" + explain.Prediction(region, f.Stock[i].Figures) + ")"
		}
		p.table(title, stockTable(&f.Stock[i]))
	}
}

// stateText says what was decided, why, and the effect on traffic.
func stateText(e *inspect.Explanation, f *inspect.Family) []string {
	word, expected := f.State, "expected: "
	switch {
	case e.LacksNodes:
		return []string{"unknown, as no plan can be made without the nodes"}
	case e.Undelivered:
		word, expected = "undelivered", "expected if it were delivered: "
	case e.AwaitsProxy:
		expected = "expected once vicinity-proxy serves it: "
	case e.Headless && e.Delivery == allocate.DeliveryGroups:
		expected = "expected of clients that ask vicinity-dns: "
	case !f.Decided:
		word = "not Vicinity's"
	}
	return []string{word + "; " + f.Why, expected + explain.Prediction(f.Question.Region, f.Asked().Figures)}
}

func planTitle(e *inspect.Explanation, f *inspect.Family) string {
	switch {
	case e.Undelivered:
		return "plan, which is not delivered"
	case f.Decided:
		return "plan"
	case e.Upstream:
		return "plan, as Kubernetes is expected to make it"
	}
	return "without a plan"
}

func unitTitle(unit intent.CapacityType) string {
	if unit == intent.CapacityExpression {
		return "capacity"
	}
	return capacityTitle(unit)
}

// stockTitle names the ports of a table of stock proxies, if they differ.
func stockTitle(views []inspect.Stock, i int) string {
	title := "stock proxies, by the hints as they are stored"
	if len(views) > 1 {
		title += ", " + portNames(&views[i])
	}
	return title
}

func portNames(view *inspect.Stock) string {
	var ports []string
	for _, port := range view.Ports {
		ports = append(ports, strings.TrimSpace(port.Name+" "+port.Protocol))
	}
	return strings.Join(ports, ", ")
}

// stockTable has a row for nodes of a zone that behave alike.
func stockTable(view *inspect.Stock) plaintext.Table {
	t := plaintext.NewTable("zone", ">nodes", "mode", "uses", "why")
	for _, row := range view.Zones {
		nodes := "?"
		if row.Nodes > 0 {
			nodes = strconv.Itoa(row.Nodes)
		}
		t.Rows = append(t.Rows, []string{
			explain.ZoneName(row.Zone), nodes, string(row.Mode), explain.Uses(row.Uses, row.Zone, view.Ready), cmp.Or(row.Why, "-"),
		})
	}
	return t
}
