package main

import (
	"fmt"
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

	// converged is the time until the last hint was written, convergeCPU the CPU time until conditions
	// and events were written too.
	converged, convergeCPU                                     time.Duration
	convergeWrites, convergeSliceWrites, convergeServiceWrites int

	changes int
	// answered are times until hints were written: some removed endpoints need none.
	answered  []time.Duration
	changeCPU time.Duration

	// memory is the peak memory of the whole run.
	memory int64
}

// String returns a table.
func (f *figures) String() string {
	rows := [][]string{{"figure", "measured", "aim at full size"}}
	row := func(what, measured, aim string) { rows = append(rows, []string{what, measured, aim}) }
	row("nodes, Services", fmt.Sprintf("%d, %d", f.nodes, f.services), "")
	row("endpoints, slices", fmt.Sprintf("%d, %d", f.endpoints, f.slices), "")
	row("from empty: until all hints are written", seconds(f.converged), "")
	row("  CPU with conditions and events", seconds(f.convergeCPU), "under "+seconds(aimCPU))
	row("  API writes", fmt.Sprintf("%d: %d slices, %d Services, %d others", f.convergeWrites, f.convergeSliceWrites,
		f.convergeServiceWrites, f.convergeWrites-f.convergeSliceWrites-f.convergeServiceWrites), "")
	row(fmt.Sprintf("changes, %d a second", rate), fmt.Sprint(f.changes), "")
	row("  until hints are written: p50", meter.FormatMilliseconds(meter.Quantile(f.answered, 0.5)), "")
	row("  until hints are written: p99", meter.FormatMilliseconds(meter.Quantile(f.answered, 0.99)), "under "+meter.FormatMilliseconds(aimChange))
	row("  CPU", fmt.Sprintf("%s, %s a change", seconds(f.changeCPU), meter.FormatMilliseconds(f.changeCPU/time.Duration(max(1, f.changes)))), "")
	row("peak resident memory", mebibytes(f.memory), "under "+mebibytes(aimMemory))
	return meter.Table(rows)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func mebibytes(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
