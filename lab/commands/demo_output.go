package commands

import (
	"fmt"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/inspect"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/lab/shape"
)

func (d *demo) say(format string, args ...any) { fmt.Fprintf(d.out, format, args...) }

// barWidth is the number of characters for all answers of a zone.
const barWidth = 20

func (d *demo) picture(m measurement) string {
	width := len("from")
	for _, zone := range d.zones {
		width = max(width, len(zone))
	}
	shares := m.shares(d.zones)
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %-*s", width, "from")
	for _, zone := range d.zones {
		fmt.Fprintf(&b, "  %*s", max(len(zone)+3, 6), "to "+zone)
	}
	b.WriteString("   stays in its zone\n")
	for i, zone := range d.zones {
		fmt.Fprintf(&b, "  %-*s", width, zone)
		for j, to := range d.zones {
			fmt.Fprintf(&b, "  %*s", max(len(to)+3, 6), percent(shares[i][j]))
		}
		filled := int(shares[i][i]*barWidth + 0.5)
		fmt.Fprintf(&b, "   %s%s\n", strings.Repeat("█", filled), strings.Repeat("░", barWidth-filled))
	}
	fmt.Fprintf(&b, "  %s\n", d.sentence(m))
	return b.String()
}

func (d *demo) sentence(m measurement) string {
	text := fmt.Sprintf("%s/s cross zones, %s a month", command.ByteCount(m.crossing()), d.money(m.crossing()))
	if failed := m.result.Failed(); failed > 0 {
		text += fmt.Sprintf(", %s", plaintext.Count(failed, "request failed", "requests failed"))
	}
	return text
}

// money is the monthly cost of bytes per second between zones.
func (d *demo) money(bytesPerSecond float64) string {
	return fmt.Sprintf("%.2f", inspect.MonthlyCost(bytesPerSecond, d.price))
}

func percent(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }

func (m measurement) wrong() error {
	if failed, near := m.result.Failed(), m.result.InZone(); failed > 0 || near < 1 {
		return fmt.Errorf("%s and %s of the answers came from the client's zone: \"vicinity lab status\" says what does not run, and \"vicinity explain svc/%s -n %s\" why traffic goes elsewhere",
			plaintext.Count(failed, "request failed", "requests failed"), percent(near), demoService, demoNamespace)
	}
	return nil
}

func (d *demo) compare(before, after measurement) string {
	rows := [][3]string{
		{"", "before", "after"},
		{"requests", plaintext.Count(before.result.Answered, "answer", "answers"), plaintext.Count(after.result.Answered, "answer", "answers")},
		{"failures", fmt.Sprint(before.result.Failed()), fmt.Sprint(after.result.Failed())},
		{"answered in the client's zone", percent(before.result.InZone()), percent(after.result.InZone())},
		{"latency, median", milliseconds(before), milliseconds(after)},
		{"across zones", command.ByteCount(before.crossing()) + "/s", command.ByteCount(after.crossing()) + "/s"},
		{fmt.Sprintf("a month, at %g per GiB", d.price), d.money(before.crossing()), d.money(after.crossing())},
	}
	var b strings.Builder
	for _, row := range rows {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-30s %14s %14s", row[0], row[1], row[2]), " ") + "\n")
	}
	return b.String()
}

func milliseconds(m measurement) string {
	median := m.result.Latency().Quantile(0.5)
	return fmt.Sprintf("%.2f ms", float64(median)/float64(time.Millisecond))
}

// goOn describes the lab and suggests what to try next. program is the name that the user called
// vicinity by.
func (d *demo) goOn(program string, before, after measurement) string {
	up, name, status := d.cluster.Shape(), "", "status"
	if up.Name != shape.DefaultName {
		name = " --name " + up.Name
	}
	if up.Proxy.Vicinity() {
		status = fmt.Sprintf("status --traffic --cost-per-gib %g", d.price)
	}
	return fmt.Sprintf(`
Up:    lab %[1]s, a Kubernetes of %[2]s, with Vicinity
Shown: the annotation keeps %[3]s of the answers in the client's zone, instead of %[4]s
Next:

  export KUBECONFIG=%[5]s
  %[6]s explain svc/%[7]s -n %[8]s
  %[6]s %[9]s
  %[6]s lab load %[7]s -n %[8]s%[10]s

"%[6]s lab down%[10]s" removes it.
`, up.Name, describeShape(up), percent(after.result.InZone()), percent(before.result.InZone()),
		d.cluster.Kubeconfig(), program, demoService, demoNamespace, status, name)
}
