package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// figures are what was measured.
type figures struct {
	contests []*contest
	// own and all are what a proxy receives whose node sees its zone's groups alone, and
	// that of a node that sees all, with so many zones; 0 if that was not measured.
	own, all received
	zones    int
	// crowd is the number of endpoints that one Service got, crowded the time until they
	// were programmed.
	crowd       int
	crowded     time.Duration
	crowdCPU    time.Duration
	crowdMemory int64
}

// contest is what was measured of a proxy with a number of Services.
type contest struct {
	proxy    string
	services int
	// starts are the times from the start of the program to a first connection by its
	// rules, one for each round.
	starts []time.Duration
	// changes are the times from a change of a slice, groupChanges those from a change of
	// a group.
	changes, groupChanges []time.Duration
	// cpu is what so many changes cost.
	cpu    time.Duration
	costed int
	// memory is what the program held, the most of all rounds.
	memory int64
	// connects are the times to open a connection.
	connects []time.Duration
}

// received is what a proxy got and holds.
type received struct {
	bytes, endpoints float64
	memory           int64
}

// of finds the contest of a proxy with a number of Services.
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

// quantile is the least of some times that so large a share of them does not exceed, zero
// if there are none.
func quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// String is a table and a line for programs for each contest.
func (f *figures) String() string {
	var table, results strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "services\tproxy\tstart\tchange p50\tchange p99\tgroup p50\tgroup p99\tCPU a change\tmemory\tconnect p50")
	for _, c := range f.contests {
		cpu := c.cpu / time.Duration(max(1, c.costed))
		fmt.Fprintf(w, "%d\t%s\t%.2f s\t%s\t%s\t%s\t%s\t%s\t%d MiB\t%.1f µs\n",
			c.services, c.proxy, quantile(c.starts, 0.5).Seconds(), milliseconds(quantile(c.changes, 0.5)), milliseconds(quantile(c.changes, 0.99)),
			orNone(c.groupChanges, 0.5), orNone(c.groupChanges, 0.99), milliseconds(cpu), c.memory>>20, inMicroseconds(quantile(c.connects, 0.5)))
		group := "-"
		if len(c.groupChanges) > 0 {
			group = fmt.Sprintf("%.2f", inMilliseconds(quantile(c.groupChanges, 0.5)))
		}
		fmt.Fprintf(&results, "RESULT proxy=%s services=%d start_s=%.2f change_p50_ms=%.1f change_p99_ms=%.1f group_p50_ms=%s cpu_per_change_ms=%.2f rss_mib=%d connect_p50_us=%.1f\n",
			c.proxy, c.services, quantile(c.starts, 0.5).Seconds(), inMilliseconds(quantile(c.changes, 0.5)), inMilliseconds(quantile(c.changes, 0.99)),
			group, inMilliseconds(cpu), c.memory>>20, inMicroseconds(quantile(c.connects, 0.5)))
	}
	// A strings.Builder takes all that is written.
	_ = w.Flush()
	if f.zones > 0 {
		fmt.Fprintf(&table, "\na node that sees its own zone of %d: %.0f endpoints, %.1f MiB of groups received, %d MiB held; one that sees all: %.0f, %.1f MiB, %d MiB\n",
			f.zones, f.own.endpoints, f.own.bytes/(1<<20), f.own.memory>>20, f.all.endpoints, f.all.bytes/(1<<20), f.all.memory>>20)
		fmt.Fprintf(&results, "RESULT subsetting zones=%d endpoints=%.0f bytes_mib=%.1f rss_mib=%d all_endpoints=%.0f all_bytes_mib=%.1f all_rss_mib=%d\n",
			f.zones, f.own.endpoints, f.own.bytes/(1<<20), f.own.memory>>20, f.all.endpoints, f.all.bytes/(1<<20), f.all.memory>>20)
	}
	if f.crowd > 0 {
		fmt.Fprintf(&table, "\none Service of %d endpoints: programmed %.1f s after the first was written, %.1f s of CPU, %d MiB held\n",
			f.crowd, f.crowded.Seconds(), f.crowdCPU.Seconds(), f.crowdMemory>>20)
		fmt.Fprintf(&results, "RESULT crowd endpoints=%d programmed_s=%.1f cpu_s=%.1f rss_mib=%d\n", f.crowd, f.crowded.Seconds(), f.crowdCPU.Seconds(), f.crowdMemory>>20)
	}
	return table.String() + "\n" + results.String()
}

func orNone(times []time.Duration, share float64) string {
	if len(times) == 0 {
		return "-"
	}
	return milliseconds(quantile(times, share))
}

func inMilliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

func inMicroseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", inMilliseconds(d)) }
