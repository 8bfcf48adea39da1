package load

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// durations are of all sizes, not only large ones.
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

func TestQuantilesAreWithinTheirBound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(durations(), 1, 200).Draw(t, "values")
		q := rapid.Float64Range(0, 1).Draw(t, "q")
		h := histogramOf(values)

		slices.Sort(values)
		exact := values[max(int(math.Ceil(q*float64(len(values)))), 1)-1]
		got := h.Quantile(q)
		if off := (got - exact).Abs(); off > exact/256+1 {
			t.Fatalf("quantile %v is %d, exactly %d: off by %d", q, got, exact, off)
		}
		if h.Min() != values[0] || h.Max() != values[len(values)-1] || h.Count() != int64(len(values)) {
			t.Fatalf("min %d, max %d, count %d of %v", h.Min(), h.Max(), h.Count(), values)
		}
	})
}

func TestEveryDurationIsInTheBucketThatStandsForIt(t *testing.T) {
	lastBucket := bucket(math.MaxInt64)
	rapid.Check(t, func(t *rapid.T) {
		d := durations().Draw(t, "duration")
		b := bucket(d)
		if b < 0 || b > lastBucket {
			t.Fatalf("%d is in bucket %d of %d", d, b, lastBucket)
		}
		if bucket(middle(b)) != b {
			t.Fatalf("bucket %d is stood for by %d of bucket %d", b, middle(b), bucket(middle(b)))
		}
		if next := bucket(d + 1); next != b && next != b+1 {
			t.Fatalf("%d is in bucket %d, the next duration in bucket %d", d, b, next)
		}
	})
	if middle(lastBucket) < 0 {
		t.Errorf("the longest duration is in bucket %d, which stands for %d", lastBucket, middle(lastBucket))
	}
}

func TestMergedHistogramsAreOneOfAllDurations(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.SliceOf(durations()).Draw(t, "a")
		b := rapid.SliceOf(durations()).Draw(t, "b")
		want := histogramOf(append(slices.Clone(a), b...))

		// Merging leaves what is merged as it was.
		var merged Histogram
		for _, part := range []Histogram{histogramOf(a), histogramOf(b)} {
			before := part.Count()
			merged.Merge(part)
			merged.Record(0)
			merged.Merge(Histogram{})
			if part.Count() != before {
				t.Fatalf("merging changed the count from %d to %d", before, part.Count())
			}
		}
		want.Record(0)
		want.Record(0)
		qs := []float64{0, 0.1, 0.5, 0.9, 0.99, 1}
		if got := merged.Quantiles(qs...); !slices.Equal(got, want.Quantiles(qs...)) {
			t.Fatalf("quantiles %v, want %v", got, want.Quantiles(qs...))
		}
		if merged.Count() != want.Count() || merged.Min() != want.Min() || merged.Max() != want.Max() {
			t.Fatalf("count %d, min %d, max %d; want %d, %d, %d", merged.Count(), merged.Min(), merged.Max(), want.Count(), want.Min(), want.Max())
		}
		if off := math.Abs(float64(merged.Mean() - want.Mean())); off > 1e-9*float64(want.Mean())+1 {
			t.Fatalf("mean %d, want %d", merged.Mean(), want.Mean())
		}
	})
}

func TestAnEmptyHistogramIsAllZeroes(t *testing.T) {
	var h Histogram
	if h.Min() != 0 || h.Max() != 0 || h.Mean() != 0 || h.Quantile(0.5) != 0 || h.Count() != 0 {
		t.Errorf("%+v", h)
	}
	h.Record(-time.Second)
	if h.Max() != 0 || h.Count() != 1 {
		t.Errorf("a negative duration counts as %v", h.Max())
	}
}
