// Package meter has what the benchmarks share: it starts programs, reads what a process and
// the machine consume, picks quantiles, and does many things at a time.
package meter

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The first of the two fields of /proc/PID/stat that hold a process' CPU time in user mode
// and in the kernel.
const (
	// Own is the time of the process itself.
	Own = 14
	// Children is that of its children that ended.
	Children = 16
)

// The fields of /proc/PID/status that hold a process' memory.
const (
	// Resident is what the process holds.
	Resident = "VmRSS"
	// Peak is the most that it ever held.
	Peak = "VmHWM"
)

// CPU reads the CPU time of a process from a pair of fields, Own or Children.
func CPU(pid, field int) (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	return parseCPU(string(stat), field)
}

// parseCPU reads /proc/PID/stat, whose second field is a name in parentheses that may hold
// anything: fields are counted from its end.
func parseCPU(stat string, field int) (time.Duration, error) {
	const afterName, ticksPerSecond = 3, 100 // the same on all of Linux' platforms
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	user := field - afterName
	if len(fields) <= user+1 {
		return 0, fmt.Errorf("process status %q has too few fields", stat)
	}
	var ticks int64
	for _, text := range fields[user : user+2] {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("process status %q: %w", stat, err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond, nil
}

// Memory reads the memory of a process in bytes from a field, Resident or Peak.
func Memory(pid int, field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, err
	}
	return parseMemory(string(status), field)
}

func parseMemory(status, field string) (int64, error) {
	for line := range strings.Lines(status) {
		if value, found := strings.CutPrefix(line, field+":"); found {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("memory %q: %w", line, err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("the kernel does not say the %s of the process", field)
}

// LogEnd returns the end of a log.
func LogEnd(log *os.File) string {
	data, err := os.ReadFile(log.Name())
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(data[max(0, len(data)-1000):]))
}

// Quantile returns the least of the times that the given share of them does not exceed,
// zero if there are none.
func Quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// Milliseconds converts a duration.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// InParallel calls a function with the numbers below n, as many at a time as there are
// workers, until one call fails.
func InParallel(ctx context.Context, workers, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var wait sync.WaitGroup
	for range min(n, workers) {
		wait.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	wait.Wait()
	return context.Cause(ctx)
}
