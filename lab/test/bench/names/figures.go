package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"vicinity.dev/vicinity/lab/test/bench/meter"
)

type figures struct {
	// machine describes the machine.
	machine  string
	pods     int
	memories []memory
	contests []*contest
}

// memory is the memory of a server after queries, and its peak, in bytes.
type memory struct {
	contender
	held, most int64
}

// contest has the results of one kind of queries.
type contest struct {
	mix   string
	cache bool
	// rate is the number of queries per second while latencies are measured.
	rate   int
	rounds []round
}

// round has a turn of each server, by name.
type round map[string]turn

type turn struct {
	perSecond float64
	// cpu is the server's CPU time per query.
	cpu time.Duration
	p99 time.Duration
}

// Values of a turn as numbers.
func perSecond(t turn) float64 { return t.perSecond }
func cpu(t turn) float64       { return meter.Microseconds(t.cpu) }
func p99(t turn) float64       { return meter.Microseconds(t.p99) }

func (c *contest) median(dns string, of func(turn) float64) float64 {
	var all []float64
	for _, r := range c.rounds {
		all = append(all, of(r[dns]))
	}
	return median(all)
}

// ratio is the median of a value of vicinity-dns divided by CoreDNS' value in the same round.
func (c *contest) ratio(of func(turn) float64) float64 {
	var all []float64
	for _, r := range c.rounds {
		all = append(all, of(r[vicinity])/of(r[coredns]))
	}
	return median(all)
}

// median of nothing is NaN.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return (sorted[middle-1] + sorted[middle]) / 2
	}
	return sorted[middle]
}

// String returns tables.
func (f *figures) String() string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s\n\n", f.machine)
	rows := [][]string{{
		"queries", "cache", "queries a second: CoreDNS, vicinity-dns", "ratio", "p99 at a rate", "p99: CoreDNS, vicinity-dns", "ratio",
		"CPU of a query: CoreDNS, vicinity-dns", "ratio",
	}}
	for _, c := range f.contests {
		both := func(format string, of func(turn) float64) string {
			return fmt.Sprintf(format, c.median(coredns, of), c.median(vicinity, of))
		}
		ratio := func(of func(turn) float64) string { return fmt.Sprintf("%.3f", c.ratio(of)) }
		rows = append(rows, []string{
			c.mix, yes(c.cache), both("%.0f, %.0f", perSecond), ratio(perSecond), fmt.Sprint(c.rate),
			both("%.0f µs, %.0f µs", p99), ratio(p99), both("%.1f µs, %.1f µs", cpu), ratio(cpu),
		})
	}
	text.WriteString(meter.Table(rows))
	if len(f.memories) > 0 {
		rows := [][]string{{fmt.Sprintf("with %d pods", f.pods), "memory", "the most until then"}}
		for _, m := range f.memories {
			rows = append(rows, []string{m.dns + ", pods " + m.pods, fmt.Sprintf("%d MiB", m.held>>20), fmt.Sprintf("%d MiB", m.most>>20)})
		}
		text.WriteString("\n" + meter.Table(rows))
	}
	return text.String()
}

func yes(is bool) string {
	if is {
		return "yes"
	}
	return "no"
}
