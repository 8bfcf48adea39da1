package load

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Table renders a summary for people.
func Table(s Summary) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n\n", s.title())
	facts := [][]string{{"answered", fmt.Sprintf("%s of %s sent", count(s.Answered), count(s.Sent))}}
	if s.Answered > 0 {
		facts = append(facts,
			[]string{"in zone", percent(s.InZone) + ", in node " + percent(s.InNode)},
			[]string{"latency", s.Latency.text()})
	}
	failed := count(s.Failed)
	if s.Failed > 0 {
		failed += " (" + percent(fraction(s.Failed, s.Sent)) + ")"
	}
	facts = append(facts, []string{"failed", failed})
	if s.Abandoned > 0 {
		facts = append(facts, []string{"abandoned", count(s.Abandoned)})
	}
	if s.Unsent.Total() > 0 {
		facts = append(facts, []string{"not sent", s.Unsent.text()})
	}
	connections := count(s.Connections)
	if s.Replaced > 0 {
		connections += fmt.Sprintf(", %s closed while idle", count(s.Replaced))
	}
	if s.Resent > 0 {
		connections += fmt.Sprintf(", %s needed TCP to send again", count(s.Resent))
	}
	facts = append(facts, []string{"connections", connections})
	b.WriteString(columns(facts, ""))

	if len(s.Matrix) > 0 {
		b.WriteString("\n" + s.matrix())
	}
	if len(s.Endpoints) > 0 {
		b.WriteString("\n" + s.endpoints())
	}
	if len(s.Failures) > 0 {
		b.WriteString("\n" + s.failures())
	}
	if len(s.Examples) > 0 {
		b.WriteString("\nThe first failures:\n")
		for _, f := range s.Examples {
			fmt.Fprintf(&b, "  %s\n", f.text())
		}
	}
	return b.String()
}

func (s Summary) title() string {
	whom := strings.Join(s.Targets, ", ")
	if s.Service != "" {
		whom = s.Service + " at " + whom
	}
	how := "a connection for each request"
	if s.Protocol == UDP {
		how = "a socket for each request"
	}
	if s.KeepAlive {
		how = strings.Fields(how)[1] + "s kept"
	}
	return fmt.Sprintf("%s to %s, %s per second for %s from %s, %s", s.Protocol, whom,
		strconv.FormatFloat(s.RateAsked, 'f', -1, 64), time.Duration(s.Seconds*float64(time.Second)), number(s.Sources, "pod"), how)
}

func (s Summary) matrix() string {
	head := []string{"FROM \\ TO"}
	for _, zone := range s.Zones {
		head = append(head, orNone(zone))
	}
	rows := [][]string{append(head, "ANSWERS", "IN ZONE", "P50", "P99", "FAILED")}
	for _, r := range s.Matrix {
		row := []string{orNone(r.From)}
		for _, cell := range r.To {
			row = append(row, percent(cell.Share))
		}
		rows = append(rows, append(row, count(r.Answered), percent(r.InZone), milliseconds(r.Latency.P50),
			milliseconds(r.Latency.P99), count(r.Failed)))
	}
	return columns(rows, "l")
}

func (s Summary) endpoints() string {
	rows := [][]string{{"ENDPOINT", "NODE", "ZONE", "SERVICE", "ANSWERS", "SHARE"}}
	for _, e := range s.Endpoints {
		rows = append(rows, []string{e.Pod, orNone(e.Node), orNone(e.Zone), orNone(e.Service), count(e.Answers), percent(e.Share)})
	}
	return columns(rows, "llll")
}

// failures has a row for each kind that occurred and a column for each zone that sent.
func (s Summary) failures() string {
	var zones []string
	byKind := make(map[Kind]map[string]int64)
	var order []Kind
	for _, f := range s.Failures {
		if !slices.Contains(zones, f.From) {
			zones = append(zones, f.From)
		}
		if byKind[f.Kind] == nil {
			byKind[f.Kind] = make(map[string]int64)
			order = append(order, f.Kind)
		}
		byKind[f.Kind][f.From] += f.Count
	}
	slices.Sort(zones)
	slices.SortFunc(order, compareKinds)
	head := []string{"FAILURE"}
	for _, zone := range zones {
		head = append(head, orNone(zone))
	}
	rows := [][]string{append(head, "ALL")}
	for _, kind := range order {
		row := []string{string(kind)}
		var all int64
		for _, zone := range zones {
			row = append(row, count(byKind[kind][zone]))
			all += byKind[kind][zone]
		}
		rows = append(rows, append(row, count(all)))
	}
	return columns(rows, "l")
}

func (f Failure) text() string {
	from := fmt.Sprintf("%s (%s)", orNone(f.From.Pod), orNone(f.From.Zone))
	if f.Local != "" {
		from += " " + f.Local
	}
	to := f.Target
	if f.To != nil {
		to += fmt.Sprintf(" %s (%s)", f.To.Pod, orNone(f.To.Zone))
	}
	return fmt.Sprintf("%s %s after %s: %s -> %s: %s", f.Time.UTC().Format("15:04:05.000"), f.Kind,
		milliseconds(float64(f.After)/float64(time.Millisecond)), from, to, f.Error)
}

func (u Unsent) text() string {
	var parts []string
	for _, p := range []struct {
		n   int64
		why string
	}{{u.Busy, "too many under way"}, {u.Late, "too late"}, {u.Local, "no port or file left"}} {
		if p.n > 0 {
			parts = append(parts, count(p.n)+" "+p.why)
		}
	}
	return strings.Join(parts, ", ")
}

func (p Percentiles) text() string {
	return fmt.Sprintf("p50 %s, p90 %s, p99 %s, p99.9 %s, max %s", milliseconds(p.P50), milliseconds(p.P90),
		milliseconds(p.P99), milliseconds(p.P999), milliseconds(p.Max))
}

// columns aligns rows. Columns with an "l" in align are aligned left, others right; without
// any align all are aligned left.
func columns(rows [][]string, align string) string {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			space := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i > 0 {
				line.WriteString("  ")
			}
			if align == "" || i < len(align) {
				line.WriteString(cell + space)
			} else {
				line.WriteString(space + cell)
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

func orNone(text string) string { return cmp.Or(text, "-") }

func number(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return count(int64(n)) + " " + thing + "s"
}

func count(n int64) string {
	if n < 0 {
		return "-" + count(-n)
	}
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// milliseconds shows at least three significant digits.
func milliseconds(ms float64) string {
	switch {
	case ms >= 1000:
		return fmt.Sprintf("%.2f s", ms/1000)
	case ms >= 100:
		return fmt.Sprintf("%.0f ms", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f ms", ms)
	}
	return fmt.Sprintf("%.2f ms", ms)
}
