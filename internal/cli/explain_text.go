package cli

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/routing"
	"vicinity.dev/vicinity/internal/translate"
)

func explainFormat(output string) (func(io.Writer, *explanation) error, error) {
	switch output {
	case "text":
		return func(w io.Writer, e *explanation) error { return writeExplanation(&planPage{w: w}, e) }, nil
	case "json":
		return func(w io.Writer, e *explanation) error { return encodeJSON(w, explainDocumentOf(e)) }, nil
	case "yaml":
		return func(w io.Writer, e *explanation) error { return encodeYAML(w, explainDocumentOf(e)) }, nil
	}
	return nil, usageErrorf("--output %q is unknown; it must be text, json or yaml", output)
}

func writeExplanation(p *planPage, e *explanation) error {
	service, request := e.input.Service, e.decision.Request
	p.heading("Service " + service.Namespace + "/" + service.Name)
	lines := []string{"asks for: " + explain.Intent(request.Intent)}
	if request.Source != "" {
		lines = append(lines, "written as: "+request.Source)
	}
	lines = append(lines, "delivery: "+e.delivery())
	for _, sentence := range e.meanwhile() {
		lines = append(lines, "until then: "+sentence)
	}
	if condition := routing.ConditionOf(service); condition != nil {
		lines = append(lines, fmt.Sprintf("condition: %s is %s since %s, %s: %s", condition.Type, condition.Status,
			condition.LastTransitionTime.UTC().Format(time.RFC3339), condition.Reason, condition.Message))
	} else {
		lines = append(lines, "condition: none, no outcome is written")
	}
	for _, warning := range e.warnings() {
		lines = append(lines, "warning: "+warning)
	}
	if request.NoPlan != "" {
		lines = append(lines, "no plan: "+request.NoPlan)
	}
	p.list("", lines)
	if err := e.writeFamilies(p); err != nil {
		return err
	}
	switch {
	case request.NoPlan != "":
	case len(e.families) == 0:
		p.list("", []string{"no plan: " + e.input.withoutAddresses()})
	case e.noProxy != "":
		p.list("stock proxies", []string{"none: " + e.noProxy})
	}
	switch all, known := e.written(); {
	case len(e.pending) > 0:
		p.list("written", e.pending)
	case all && known:
		p.list("written", []string{"all of the plan"})
	}
	e.writeLimits(p)
	if len(e.missing) > 0 {
		p.list("not known", e.missing)
	}
	return p.err
}

// delivery says how the plan gets to proxies.
func (e *explanation) delivery() string {
	d := &e.decision
	switch {
	case d.Delivery == routing.DeliveryHints && d.Undelivered:
		return "Hints, which cannot express it, so there are none"
	case d.Delivery == routing.DeliveryHints:
		return "Hints, for any proxy"
	case awaitsProxy(e.input.Service, d.Delivery):
		return fmt.Sprintf("Groups, for vicinity-proxy; stock proxies serve the Service until every node has it (%s so far)", groupCount(e))
	case d.Delivery == routing.DeliveryGroups:
		return fmt.Sprintf("Groups, for vicinity-proxy, which serves the Service from %s", groupCount(e))
	case e.input.alone != "":
		return "None: vicinity-controller leaves the Service alone, since " + e.input.alone
	case d.Request.Upstream:
		return "None by Vicinity: Kubernetes does itself what is asked for"
	}
	return "None: nothing is to be delivered"
}

func groupCount(e *explanation) string {
	return count(int64(len(e.input.Groups)), "group", "groups")
}

// writeFamilies writes the part about each family, once if there is nothing to say of
// one that is not so of the other.
func (e *explanation) writeFamilies(p *planPage) error {
	var texts []string
	for i := range e.families {
		var text strings.Builder
		page := planPage{w: &text, begun: true}
		if e.blind() {
			e.families[i].writeBlind(&page)
		} else {
			e.families[i].write(&page)
		}
		if page.err != nil {
			return page.err
		}
		texts = append(texts, text.String())
	}
	all := len(texts) > 1 && !slices.ContainsFunc(texts, func(text string) bool { return text != texts[0] })
	for i, text := range texts {
		family := string(e.families[i].family)
		switch {
		case all && i > 0:
			continue
		case all:
			p.heading("IPv4 and IPv6")
		case family != "":
			p.heading(family)
		}
		p.printf("%s", text)
	}
	return p.err
}

