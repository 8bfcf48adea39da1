package cli

import (
	"fmt"
	"slices"
	"strconv"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/routing/explain"
	"vicinity.dev/vicinity/internal/routing/intent"
)

func writePlan(p *page, sections []inspect.Section, full bool) {
	if !full || len(sections) > 1 {
		p.table("", planSummary(sections))
	}
	if full {
		for i := range sections {
			writePlanSection(p, &sections[i])
		}
	}
}

func planSummary(sections []inspect.Section) plaintext.Table {
	t := plaintext.NewTable("service", ">endpoints", "asks for", ">in-zone %", ">overload %", ">best in-zone %", "with", "decided by")
	for i := range sections {
		s := &sections[i]
		if s.NoPlan != "" {
			t.Rows = append(t.Rows, []string{s.Title(), "-", "-", "-", "-", "-", "-", "no plan: " + s.NoPlan})
			continue
		}
		asked, best := s.Asked(), s.Comparison.Best()
		t.Rows = append(t.Rows, []string{
			s.Title(), strconv.Itoa(asked.Outcome.Endpoints), explain.ShortIntent(s.Request.Intent),
			oneDecimal(asked.Figures.InZone), oneDecimal(asked.Figures.Overload),
			oneDecimal(best.Figures.InZone), inspect.OptionName(&best), explain.Outcome(asked.Outcome),
		})
	}
	return t
}

func writePlanSection(p *page, s *inspect.Section) {
	p.heading("Service " + s.Title())
	var lines []string
	if s.NoPlan == "" || s.Source != "" {
		lines = append(lines, "asks for: "+s.AsksFor)
	}
	if s.Source != "" {
		lines = append(lines, "written as: "+s.Source)
	}
	if s.Upstream && !s.Request.Headless {
		lines = append(lines, "done by: Kubernetes itself, unless Vicinity takes it over")
	}
	for _, warning := range s.Warnings {
		lines = append(lines, "warning: "+warning)
	}
	if s.NoPlan != "" {
		p.list("", append(lines, "no plan: "+s.NoPlan))
		return
	}
	p.list("", lines)
	p.table("zones", explain.Region(s.Question.Region, capacityTitle(s.Unit)))
	p.table(comparisonTitle(&s.Plans), planComparison(&s.Plans))
	shown := s.Shown()
	p.table(shownTitle(s), explain.Plan(s.Question.Region, *shown))
	p.table("who serves whom", explain.Groups(s.Question.Region, *shown))
	p.list("sent to other zones", explain.Excess(s.Question.Region, shown.Plan))
	p.list("nodes that do not use their own endpoints", explain.Skips(*shown))
	var advice []string
	for i := range s.Advice {
		advice = append(advice, s.Advice[i].Advice)
	}
	if len(advice) == 0 {
		advice = []string{"no small change helps"}
	}
	p.list("to do better", advice)
}

func capacityTitle(capacity intent.CapacityType) string {
	if capacity == intent.CapacityCPU {
		return "CPU cores"
	}
	return "nodes"
}

func comparisonTitle(s *inspect.Plans) string {
	title := fmt.Sprintf("algorithms (delivered as %s; * is what the Service asks for", s.Question.Delivery)
	isAuto := func(o explain.Option) bool { return o.Algorithm == allocate.Auto }
	if s.Unit != intent.CapacityCPU && slices.ContainsFunc(s.Comparison.Options, isAuto) {
		title += "; auto plans by CPU"
	}
	return title + ")"
}

func planComparison(s *inspect.Plans) plaintext.Table {
	t := plaintext.NewTable("algorithm", ">in-zone %", ">max overload %", ">slices", ">total score", "decided by")
	for i := range s.Comparison.Options {
		o := &s.Comparison.Options[i]
		name := inspect.OptionName(o)
		if i == s.Comparison.Asked {
			name += " *"
		}
		t.Rows = append(t.Rows, []string{
			name, oneDecimal(o.Figures.InZone), oneDecimal(o.Figures.Overload),
			strconv.Itoa(o.Slices), strconv.FormatFloat(o.Total, 'f', 2, 64), explain.Outcome(o.Outcome),
		})
	}
	return t
}

func shownTitle(s *inspect.Section) string {
	if s.Comparison.Asked == s.Comparison.Shown {
		return "plan"
	}
	title := "plan of " + inspect.OptionName(s.Shown())
	if s.Shown().Algorithm == intent.DefaultAlgorithm(s.Question.Delivery == allocate.DeliveryGroups) {
		title += fmt.Sprintf(", which the annotation %s: %s would ask for", v1alpha1.AnnotationSameZone, v1alpha1.Prefer)
	}
	return title
}
