package load

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/kit/plaintext"
)

// Table renders a result for people. sources is the number of pods that sent.
func Table(plan Plan, sources int, r Result) string {
	var b strings.Builder
	fact := func(name, format string, args ...any) {
		fmt.Fprintf(&b, "%-11s  %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(&b, "%s\n\n", plan.title(sources))
	sent := r.Due - r.Unsent.Total()
	fact("answered", "%s of %s sent", plaintext.Thousands(r.Answered), plaintext.Thousands(sent))
	if r.Answered > 0 {
		fact("in zone", "%s, in node %s", percent(r.InZone()), percent(r.InNode()))
		latency := r.Latency()
		fact("latency", "p50 %s, p90 %s, p99 %s, p99.9 %s, max %s", milliseconds(latency.Quantile(0.5)), milliseconds(latency.Quantile(0.9)),
			milliseconds(latency.Quantile(0.99)), milliseconds(latency.Quantile(0.999)), milliseconds(latency.Max()))
	}
	failed := plaintext.Thousands(r.Failed())
	if r.Failed() > 0 {
		failed += " (" + percent(fraction(r.Failed(), sent)) + ")"
	}
	fact("failed", "%s", failed)
	if r.Abandoned > 0 {
		fact("abandoned", "%s", plaintext.Thousands(r.Abandoned))
	}
	if r.Unsent.Total() > 0 {
		fact("not sent", "%s", r.Unsent.text())
	}
	connections := plaintext.Thousands(r.Connections)
	if r.Resent > 0 {
		connections += fmt.Sprintf(", %s needed TCP to send again", plaintext.Thousands(r.Resent))
	}
	fact("connections", "%s", connections)

	for _, table := range []plaintext.Table{r.matrix(), r.endpoints(), r.failures()} {
		if len(table.Rows) > 0 {
			b.WriteString("\n")
			_ = table.Text(&b, "") // writing to a Builder never fails
		}
	}
	if len(r.Examples) > 0 {
		b.WriteString("\nThe first failures:\n")
		for _, f := range r.Examples {
			fmt.Fprintf(&b, "  %s\n", f.text())
		}
	}
	return b.String()
}

func (p Plan) title(sources int) string {
	p = p.withDefaults()
	var targets []string
	for _, target := range p.Targets {
		targets = append(targets, target.String())
	}
	to := strings.Join(targets, ", ")
	if p.Service != "" {
		to = p.Service + " at " + to
	}
	return fmt.Sprintf("%s to %s, %s per second for %s from %s", p.Protocol, to,
		strconv.FormatFloat(p.Rate, 'f', -1, 64), p.Duration, plaintext.Count(int64(sources), "pod", "pods"))
}

// newTable makes a table whose first columns are text and whose other columns are numbers.
func newTable(text int, titles ...string) plaintext.Table {
	var t plaintext.Table
	for i, title := range titles {
		t.Columns = append(t.Columns, plaintext.Column{Title: title, Right: i >= text})
	}
	return t
}

// matrix has a row for each zone that sent and a column for each zone that answered.
func (r Result) matrix() plaintext.Table {
	from, to := map[string]bool{}, map[string]bool{}
	answers, sums, failures := map[[2]string]int64{}, map[string]int64{}, map[string]int64{}
	for _, f := range r.Flows {
		from[f.Zone], to[f.To.Zone] = true, true
		answers[[2]string{f.Zone, f.To.Zone}] += f.Answers
		sums[f.Zone] += f.Answers
	}
	for _, f := range r.Failures {
		from[f.From] = true
		failures[f.From] += f.Count
	}
	latencies := map[string]Histogram{}
	for _, l := range r.Latencies {
		latencies[l.From] = l.Histogram
	}
	zones, titles := slices.Sorted(maps.Keys(to)), []string{"FROM \\ TO"}
	for _, zone := range zones {
		titles = append(titles, orNone(zone))
	}
	t := newTable(1, append(titles, "ANSWERS", "IN ZONE", "P50", "P99", "FAILED")...)
	for _, zone := range slices.Sorted(maps.Keys(from)) {
		row := []string{orNone(zone)}
		for _, other := range zones {
			row = append(row, percent(fraction(answers[[2]string{zone, other}], sums[zone])))
		}
		near := int64(0)
		if zone != "" {
			near = answers[[2]string{zone, zone}]
		}
		latency := latencies[zone]
		t.Rows = append(t.Rows, append(row, plaintext.Thousands(sums[zone]), percent(fraction(near, sums[zone])),
			milliseconds(latency.Quantile(0.5)), milliseconds(latency.Quantile(0.99)), plaintext.Thousands(failures[zone])))
	}
	return t
}

func (r Result) endpoints() plaintext.Table {
	answers := map[Endpoint]int64{}
	for _, f := range r.Flows {
		answers[f.To] += f.Answers
	}
	t := newTable(4, "ENDPOINT", "NODE", "ZONE", "SERVICE", "ANSWERS", "SHARE")
	for _, e := range slices.SortedFunc(maps.Keys(answers), compareEndpoints) {
		t.Rows = append(t.Rows, []string{
			e.Pod, orNone(e.Node), orNone(e.Zone), orNone(e.Service), plaintext.Thousands(answers[e]), percent(fraction(answers[e], r.Answered)),
		})
	}
	return t
}

// failures has a row for each kind that occurred and a column for each zone that sent.
func (r Result) failures() plaintext.Table {
	zones, occurred := map[string]bool{}, map[Kind]bool{}
	counts := map[FailureCount]int64{}
	for _, f := range r.Failures {
		zones[f.From], occurred[f.Kind] = true, true
		counts[FailureCount{From: f.From, Kind: f.Kind}] += f.Count
	}
	titles := []string{"FAILURE"}
	for _, zone := range slices.Sorted(maps.Keys(zones)) {
		titles = append(titles, orNone(zone))
	}
	t := newTable(1, append(titles, "ALL")...)
	for _, kind := range slices.SortedFunc(maps.Keys(occurred), compareKinds) {
		row := []string{string(kind)}
		for _, zone := range slices.Sorted(maps.Keys(zones)) {
			row = append(row, plaintext.Thousands(counts[FailureCount{From: zone, Kind: kind}]))
		}
		t.Rows = append(t.Rows, append(row, plaintext.Thousands(r.FailedAs(kind))))
	}
	return t
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
	return fmt.Sprintf("%s %s after %s: %s -> %s: %s", f.Time.UTC().Format("15:04:05.000"), f.Kind, milliseconds(f.After), from, to, f.Error)
}

func (u Unsent) text() string {
	var parts []string
	for _, p := range []struct {
		n   int64
		why string
	}{{u.Busy, "too many under way"}, {u.Late, "too late"}, {u.Local, "no port or file left"}} {
		if p.n > 0 {
			parts = append(parts, plaintext.Thousands(p.n)+" "+p.why)
		}
	}
	return strings.Join(parts, ", ")
}

func orNone(text string) string { return cmp.Or(text, "-") }

func percent(share float64) string { return fmt.Sprintf("%.1f %%", 100*share) }

// milliseconds writes at least three significant digits.
func milliseconds(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
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
