package main

import (
	"fmt"
	"slices"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

// Targets at full size.
const (
	aimCPU    = 2 * time.Minute
	aimMemory = 1 << 30
	aimChange = 250 * time.Millisecond
)

type figures struct {
	nodes, services, endpoints, slices int

	// converged is the time until the last hint was written, hinted the number of Services that then
	// had hints on all endpoints.
	converged time.Duration
	hinted    int
	// hintedCPU is the CPU time until then, convergeCPU that until conditions and events were written
	// too, and convergeMemory the peak memory.
	hintedCPU, convergeCPU                                     time.Duration
	convergeMemory                                             int64
	convergeWrites, convergeSliceWrites, convergeServiceWrites int

	// added and removed are times until hints were written, own the times of the changes' own writes.
	added, removed, own []time.Duration
	// untouched counts removed endpoints that needed no new hints.
	untouched    int
	changeWrites int
	changeCPU    time.Duration

	// memory is the peak memory of the whole run.
	memory int64
}

func (f *figures) measure(all []*change) {
	for _, c := range all {
		f.own = append(f.own, c.wrote)
		switch {
		case c.adds:
			f.added = append(f.added, c.answered.Sub(c.sent))
		case c.answered.IsZero():
			f.untouched++
		default:
			f.removed = append(f.removed, c.answered.Sub(c.sent))
		}
	}
}

// String returns a table and a RESULT line.
func (f *figures) String() string {
	rows := [][]string{{"figure", "measured", "aim at full size"}}
	row := func(what, measured, aim string) { rows = append(rows, []string{what, measured, aim}) }
	row("nodes, Services", fmt.Sprintf("%d, %d", f.nodes, f.services), "")
	row("endpoints, slices", fmt.Sprintf("%d, %d", f.endpoints, f.slices), "")
	row("from empty: until all hints are written", seconds(f.converged), "")
	row("  Services with hints", fmt.Sprint(f.hinted), "")
	row("  CPU until then", seconds(f.hintedCPU), "")
	row("  CPU with conditions and events", seconds(f.convergeCPU), "under "+seconds(aimCPU))
	row("  peak resident memory", mebibytes(f.convergeMemory), "")
	row("  API writes", fmt.Sprintf("%d: %d slices, %d Services, %d others", f.convergeWrites, f.convergeSliceWrites,
		f.convergeServiceWrites, f.convergeWrites-f.convergeSliceWrites-f.convergeServiceWrites), "")
	answered := slices.Concat(f.added, f.removed) // times until hints were written
	row(fmt.Sprintf("changes, %d a second", rate), fmt.Sprintf("%d: %d endpoints more, %d less", len(f.own), len(f.added), len(f.removed)+f.untouched), "")
	row("  until hints are written: p50", meter.FormatMilliseconds(meter.Quantile(answered, 0.5)), "")
	row("  until hints are written: p99", meter.FormatMilliseconds(meter.Quantile(answered, 0.99)), "under "+meter.FormatMilliseconds(aimChange))
	row("  one endpoint more: p50, p99, most", spread(f.added), "")
	row("  one endpoint less: p50, p99, most", spread(f.removed), "")
	row("  of that the change's own write", spread(f.own), "")
	row("  endpoints less that needed no hints", fmt.Sprint(f.untouched), "")
	row("  CPU", fmt.Sprintf("%s, %s a change", seconds(f.changeCPU), meter.FormatMilliseconds(f.changeCPU/time.Duration(max(1, len(f.own))))), "")
	row("  API writes", fmt.Sprint(f.changeWrites), "")
	row("peak resident memory", mebibytes(f.memory), "under "+mebibytes(aimMemory))
	return meter.Table(rows) + fmt.Sprintf("RESULT nodes=%d services=%d endpoints=%d converge_s=%.1f cpu_s=%.1f rss_mib=%d change_p50_ms=%.1f change_p99_ms=%.1f writes=%d\n",
		f.nodes, f.services, f.endpoints, f.converged.Seconds(), f.convergeCPU.Seconds(), f.memory>>20,
		meter.Milliseconds(meter.Quantile(answered, 0.5)), meter.Milliseconds(meter.Quantile(answered, 0.99)), f.convergeWrites)
}

func spread(times []time.Duration) string {
	return fmt.Sprintf("%s, %s, %s", meter.FormatMilliseconds(meter.Quantile(times, 0.5)), meter.FormatMilliseconds(meter.Quantile(times, 0.99)), meter.FormatMilliseconds(meter.Quantile(times, 1)))
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
