package simulate

import (
	"cmp"
	"slices"
	"time"
)

// account has the sums of one worker for one variant. They are whole numbers, so that the total
// does not depend on which worker scored which case.
type account struct {
	cases, invalid int64
	sums           [parts]sum
	maxOverload    float64
	inZone         [inZoneBins]int64
	overload       [overloadBins]int64
	worst          worst
	busy           time.Duration
}

// The parts of a score that have a sum.
const (
	partTotal = iota
	partInZone
	partOverload
	partDeviation
	partSlices
	parts
)

// sum adds up percentages. The sum of a batch is rounded to fixed point before it is added to the
// sums of other batches, so that their order does not matter.
type sum struct {
	batch float64
	total int64
}

// scale is the factor of the fixed point: maxCases percentages fit into 63 bits.
const scale = 1 << 24

func (s *sum) endBatch() {
	s.total += int64(s.batch * scale)
	s.batch = 0
}

// Bins of the histograms.
const (
	inZoneWidth   = 5
	inZoneBins    = 100 / inZoneWidth
	overloadWidth = 2.5
	overloadBins  = 100/overloadWidth + 1
)

// binTolerance absorbs rounding at the lower bound of a bin.
const binTolerance = 1e-9

// add counts a case. The score is a pointer because copying it would take most of a run's time.
func (a *account) add(index int64, c *Case, s *Score) {
	a.cases++
	a.sums[partTotal].batch += s.Total
	a.sums[partInZone].batch += s.InZone
	a.sums[partOverload].batch += s.Overload
	a.sums[partDeviation].batch += s.Deviation
	a.sums[partSlices].batch += s.Slices
	a.maxOverload = max(a.maxOverload, s.MaxOverload)
	a.inZone[min(int(s.InZone/inZoneWidth+binTolerance), inZoneBins-1)]++
	a.overload[int(min(s.MaxOverload/overloadWidth+binTolerance, overloadBins-1))]++
	if a.worst.wants(index, s.Total) {
		a.worst.add(index, c, s)
	}
}

func (a *account) endBatch() {
	for i := range a.sums {
		a.sums[i].endBatch()
	}
}

// merge adds the sums of another worker.
func (a *account) merge(other *account) {
	a.cases += other.cases
	a.invalid += other.invalid
	for i := range a.sums {
		a.sums[i].total += other.sums[i].total
	}
	a.maxOverload = max(a.maxOverload, other.maxOverload)
	for i, n := range other.inZone {
		a.inZone[i] += n
	}
	for i, n := range other.overload {
		a.overload[i] += n
	}
	for i := range other.worst.cases {
		w := &other.worst.cases[i]
		if a.worst.wants(w.index, w.Score.Total) {
			a.worst.add(w.index, &w.Case, &w.Score)
		}
	}
	a.busy += other.busy
}

// result reports the account. The speed is for all workers together.
func (a *account) result(v Variant, workers int) Result {
	mean := func(part int) float64 {
		if a.cases == 0 {
			return 0
		}
		return float64(a.sums[part].total) / scale / float64(a.cases)
	}
	r := Result{
		Variant: v,
		Cases:   a.cases,
		Invalid: a.invalid,
		Mean: Parts{
			Total:     mean(partTotal),
			InZone:    mean(partInZone),
			Overload:  mean(partOverload),
			Deviation: mean(partDeviation),
			Slices:    mean(partSlices),
		},
		MaxOverload: a.maxOverload,
		InZone:      Histogram{Width: inZoneWidth, Counts: slices.Clone(a.inZone[:])},
		Overload:    Histogram{Width: overloadWidth, Counts: slices.Clone(a.overload[:])},
	}
	for i := range a.worst.cases {
		w := &a.worst.cases[i]
		r.Worst = append(r.Worst, Scored{Case: w.Case.Clone(), Score: w.Score})
	}
	if a.busy > 0 {
		r.CasesPerSecond = float64(a.cases) * float64(workers) / a.busy.Seconds()
	}
	return r
}

// worst keeps the cases with the least total. Among equals it keeps the first in the data set.
type worst struct {
	limit int
	cases []ranked // the worst first
}

type ranked struct {
	index int64 // in the data set
	Scored
}

// wants reports whether a case would be kept.
func (w *worst) wants(index int64, total float64) bool {
	if len(w.cases) < w.limit {
		return true
	}
	if w.limit == 0 {
		return false
	}
	last := &w.cases[w.limit-1]
	return total < last.Score.Total || total == last.Score.Total && index < last.index
}

// add keeps a case that wants accepted, in the memory of the case that it displaces.
func (w *worst) add(index int64, c *Case, s *Score) {
	if len(w.cases) < w.limit {
		w.cases = append(w.cases, ranked{})
	}
	last := &w.cases[len(w.cases)-1]
	last.index, last.Score, last.Case.Name = index, *s, c.Name
	last.Case.Zones = append(last.Case.Zones[:0], c.Zones...)
	slices.SortFunc(w.cases, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.Score.Total, b.Score.Total), cmp.Compare(a.index, b.index))
	})
}
