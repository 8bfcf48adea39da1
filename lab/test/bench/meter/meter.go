// Package meter is shared by the benchmarks: a run with its lab and objects, programs, the consumption
// of a process and of the machine, quantiles, and tables.
package meter

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Quantile returns the smallest of the times that a share of them does not exceed, or zero without
// times.
func Quantile(times []time.Duration, share float64) time.Duration {
	if len(times) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(times))
	return sorted[max(0, int(math.Ceil(share*float64(len(sorted))))-1)]
}

// Milliseconds converts a duration.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// FormatMilliseconds writes a duration with one decimal and its unit.
func FormatMilliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", Milliseconds(d)) }

// Microseconds converts a duration.
func Microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// InParallel calls a function with each number below n, with a number of workers, until one call
// fails.
func InParallel(ctx context.Context, workers, n int, do func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	workqueue.ParallelizeUntil(ctx, workers, n, func(i int) {
		if err := do(ctx, i); err != nil {
			cancel(err)
		}
	})
	return context.Cause(ctx)
}
