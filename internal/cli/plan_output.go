package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/explain"
	"vicinity.dev/vicinity/internal/simulate"
	"vicinity.dev/vicinity/internal/translate"
)

// planOutput is what to print.
type planOutput struct {
	sections []planSection
	full     bool // with each section, not only the summary
}

func (f *planFlags) format() (func(io.Writer, planOutput) error, error) {
	switch f.output {
	case "table":
		return func(w io.Writer, o planOutput) error { return writePlan(&planPage{w: w}, o) }, nil
	case "markdown":
		return func(w io.Writer, o planOutput) error { return writePlan(&planPage{w: w, markdown: true}, o) }, nil
	case "json":
		return writePlanJSON, nil
	case "yaml":
		return writePlanYAML, nil
	}
	return nil, usageErrorf("--output %q is unknown; it must be table, json, yaml or markdown", f.output)
}

// planPage writes paragraphs, as plain text or Markdown. After an error it writes
// nothing more.
type planPage struct {
	w        io.Writer
	markdown bool
	begun    bool
	err      error
}

func (p *planPage) printf(format string, args ...any) {
	if p.err == nil {
		_, p.err = fmt.Fprintf(p.w, format, args...)
	}
}

// gap separates what follows from what is above.
func (p *planPage) gap() {
	if p.begun {
		p.printf("\n")
	}
	p.begun = true
}

func (p *planPage) heading(text string) {
	p.gap()
	if p.markdown {
		text = "## " + text
	}
	p.printf("%s\n", text)
}

// title writes what a table or list is about, if that has to be said.
func (p *planPage) title(text string) {
	switch {
	case text == "":
	case p.markdown:
		p.printf("%s:\n\n", text)
	default:
		p.printf("  %s:\n", text)
	}
}

// list writes lines that belong together, after a title if there is one.
func (p *planPage) list(title string, lines []string) {
	if p.markdown || title != "" {
		p.gap()
	}
	p.title(title)
	bullet := "  "
	switch {
	case p.markdown:
		bullet = "- "
	case title != "":
		bullet = "    "
	}
	for _, line := range lines {
		p.printf("%s%s\n", bullet, line)
	}
}

// table writes a table under its title.
func (p *planPage) table(title string, table explain.Table) {
	p.gap()
	p.title(title)
	switch {
	case p.err != nil:
	case p.markdown:
		p.err = table.Markdown(p.w)
	case title != "":
		p.err = table.Text(p.w, "    ")
	default:
		p.err = table.Text(p.w, "")
	}
}

func writePlan(p *planPage, o planOutput) error {
	if !o.full || len(o.sections) > 1 {
		p.table("", planSummary(o.sections))
	}
	if o.full {
		for i := range o.sections {
			writePlanSection(p, &o.sections[i])
		}
	}
	return p.err
}

// planSummary has a line for each section.
func planSummary(sections []planSection) explain.Table {
	t := explain.Table{Columns: []explain.Column{
		{Title: "service"},
		{Title: "endpoints", Right: true},
		{Title: "asks for"},
		{Title: "in-zone %", Right: true},
		{Title: "overload %", Right: true},
		{Title: "best in-zone %", Right: true},
		{Title: "with"},
		{Title: "decided by"},
	}}
	for i := range sections {
		s := &sections[i]
		if s.noPlan != "" {
			t.Rows = append(t.Rows, []string{s.title(), "-", "-", "-", "-", "-", "-", "no plan: " + s.noPlan})
			continue
		}
		asked, best := s.asked(), s.comparison.Best()
		t.Rows = append(t.Rows, []string{
			s.title(), strconv.Itoa(asked.Outcome.Endpoints), explain.ShortIntent(s.request.Intent),
			oneDecimal(asked.Figures.InZone), oneDecimal(asked.Figures.Overload),
			oneDecimal(best.Figures.InZone), optionName(&best), explain.Outcome(asked.Outcome),
		})
	}
	return t
}

func oneDecimal(fraction float64) string {
	return strconv.FormatFloat(100*fraction, 'f', 1, 64)
}

