package simulate

import (
	"sync/atomic"

	"vicinity.dev/vicinity/internal/allocate"
)

// Dataset is a sequence of cases: a named one, or a Grid.
type Dataset interface {
	// Name is the name of the data set in options and results.
	Name() string
	// Cases is the number of cases.
	Cases() int64
	// open starts the sequence of cases.
	open() source
}

// source hands out the cases of a data set to several workers. A call fills b with the next batch,
// or reports false when none is left.
type source func(b *batch) bool

// batch is a run of cases for one worker. Its bounds do not depend on the workers.
type batch struct {
	first  int64 // index of cases[0] in the data set
	cases  []Case
	zones  []allocate.Zone // memory of the cases' zones
	digits []int           // scratch of grids
}

// batchSize returns the number of cases in a batch, for cases with so many zones. A batch is small
// enough to stay in a core's cache, and to finish soon after a run is cancelled.
func batchSize(zones int) int64 {
	const most, budget = 512, 8192
	return int64(min(most, max(1, budget/(zones*zones))))
}

// list is a data set of cases in memory.
type list struct {
	name  string
	cases []Case
}

func (l *list) Name() string { return l.name }

func (l *list) Cases() int64 { return int64(len(l.cases)) }

func (l *list) open() source {
	const size = 8
	var next atomic.Int64
	return func(b *batch) bool {
		b.first = (next.Add(1) - 1) * size
		if b.first >= l.Cases() {
			return false
		}
		b.cases = l.cases[b.first:min(b.first+size, l.Cases())]
		return true
	}
}
