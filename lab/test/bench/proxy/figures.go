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
	// crowd is the number of endpoints of the large Service, crowded the time until they were
	// programmed.
	crowd       int
	crowded     time.Duration
	crowdMemory int64
}

type contest struct {
	proxy    string
	services int
	// starts are the times from the start of the program to a first connection by its rules, one per
	// round.
	starts []time.Duration
	// changes are the times from a change of a slice.
	changes []time.Duration
	// cpu is the CPU time of costed changes.
	cpu    time.Duration
	costed int
	// memory is the program's memory, the most of all rounds.
	memory int64
	// raced has the median of each race of both proxies at the same time, racedDirect the medians to
	// the endpoint itself.
	raced, racedDirect []time.Duration
	// answered and failed count the connections after the changes and in races.
	answered, failed int
}

type received struct {
	bytes, endpoints float64
	memory           int64
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

// String returns tables.
func (f *figures) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n%s", f.machine, f.table())
	if f.zones > 0 {
		rows := [][]string{{fmt.Sprintf("a node of %d zones sees", f.zones), "endpoints", "bytes of groups received", "memory"}}
		for _, one := range []struct {
			what string
			received
		}{{"its own zone", f.own}, {"all zones", f.all}} {
			rows = append(rows, []string{
				one.what, fmt.Sprintf("%.0f", one.endpoints), fmt.Sprintf("%.1f MiB", one.bytes/(1<<20)), fmt.Sprintf("%d MiB", one.memory>>20),
			})
		}
		text.WriteString("\n" + meter.Table(rows))
	}
	if f.crowd > 0 {
		fmt.Fprintf(&text, "\n%d endpoints in one Service: programmed %.1f s after the first slice was sent; %d MiB held\n",
			f.crowd, f.crowded.Seconds(), f.crowdMemory>>20)
	}
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
		{"CPU of the proxy for a change", func(c *contest) string { return milliseconds(c.cpuPerChange()) }},
		{"resident memory", func(c *contest) string { return fmt.Sprintf("%d MiB", c.memory>>20) }},
		{"connect by the cluster IP, both proxies in turns: p50 of each race", func(c *contest) string { return medians(c.raced) }},
		{"connect to the endpoint itself from the same node", func(c *contest) string { return medians(c.racedDirect) }},
		{"connections that failed", func(c *contest) string {
			return fmt.Sprintf("%d of %d", c.failed, c.failed+c.answered)
		}},
	} {
		cells := []string{row.name}
		for _, c := range contests {
			cells = append(cells, row.of(c))
		}
		table = append(table, cells)
	}
	return meter.Table(table)
}

func (c *contest) cpuPerChange() time.Duration { return c.cpu / time.Duration(max(1, c.costed)) }

// pair formats the median and the 99th percentile.
func pair(times []time.Duration) string {
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

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", meter.Milliseconds(d)) }
