package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

type figures struct {
	// machine describes the machine.
	machine  string
	contests []*contest
	// own and all are the received bytes of a proxy that sees only its zone's groups, and of one that
	// sees all, with a number of zones; 0 if not measured.
	own, all received
	zones    int
	// crowd is the number of endpoints of the large Service, crowdWritten the time until all its
	// slices were written, crowded the time until they were programmed.
	crowd                 int
	crowdWritten, crowded time.Duration
	crowdCPU              time.Duration
	crowdMemory           int64
	crowdLoad             string
}

type contest struct {
	proxy    string
	services int
	// starts are the times from the start of the program to a first connection by its rules, one per
	// round.
	starts []time.Duration
	// changes are the times from a change of a slice, writes the API server's part of them,
	// groupChanges the times from a change of a group.
	changes, writes, groupChanges []time.Duration
	// cpu is the CPU time of costed changes.
	cpu    time.Duration
	costed int
	// memory is the program's memory, the most of all rounds.
	memory int64
	// connects are the times to open a connection, direct those to the endpoint itself.
	connects, direct []time.Duration
	// raced has the median of each race of both proxies at the same time, racedDirect the medians to
	// the endpoint itself.
	raced, racedDirect []time.Duration
	// answered and failed count the connections of both kinds, with races.
	answered, failed int
	// turns is the time of all turns.
	turns time.Duration
	// loads are the loads of the machine at the start and end of each turn.
	loads []string
}

func (c *contest) look() { c.loads = append(c.loads, meter.LoadNow()) }

type received struct {
	bytes, endpoints float64
	memory           int64
	load             string
}

// of returns the contest of a proxy with a number of Services, and makes it if needed.
func (f *figures) of(proxy string, services int) *contest {
	for _, c := range f.contests {
		if c.proxy == proxy && c.services == services {
			return c
		}
	}
	c := &contest{proxy: proxy, services: services}
	f.contests = append(f.contests, c)
	return c
}

// String returns tables and RESULT lines.
func (f *figures) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n%s", f.machine, f.table())
	if f.zones > 0 {
		rows := [][]string{{fmt.Sprintf("a node of %d zones sees", f.zones), "endpoints", "bytes of groups received", "memory", "load"}}
		for _, one := range []struct {
			what string
			received
		}{{"its own zone", f.own}, {"all zones", f.all}} {
			rows = append(rows, []string{
				one.what, fmt.Sprintf("%.0f", one.endpoints), fmt.Sprintf("%.1f MiB", one.bytes/(1<<20)), fmt.Sprintf("%d MiB", one.memory>>20), one.load,
			})
		}
		text.WriteString("\n" + meter.Table(rows))
	}
	if f.crowd > 0 {
		fmt.Fprintf(&text, "\n%d endpoints in one Service: programmed %.1f s after the first slice was sent, %.1f s after the last was written; %.1f s of CPU in the proxy, %d MiB held; load %s\n",
			f.crowd, f.crowded.Seconds(), (f.crowded - f.crowdWritten).Seconds(), f.crowdCPU.Seconds(), f.crowdMemory>>20, f.crowdLoad)
	}
	text.WriteByte('\n')
	f.list(&text)
	return text.String()
}

// table has a row for each figure, with both proxies.
func (f *figures) table() string {
	contests := slices.SortedStableFunc(slices.Values(f.contests), func(a, b *contest) int { return a.services - b.services })
	titles := []string{""}
	for _, c := range contests {
		titles = append(titles, fmt.Sprintf("%d Services, %s", c.services, c.proxy))
	}
	table := [][]string{titles}
	for _, row := range []struct {
		name string
		of   func(*contest) string
	}{
		{"start to first rule, median", func(c *contest) string { return fmt.Sprintf("%.2f s", meter.Quantile(c.starts, 0.5).Seconds()) }},
		{"change of a slice to a connection reaching it: p50, p99", func(c *contest) string { return pair(c.changes) }},
		{"changes measured", func(c *contest) string { return fmt.Sprint(len(c.changes)) }},
		{"of that the API's answer: p50, p99", func(c *contest) string { return pair(c.writes) }},
		{"change of a group to a connection reaching it: p50, p99", func(c *contest) string { return pair(c.groupChanges) }},
		{"CPU of the proxy for a change", func(c *contest) string { return milliseconds(c.cpuPerChange()) }},
		{"resident memory", func(c *contest) string { return fmt.Sprintf("%d MiB", c.memory>>20) }},
		{"connect by the cluster IP: p50, p99", func(c *contest) string { return connected(c.connects) }},
		{"connect to the endpoint itself: p50, p99", func(c *contest) string { return connected(c.direct) }},
		{"connect by the cluster IP, both proxies in turns: p50 of each race", func(c *contest) string { return medians(c.raced) }},
		{"connect to the endpoint itself from the same node", func(c *contest) string { return medians(c.racedDirect) }},
		{"connections that failed", func(c *contest) string {
			return fmt.Sprintf("%d of %d", c.failed, c.failed+c.answered)
		}},
		{"all turns took", func(c *contest) string { return fmt.Sprintf("%.0f s", c.turns.Seconds()) }},
		{"load of the machine, during it", func(c *contest) string { return strings.Join(c.loads, " ") }},
	} {
		cells := []string{row.name}
		for _, c := range contests {
			cells = append(cells, row.of(c))
		}
		table = append(table, cells)
	}
	return meter.Table(table)
}