// write writes the part about a family.
func (f *familyExplanation) write(p *planPage) {
	q := &f.question
	p.list("state", f.state())
	p.table("zones", explain.Region(q.Region, unit(f.capacity)))
	p.table(f.planTitle(), explain.Plan(q.Region, *f.asked()))
	p.table("who serves whom", explain.Groups(q.Region, *f.asked()))
	writeExcess(p, q.Region, f.asked().Plan)
	if skips := explain.Skips(*f.asked()); len(skips) > 0 {
		p.list("nodes that do not use their own endpoints", skips)
	}
	p.table(comparisonTitle(&f.planSection), planComparison(&f.planSection))
	for i := range f.stock {
		p.table(f.stockTitle(i)+" ("+explain.Prediction(q.Region, f.stock[i].figures)+")", f.stockTable(i, true))
	}
}

// writeBlind writes what is known of a family without the nodes.
func (f *familyExplanation) writeBlind(p *planPage) {
	p.list("state", []string{"unknown, as no plan can be made without the nodes"})
	for i := range f.stock {
		p.table(f.stockTitle(i), f.stockTable(i, false))
	}
}

// state says what was decided, why, and what it means for the traffic.
func (f *familyExplanation) state() []string {
	asked := f.asked()
	word, expected := asked.Outcome.State.String(), "expected: "
	switch {
	case f.undelivered:
		word, expected = "undelivered", "expected if it were delivered: "
	case f.awaited:
		expected = "expected once vicinity-proxy serves it: "
	case !f.decided:
		word = "not Vicinity's"
	}
	return []string{
		word + "; " + explain.Outcome(asked.Outcome),
		expected + explain.Prediction(f.question.Region, asked.Figures),
	}
}

func (f *familyExplanation) planTitle() string {
	switch {
	case f.undelivered:
		return "plan, which is not delivered"
	case f.decided:
		return "plan"
	case f.request.Upstream:
		return "plan, as Kubernetes is expected to make it"
	}
	return "plan, without anybody making one"
}

// unit is the title of the column of capacities.
func unit(capacity translate.Capacity) string {
	if capacity.Type == translate.CapacityExpression {
		return "capacity"
	}
	return capacityTitle(capacity.Type)
}

// stockTitle says which ports a table of stock proxies is about, if they differ.
func (f *familyExplanation) stockTitle(i int) string {
	view := &f.stock[i]
	title := "stock proxies, by the hints as they are stored"
	if len(f.stock) > 1 {
		var ports []string
		for _, port := range view.ports {
			ports = append(ports, strings.TrimSpace(port.name+" "+string(port.protocol)))
		}
		title += ", " + strings.Join(ports, ", ")
	}
	return title
}

// stockTable has a line for all nodes of a zone that do the same, and their number if
// it is known.
func (f *familyExplanation) stockTable(i int, counted bool) explain.Table {
	view := &f.stock[i]
	t := explain.Table{Columns: []explain.Column{
		{Title: "zone"}, {Title: "nodes", Right: true}, {Title: "mode"}, {Title: "uses"}, {Title: "why"},
	}}
	for _, row := range view.rows {
		nodes := "?"
		if counted {
			nodes = strconv.Itoa(row.Nodes)
		}
		t.Rows = append(t.Rows, []string{
			explain.ZoneName(row.Zone), nodes, string(row.Mode), explain.Uses(row.Uses, row.Zone, view.ready), cmp.Or(row.Why, "-"),
		})
	}
	return t
}

// writeLimits writes where no plan can help, and where to read on.
func (e *explanation) writeLimits(p *planPage) {
	var lines []string
	for _, limit := range e.limits() {
		lines = append(lines, fmt.Sprintf("%s: %s (%s)", limit.Name, limit.Text, limit.Link()))
	}
	if len(lines) > 0 {
		p.list("where it cannot help", lines)
	}
}

// zonesOf renders a set of zones for a document.
func zonesOf(zones []string) []string {
	named := slices.DeleteFunc(slices.Clone(zones), func(zone string) bool { return strings.TrimSpace(zone) == "" })
	if named == nil {
		return []string{}
	}
	return named
}
