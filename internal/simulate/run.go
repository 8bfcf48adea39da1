package simulate

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
	"sync"

	"vicinity.dev/vicinity/internal/allocate"
)

// Run scores the variants on the cases of the data set. If ctx ends it returns the results so far,
// with the context's error.
func Run(ctx context.Context, options Options) (Results, error) {
	if err := options.Validate(); err != nil {
		return Results{}, err
	}
	o := options.withDefaults()
	cases := o.Dataset.open()
	running, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	workers := make([]*worker, o.Workers)
	var wg sync.WaitGroup
	for i := range workers {
		workers[i] = newWorker(&o, cases)
		wg.Go(func() {
			if err := workers[i].work(running); err != nil {
				fail(err)
			}
		})
	}
	wg.Wait()
	results := o.results(workers)
	switch err := context.Cause(running); {
	case ctx.Err() != nil:
		results.Partial = true
		return results, ctx.Err()
	case err != nil:
		return results, err
	}
	return results, nil
}

func (o Options) withDefaults() Options {
	o.Delivery = cmp.Or(o.Delivery, allocate.DeliveryHints)
	o.Weights = cmp.Or(o.Weights, allocate.DefaultWeights())
	o.SliceSize = cmp.Or(o.SliceSize, allocate.DefaultSliceSize)
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	return o
}

// results adds up the accounts of the workers.
func (o Options) results(workers []*worker) Results {
	results := Results{Dataset: o.Dataset.Name(), Delivery: o.Delivery, Weights: o.Weights, SliceSize: o.SliceSize}
	for v, variant := range o.Variants {
		whole := account{worst: worst{limit: o.Worst}}
		for _, w := range workers {
			whole.merge(&w.accounts[v])
		}
		results.Variants = append(results.Variants, whole.result(variant, o.Workers))
		results.Cases = whole.cases
	}
	return results
}

// worker scores one batch after the other.
type worker struct {
	options  *Options
	cases    source
	scorer   scorer
	batch    batch
	accounts []account // by variant
}

func newWorker(o *Options, cases source) *worker {
	w := &worker{options: o, cases: cases, scorer: scorer{options: o}, accounts: make([]account, len(o.Variants))}
	for i := range w.accounts {
		w.accounts[i].worst.limit = o.Worst
	}
	return w
}

// work continues until no batch is left or ctx ends. It finishes a started batch, so that the
// accounts of all variants have the same cases.
func (w *worker) work(ctx context.Context) error {
	for ctx.Err() == nil && w.cases(&w.batch) {
		if err := w.score(); err != nil {
			return err
		}
	}
	return nil
}

// score scores the batch with one variant after the other, so that the time of each can be
// measured.
func (w *worker) score() error {
	clock := w.options.Clock
	for v := range w.options.Variants {
		a := &w.accounts[v]
		if clock != nil {
			a.busy -= clock()
		}
		if err := w.variant(a, &w.options.Variants[v].Bound); err != nil {
			return err
		}
		if clock != nil {
			a.busy += clock()
		}
	}
	return nil
}

func (w *worker) variant(a *account, bound *allocate.Bound) error {
	intent := allocate.Intent{Bound: bound}
	var score Score
	for i := range w.batch.cases {
		c := &w.batch.cases[i]
		plan, outcome, err := w.scorer.planner.Allocate(allocate.Region{Zones: c.Zones}, intent, allocate.Previous{})
		if err != nil {
			return fmt.Errorf("case %q: %w", c.Clone().Name, err)
		}
		w.scorer.score(&score, &plan, &outcome)
		if outcome.Figures.Unreached > 0 {
			a.invalid++
		}
		a.add(w.batch.first+int64(i), c, &score)
	}
	a.endBatch()
	return nil
}

// scorer makes plans and rates them.
type scorer struct {
	options *Options
	planner allocate.Planner
}

// score rates a plan.
func (s *scorer) score(score *Score, plan *allocate.Plan, outcome *allocate.Outcome) {
	f := &outcome.Figures
	slices := 1.0
	if s.options.Delivery == allocate.DeliveryGroups {
		size := s.options.SliceSize
		slices = float64((outcome.Endpoints+size-1)/size) / float64(plan.Slices(size))
	}
	score.InZone = 100 * f.InZone
	score.MaxOverload = 100 * f.Overload
	score.MeanDeviation = 100 * f.Deviation
	score.Overload = max(0, 100-score.MaxOverload)
	score.Deviation = max(0, 100-score.MeanDeviation)
	score.Slices = 100 * slices
	score.Total = 0
	if f.Unreached == 0 {
		score.Total = s.options.Weights.Score(*f, slices)
	}
}