func (f *figures) list(text *strings.Builder) {
	for _, c := range f.contests {
		group := "-"
		if len(c.groupChanges) > 0 {
			group = fmt.Sprintf("%.2f", meter.Milliseconds(meter.Quantile(c.groupChanges, 0.5)))
		}
		fmt.Fprintf(text, "RESULT proxy=%s services=%d start_s=%.2f change_p50_ms=%.1f change_p99_ms=%.1f group_p50_ms=%s cpu_per_change_ms=%.2f rss_mib=%d connect_p50_us=%.1f\n",
			c.proxy, c.services, meter.Quantile(c.starts, 0.5).Seconds(), meter.Milliseconds(meter.Quantile(c.changes, 0.5)), meter.Milliseconds(meter.Quantile(c.changes, 0.99)),
			group, meter.Milliseconds(c.cpuPerChange()), c.memory>>20, meter.Microseconds(c.connect()))
	}
	if f.zones > 0 {
		fmt.Fprintf(text, "RESULT subsetting zones=%d endpoints=%.0f bytes_mib=%.1f rss_mib=%d all_endpoints=%.0f all_bytes_mib=%.1f all_rss_mib=%d\n",
			f.zones, f.own.endpoints, f.own.bytes/(1<<20), f.own.memory>>20, f.all.endpoints, f.all.bytes/(1<<20), f.all.memory>>20)
	}
	if f.crowd > 0 {
		fmt.Fprintf(text, "RESULT crowd endpoints=%d written_s=%.1f programmed_s=%.1f cpu_s=%.1f rss_mib=%d\n",
			f.crowd, f.crowdWritten.Seconds(), f.crowded.Seconds(), f.crowdCPU.Seconds(), f.crowdMemory>>20)
	}
}

// connect is the time of a connection, measured beside the other proxy if possible.
func (c *contest) connect() time.Duration {
	if len(c.raced) > 0 {
		return meter.Quantile(c.raced, 0.5)
	}
	return meter.Quantile(c.connects, 0.5)
}

func (c *contest) cpuPerChange() time.Duration { return c.cpu / time.Duration(max(1, c.costed)) }

// pair formats the median and the 99th percentile, if there are times.
func pair(times []time.Duration) string {
	if len(times) == 0 {
		return "-"
	}
	return milliseconds(meter.Quantile(times, 0.5)) + ", " + milliseconds(meter.Quantile(times, 0.99))
}

func medians(all []time.Duration) string {
	if len(all) == 0 {
		return "-"
	}
	text := make([]string, len(all))
	for i, one := range all {
		text[i] = fmt.Sprintf("%.1f µs", meter.Microseconds(one))
	}
	return strings.Join(text, ", ")
}

// connected is pair for connections. It also counts connections that took so long that a packet
// must have been lost.
func connected(times []time.Duration) string {
	text := fmt.Sprintf("%.1f µs, %.1f µs", meter.Microseconds(meter.Quantile(times, 0.5)), meter.Microseconds(meter.Quantile(times, 0.99)))
	late := 0
	for _, took := range times {
		if took >= sentAgain {
			late++
		}
	}
	if late > 0 {
		text += fmt.Sprintf(" (%d of %d took a second and more)", late, len(times))
	}
	return text
}

// sentAgain is the time after which a SYN is sent again.
const sentAgain = time.Second

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", meter.Milliseconds(d)) }
