package simulate

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"vicinity.dev/vicinity/internal/allocate"
)

// Run scores the variants on the cases of the data set. When ctx ends it returns
// the results so far with the context's error.
func Run(ctx context.Context, options Options) (Results, error) {
	if err := options.Validate(); err != nil {
		return Results{}, err
	}
	o := options.withDefaults()
	r := &run{options: o, cases: o.Dataset.open()}
	r.turn.L = &r.mu

	workers := make([]*worker, o.Workers)
	var wg sync.WaitGroup
	for i := range workers {
		workers[i] = newWorker(r)
		wg.Go(func() { workers[i].work(ctx) })
	}
	wg.Wait()
	results := r.results(workers)
	switch {
	case ctx.Err() != nil:
		results.Partial = true
		return results, ctx.Err()
	case r.err != nil:
		return results, r.err
	case results.Cases == 0:
		return results, fmt.Errorf("the data set %s has no cases", results.Dataset)
	}
	return results, nil
}

func (o Options) withDefaults() Options {
	o.Delivery = o.delivery()
	if o.Weights == (allocate.Weights{}) {
		o.Weights = allocate.DefaultWeights()
	}
	if o.SliceSize == 0 {
		o.SliceSize = allocate.DefaultSliceSize
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	return o
}

// run is what the workers share.
type run struct {
	options Options
	cases   source

	mu   sync.Mutex
	turn sync.Cond // for changes of what follows
	next int64     // batch to report next
	done int64     // cases
	err  error     // the first; it ends the run
}

// fail ends the run.
func (r *run) fail(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
	}
	r.turn.Broadcast()
}

func (r *run) failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err != nil
}

// report calls the callbacks for a batch, after all batches before it. The wait ends, because
// batches are handed out in order and each is finished.
func (r *run) report(b *batch, each func() error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.next != b.number && r.err == nil {
		r.turn.Wait()
	}
	if r.err != nil {
		return
	}
	r.err = each()
	r.next++
	r.done += int64(len(b.cases))
	if r.options.Progress != nil {
		r.options.Progress(r.done)
	}
	r.turn.Broadcast()
}

// results adds up the accounts of the workers.
func (r *run) results(workers []*worker) Results {
	o := &r.options
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
	run      *run
	scorer   scorer
	batch    batch
	accounts []account // by variant
	scores   []Score   // of the batch, by variant and then by case; only if Each is set
}

func newWorker(r *run) *worker {
	w := &worker{run: r, scorer: scorer{options: &r.options}, accounts: make([]account, len(r.options.Variants))}
	for i := range w.accounts {
		w.accounts[i].worst.limit = r.options.Worst
	}
	return w
}

// work goes on until there are no more batches, or the run fails or is cancelled. A
// batch that was begun is finished, so that accounts and reports agree.
func (w *worker) work(ctx context.Context) {
	r := w.run
	for ctx.Err() == nil && !r.failed() {
		more, err := r.cases.fill(&w.batch)
		if err == nil && more {
			err = w.score()
		}
		if err != nil {
			r.fail(err)
		}
		if err != nil || !more {
			return
		}
		if r.options.Each != nil || r.options.Progress != nil {
			r.report(&w.batch, w.each)
		}
	}
}

// score scores the batch, with one variant after the other so that the time that
// each takes can be measured.
func (w *worker) score() error {
	o := &w.run.options
	if o.Each != nil {
		w.scores = w.scores[:0]
	}
	for v := range o.Variants {
		a := &w.accounts[v]
		if o.Clock != nil {
			a.busy -= o.Clock()
		}
		if err := w.variant(a, &o.Variants[v].Bound); err != nil {
			return err
		}
		if o.Clock != nil {
			a.busy += o.Clock()
		}
	}
	return nil
}

func (w *worker) variant(a *account, bound *allocate.Bound) error {
	intent := allocate.Intent{Bound: bound}
	tell := w.run.options.Each != nil
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
		if tell {
			w.scores = append(w.scores, score)
		}
	}
	a.endBatch()
	return nil
}

// each hands out the scores of the batch.
func (w *worker) each() error {
	o := &w.run.options
	if o.Each == nil {
		return nil
	}
	for i, c := range w.batch.cases {
		if c.Name == "" {
			c.Name = gridName(c.Zones)
		}
		for v := range o.Variants {
			if err := o.Each(c, v, w.scores[v*len(w.batch.cases)+i]); err != nil {
				return err
			}
		}
	}
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
