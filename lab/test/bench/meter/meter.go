// Package meter has what the benchmarks share: a run with its lab and objects, programs, what a
// process and the machine consume, quantiles, and tables.
package meter

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"k8s.io/client-go/util/workqueue"
)

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

// FormatMilliseconds writes a duration with one decimal and its unit.
func FormatMilliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", Milliseconds(d)) }

// Microseconds converts a duration.
func Microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// InParallel calls a function with the numbers below n, as many at a time as there are
// workers, until one call fails.
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
