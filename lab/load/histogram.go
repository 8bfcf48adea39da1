package load

import (
	"maps"
	"math"
	"math/bits"
	"slices"
	"time"
)

// Histogram counts durations in 128 buckets for each power of two, so that a quantile is off by
// at most 1/256 or a nanosecond. Merging adds no error. The zero value is empty.
type Histogram struct {
	counts map[int]int64 // by bucket
	count  int64
	max    time.Duration
}

const (
	bucketBits = 7
	buckets    = 1 << bucketBits // per power of two
)

// bucket returns the number of a duration's bucket. Below 256 ns each duration has its own.
func bucket(d time.Duration) int {
	shift := max(0, bits.Len64(uint64(d))-bucketBits-1)
	return shift*buckets + int(uint64(d)>>shift)
}

func middle(b int) time.Duration {
	shift := max(0, b/buckets-1)
	low := uint64(b-shift*buckets) << shift
	return time.Duration(low + (1<<shift-1)/2)
}

// Record counts a duration. It counts a negative one, after a change of the clock, as zero.
func (h *Histogram) Record(d time.Duration) {
	d = max(d, 0)
	if h.counts == nil {
		h.counts = make(map[int]int64)
	}
	h.max = max(h.max, d)
	h.counts[bucket(d)]++
	h.count++
}

// Merge adds the counts of another histogram.
func (h *Histogram) Merge(other Histogram) {
	if other.count == 0 {
		return
	}
	if h.counts == nil {
		h.counts = make(map[int]int64, len(other.counts))
	}
	h.max = max(h.max, other.max)
	for b, n := range other.counts {
		h.counts[b] += n
	}
	h.count += other.count
}

// Count is the number of durations.
func (h Histogram) Count() int64 { return h.count }

// Max is the exact maximum; 0 if empty.
func (h Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that a share q of all durations, from 0 to 1, does not exceed. It
// returns 0 if the histogram is empty.
func (h Histogram) Quantile(q float64) time.Duration {
	rank := min(max(int64(math.Ceil(q*float64(h.count))), 1), h.count)
	var seen int64
	for _, b := range slices.Sorted(maps.Keys(h.counts)) {
		if seen += h.counts[b]; seen >= rank {
			return min(middle(b), h.max)
		}
	}
	return 0
}
