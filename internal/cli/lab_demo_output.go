package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

// screen shows a picture that changes: in place on a terminal, elsewhere one line for
// each change. After an error it shows nothing more.
type screen struct {
	out   io.Writer
	live  bool
	drawn int // lines of the picture that stands
	err   error
}

// picture is what is shown of a moment: a table, and the same in a line.
type picture struct {
	table []string
	line  string
}

func (s *screen) say(format string, args ...any) {
	if s.err == nil {
		_, s.err = fmt.Fprintf(s.out, format, args...)
	}
}

// draw shows a moment, in place of the one before.
func (s *screen) draw(p picture) {
	if !s.live {
		s.say("%s\n", p.line)
		return
	}
	s.replace(p.table)
}

// settle shows the picture that stays.
func (s *screen) settle(p picture) {
	if !s.live {
		s.say("\n")
	}
	s.replace(p.table)
	s.drawn = 0
}

func (s *screen) replace(lines []string) {
	if s.drawn > 0 {
		// To the beginning of the first line, and clear all below.
		s.say("\x1b[%dA\r\x1b[J", s.drawn)
	}
	s.say("%s\n", strings.Join(lines, "\n"))
	s.drawn = len(lines)
}

// barWidth is how many characters show all of a zone's answers.
const barWidth = 20

// picture draws who answers whom, and what crosses zones.
func (d *demo) picture(m measurement, elapsed time.Duration) picture {
	width := len("from")
	for _, zone := range d.zones {
		width = max(width, len(zone))
	}
	shares := m.shares(d.zones)
	header := fmt.Sprintf("  %-*s", width, "from")
	for _, zone := range d.zones {
		header += fmt.Sprintf("  %*s", max(len(zone)+3, 6), "to "+zone)
	}
	p := picture{table: []string{header + "   stays in its zone"}}
	var parts []string
	for i, zone := range d.zones {
		row := fmt.Sprintf("  %-*s", width, zone)
		for j, to := range d.zones {
			row += fmt.Sprintf("  %*s", max(len(to)+3, 6), percent(shares[i][j]))
		}
		filled := int(shares[i][i]*barWidth + 0.5)
		p.table = append(p.table, row+"   "+strings.Repeat("█", filled)+strings.Repeat("░", barWidth-filled))
		parts = append(parts, fmt.Sprintf("%s %s", zone, percent(shares[i][i])))
	}
	p.table = append(p.table, "  "+d.sentence(m))
	p.line = fmt.Sprintf("  %3.0f s: stays in zone: %s; %s", elapsed.Seconds(), strings.Join(parts, ", "), d.sentence(m))
	return p
}

// sentence says what happened in words.
func (d *demo) sentence(m measurement) string {
	text := fmt.Sprintf("%s/s cross zones, %s a month", byteCount(m.crossing()), d.money(m))
	if failed := m.result.Failed(); failed > 0 {
		text += fmt.Sprintf(", %s", count(failed, "request failed", "requests failed"))
	}
	return text
}

// month is the time for which a cloud sends a bill.
const month = 30 * 24 * time.Hour

// money is what the crossing traffic would cost if it went on for a month.
func (d *demo) money(m measurement) string {
	const gigabyte = 1e9
	return fmt.Sprintf("%.2f", m.crossing()*month.Seconds()/gigabyte*d.price)
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

// compare is the outcome in a few lines.
func (d *demo) compare(before, after measurement) string {
	rows := [][3]string{
		{"", "before", "after"},
		{"answered in the client's zone", percent(before.result.InZone()), percent(after.result.InZone())},
		{"across zones", byteCount(before.crossing()) + "/s", byteCount(after.crossing()) + "/s"},
		{fmt.Sprintf("a month, at %g per GB", d.price), d.money(before), d.money(after)},
		{"latency, median", milliseconds(before), milliseconds(after)},
		{"requests", count(before.result.Answered, "answer", "answers"), count(after.result.Answered, "answer", "answers")},
		{"failures", fmt.Sprint(before.result.Failed()), fmt.Sprint(after.result.Failed())},
	}
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "  %-30s %14s %14s\n", row[0], row[1], row[2])
	}
	return b.String()
}

func milliseconds(m measurement) string {
	median := m.result.Latency().Quantile(0.5)
	return fmt.Sprintf("%.2f ms", float64(median)/float64(time.Millisecond))
}

// goOn says what to try next, by the name that this program was called by.
func goOn(program string, cluster *lab.Cluster) string {
	kubectl, name := "kubectl", ""
	// With a path the program was not found in the PATH, so what is beside it is not.
	if beside := filepath.Join(filepath.Dir(program), kubectl); strings.Contains(program, "/") && isFile(beside) {
		kubectl = beside
	}
	if own := cluster.Shape().Name; own != shape.DefaultName {
		name = " --name " + own
	}
	return fmt.Sprintf(`
The lab is up. To go on:

  export KUBECONFIG=%[1]s
  %[4]s explain svc/%[6]s -n %[3]s
  %[2]s scale deployment/%[6]s --replicas 6 -n %[3]s
  %[4]s lab load %[6]s -n %[3]s --live%[5]s

"%[4]s lab down%[5]s" removes it.
`, cluster.Kubeconfig(), kubectl, demoNamespace, program, name, demoService)
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