// optionName is the name of the algorithm; tiers alone have none.
func optionName(o *explain.Option) string {
	if o.Algorithm == "" {
		return "nearest"
	}
	return string(o.Algorithm)
}

func writePlanSection(p *planPage, s *planSection) {
	p.heading("Service " + s.title())
	var lines []string
	switch {
	case s.noPlan == "":
		lines = append(lines, "asks for: "+explain.Intent(s.question.Asked))
	case s.request.Source != "":
		lines = append(lines, "asks for: "+explain.Intent(s.request.Intent))
	}
	if s.request.Source != "" {
		lines = append(lines, "written as: "+s.request.Source)
	}
	if s.request.Upstream {
		lines = append(lines, "done by: Kubernetes itself, unless Vicinity is told to take it over")
	}
	for _, warning := range slices.Concat(s.request.Warnings, s.warnings) {
		lines = append(lines, "warning: "+warning)
	}
	if s.noPlan != "" {
		p.list("", append(lines, "no plan: "+s.noPlan))
		return
	}
	p.list("", lines)
	p.table("zones", explain.Region(s.question.Region, capacityTitle(s.capacity.Type)))
	p.table(comparisonTitle(s), planComparison(s))
	shown := s.shown()
	p.table(shownTitle(s), explain.Plan(s.question.Region, *shown))
	p.table("who serves whom", explain.Groups(s.question.Region, *shown))
	writeExcess(p, s.question.Region, shown.Plan)
	if skips := explain.Skips(*shown); len(skips) > 0 {
		p.list("nodes that do not use their own endpoints", skips)
	}
	var advice []string
	for _, a := range s.advice {
		advice = append(advice, a.String())
	}
	if len(advice) == 0 {
		advice = []string{"no small change helps"}
	}
	p.list("to do better", advice)
}

// writeExcess writes which zones send traffic to others by weights.
func writeExcess(p *planPage, region allocate.Region, plan allocate.Plan) {
	if sentences := explain.Excess(region, plan); len(sentences) > 0 {
		p.list("sent to other zones", sentences)
	}
}

func capacityTitle(capacity translate.CapacityType) string {
	if capacity == translate.CapacityCPU {
		return "CPU cores"
	}
	return "nodes"
}

func comparisonTitle(s *planSection) string {
	title := fmt.Sprintf("algorithms (delivered as %s; * is what the Service asks for", s.question.Delivery)
	isAuto := func(o explain.Option) bool { return o.Algorithm == allocate.Auto }
	if s.capacity.Type != translate.CapacityCPU && slices.ContainsFunc(s.comparison.Options, isAuto) {
		title += "; auto plans by CPU"
	}
	return title + ")"
}

func planComparison(s *planSection) explain.Table {
	t := explain.Table{Columns: []explain.Column{
		{Title: "algorithm"},
		{Title: "in-zone %", Right: true},
		{Title: "max overload %", Right: true},
		{Title: "slices", Right: true},
		{Title: "total score", Right: true},
		{Title: "decided by"},
	}}
	for i := range s.comparison.Options {
		o := &s.comparison.Options[i]
		name := optionName(o)
		if i == s.comparison.Asked {
			name += " *"
		}
		t.Rows = append(t.Rows, []string{
			name, oneDecimal(o.Figures.InZone), oneDecimal(o.Figures.Overload),
			strconv.Itoa(o.Slices), strconv.FormatFloat(o.Total, 'f', 2, 64), explain.Outcome(o.Outcome),
		})
	}
	return t
}

func shownTitle(s *planSection) string {
	if s.comparison.Asked == s.comparison.Shown {
		return "plan"
	}
	title := "plan of " + optionName(s.shown())
	if s.shown().Algorithm == translate.DefaultAlgorithm(s.question.Delivery == simulate.Groups) {
		title += fmt.Sprintf(", which the annotation %s: %s would ask for", v1alpha1.AnnotationSameZone, v1alpha1.Prefer)
	}
	return title
}
