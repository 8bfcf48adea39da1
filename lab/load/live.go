package load

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// View is what the live view shows.
type View struct {
	Plan    Plan
	Sources int
	Progress
}

// Live renders a view as lines of at most width characters. The caller overwrites the one
// before.
func Live(v View, width int) string {
	all := Summarize(v.Plan, v.Sources, v.Total)
	last := Summarize(v.Plan, v.Sources, v.Last)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", all.title())
	fmt.Fprintf(&b, "%s %s of %s\n\n", bar(fractionOf(v.Elapsed, v.Plan.Duration), 30), clock(v.Elapsed), clock(v.Plan.Duration))

	b.WriteString(columns([][]string{
		{"", "NOW", "ALL"},
		{"answers", count(last.Answered), count(all.Answered)},
		{"failures", count(last.Failed), count(all.Failed)},
		{"not sent", count(last.Unsent.Total()), count(all.Unsent.Total())},
		{"in zone", shareOf(last.InZone, last.Answered), shareOf(all.InZone, all.Answered)},
		{"p50", latencyOf(last.Latency.P50, last.Answered), latencyOf(all.Latency.P50, all.Answered)},
		{"p99", latencyOf(last.Latency.P99, last.Answered), latencyOf(all.Latency.P99, all.Answered)},
	}, "l"))

	if len(all.Matrix) > 0 {
		b.WriteString("\nwho talks to whom now\n" + v.zoneTable(all, last))
	}
	if n := len(v.Total.Examples); n > 0 {
		fmt.Fprintf(&b, "\nfirst failure: %s\n", v.Total.Examples[0].text())
	}
	return truncate(b.String(), width)
}

// zoneTable draws the matrix of the last interval with the rows and columns of the whole
// run, so that it keeps its shape.
func (v View) zoneTable(all, last Summary) string {
	head := []string{""}
	for _, zone := range all.Zones {
		head = append(head, orNone(zone))
	}
	rows := [][]string{append(head, "failed")}
	for _, whole := range all.Matrix {
		row := []string{orNone(whole.From)}
		now := ZoneRow{}
		if i := slices.IndexFunc(last.Matrix, func(r ZoneRow) bool { return r.From == whole.From }); i >= 0 {
			now = last.Matrix[i]
		}
		for _, zone := range all.Zones {
			share := 0.0
			if i := slices.IndexFunc(now.To, func(c ZoneCell) bool { return c.Zone == zone }); i >= 0 {
				share = now.To[i].Share
			}
			row = append(row, fmt.Sprintf("%s %7s", bar(share, 10), shareOf(share, now.Answered)))
		}
		rows = append(rows, append(row, count(now.Failed)))
	}
	return columns(rows, "l"+strings.Repeat("l", len(all.Zones)))
}

// Line renders the last interval as one line, for output that cannot be overwritten.
func Line(v View) string {
	last := Summarize(v.Plan, v.Sources, v.Last)
	return fmt.Sprintf("%s  answers %s  in zone %s  p50 %s  p99 %s  failures %s  not sent %s", clock(v.Elapsed), count(last.Answered),
		shareOf(last.InZone, last.Answered), latencyOf(last.Latency.P50, last.Answered), latencyOf(last.Latency.P99, last.Answered),
		count(last.Failed), count(last.Unsent.Total()))
}

func shareOf(share float64, answers int64) string {
	if answers == 0 {
		return "-"
	}
	return percent(share)
}

func latencyOf(ms float64, answers int64) string {
	if answers == 0 {
		return "-"
	}
	return milliseconds(ms)
}

func fractionOf(part, whole time.Duration) float64 {
	if whole <= 0 {
		return 0
	}
	return part.Seconds() / whole.Seconds()
}

// clock rounds a duration to tenths of a second.
func clock(d time.Duration) string { return d.Round(100 * time.Millisecond).String() }

func bar(share float64, width int) string {
	filled := int(math.Round(min(max(share, 0), 1) * float64(width)))
	return "[" + strings.Repeat("#", filled) + strings.Repeat(" ", width-filled) + "]"
}

func truncate(text string, width int) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if runes := []rune(line); len(runes) > width && width > 0 {
			lines[i] = string(runes[:width])
		}
	}
	return strings.Join(lines, "\n")
}
