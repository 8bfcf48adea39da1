package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// durations draws durations of all magnitudes. A uniform draw would give only long ones.
func durations() *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		bits := rapid.IntRange(0, 62).Draw(t, "bits")
		return time.Duration(rapid.Int64Range(0, 1<<bits).Draw(t, "duration"))
	})
}

func histogramOf(values []time.Duration) Histogram {
	var h Histogram
	for _, v := range values {
		h.Record(v)
	}
	return h
}

// A merged histogram equals one of all durations.
func TestQuantilesAreWithinTheirBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(durations(), 1, 200).Draw(t, "values")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		cut := rapid.IntRange(0, len(values)).Draw(t, "cut")
		h := histogramOf(values[:cut])
		h.Merge(histogramOf(values[cut:]))

		slices.Sort(values)
		exact := values[max(int(math.Ceil(q*float64(len(values)))), 1)-1]
		got := h.Quantile(q)
		if off := (got - exact).Abs(); off > exact/256+1 {
			t.Fatalf("quantile %v is %d, exactly %d: off by %d", q, got, exact, off)
		}
		if h.Max() != values[len(values)-1] || h.Count() != int64(len(values)) {
			t.Fatalf("max %d, count %d of %v", h.Max(), h.Count(), values)
		}
	})
}
