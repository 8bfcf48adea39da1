package simulate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/test/golden"
)

// variants returns the algorithms with the thresholds of the study.
func variants(algorithms ...allocate.Algorithm) []Variant {
	var v []Variant
	for _, a := range algorithms {
		v = append(v, Variant{Name: string(a), Bound: StudyBound(a)})
	}
	return v
}

// proposal returns the algorithms of the published study.
func proposal() []Variant {
	return variants(allocate.Balanced, allocate.Local, allocate.LocalShared, allocate.LocalWeighted, allocate.LocalOpt)
}

// someGrid returns a grid of a few thousand cases with many ties.
func someGrid(t testing.TB) Dataset {
	t.Helper()
	d, err := NewGrid(Grid{Zones: 3, Nodes: Range{1, 3, 1}, Endpoints: Range{0, 12, 1}})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustRun(t testing.TB, o Options) Results {
	t.Helper()
	results, err := Run(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	return results
}

func TestResultsDoNotDependOnWorkers(t *testing.T) {
	for _, d := range []Dataset{someGrid(t), Representative()} {
		var want Results
		for _, workers := range []int{1, 4, 7} {
			got := mustRun(t, Options{Dataset: d, Variants: proposal(), Delivery: allocate.DeliveryGroups, Workers: workers, Worst: 20})
			if workers == 1 {
				want = got
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: %d workers found\n%+v, one found\n%+v", d.Name(), workers, got, want)
			}
		}
	}
}

func TestResultsSumUpTheCases(t *testing.T) {
	weights := allocate.Weights{InZone: 3, Overload: 2, Deviation: 1, Slices: 4}
	options := Options{Dataset: someGrid(t), Variants: proposal(), Delivery: allocate.DeliveryGroups, Weights: weights, SliceSize: 5, Worst: 7}
	results := mustRun(t, options)
	rater := scorer{options: &options}
	for v := range options.Variants {
		r := results.Variants[v]
		var mean Parts
		var mine []Scored
		maxOverload := 0.0
		inZone, overload := make([]int64, len(r.InZone.Counts)), make([]int64, len(r.Overload.Counts))
		for _, c := range all(t, someGrid(t)) {
			plan, outcome, err := allocate.Allocate(allocate.Region{Zones: c.Zones}, allocate.Intent{Bound: &r.Bound}, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			s := Scored{Case: c}
			rater.score(&s.Score, &plan, &outcome)
			fewest := math.Ceil(float64(outcome.Endpoints) / 5)
			if want := weights.Score(outcome.Figures, fewest/float64(plan.Slices(5))); s.Score.Total != want {
				t.Fatalf("%s: %s has %+v, want a total of %v", r.Name, s.Case.Name, s.Score, want)
			}
			mine = append(mine, s)
			mean.Total += s.Score.Total
			mean.InZone += s.Score.InZone
			mean.Overload += s.Score.Overload
			mean.Deviation += s.Score.Deviation
			mean.Slices += s.Score.Slices
			maxOverload = max(maxOverload, s.Score.MaxOverload)
			inZone[min(int(s.Score.InZone/r.InZone.Width+1e-9), len(inZone)-1)]++
			overload[min(int(s.Score.MaxOverload/r.Overload.Width+1e-9), len(overload)-1)]++
		}
		n := float64(len(mine))
		if r.Cases != int64(len(mine)) || r.Cases != results.Cases || r.Invalid != 0 || r.MaxOverload != maxOverload {
			t.Errorf("%s: %+v", r.Name, r)
		}
		for _, part := range []struct {
			name      string
			got, want float64
		}{
			{"total", r.Mean.Total, mean.Total / n},
			{"in-zone", r.Mean.InZone, mean.InZone / n},
			{"overload", r.Mean.Overload, mean.Overload / n},
			{"deviation", r.Mean.Deviation, mean.Deviation / n},
			{"slices", r.Mean.Slices, mean.Slices / n},
		} {
			if math.Abs(part.got-part.want) > 1e-6 {
				t.Errorf("%s: mean %s is %v, want %v", r.Name, part.name, part.got, part.want)
			}
		}
		if !slices.Equal(r.InZone.Counts, inZone) || !slices.Equal(r.Overload.Counts, overload) {
			t.Errorf("%s: distributions %v and %v, want %v and %v", r.Name, r.InZone.Counts, r.Overload.Counts, inZone, overload)
		}
		slices.SortStableFunc(mine, func(a, b Scored) int {
			switch {
			case a.Score.Total < b.Score.Total:
				return -1
			case a.Score.Total > b.Score.Total:
				return 1
			}
			return 0
		})
		if !reflect.DeepEqual(r.Worst, mine[:7]) {
			t.Errorf("%s: the worst are\n%v, want\n%v", r.Name, r.Worst, mine[:7])
		}
	}
}

func TestPartsOfScore(t *testing.T) {
	options := Options{Delivery: allocate.DeliveryGroups, SliceSize: 10, Weights: allocate.DefaultWeights()}
	group := func(endpoints int) allocate.Group {
		return allocate.Group{Members: []allocate.Member{{Zone: 0, Endpoints: endpoints}}}
	}
	plan := allocate.Plan{Groups: []allocate.Group{group(11), group(9), group(5)}}
	for _, test := range []struct {
		name     string
		delivery allocate.Delivery
		figures  allocate.Figures
		want     Score
	}{
		{
			"groups take slices", allocate.DeliveryGroups,
			allocate.Figures{InZone: 0.5, Overload: 0.25, Deviation: 0.125},
			Score{Parts{22.5 + 15 + 17.5 + 11.25, 50, 75, 87.5, 75}, 25, 12.5},
		},
		{
			"hints do not", allocate.DeliveryHints,
			allocate.Figures{InZone: 0.5, Overload: 0.25, Deviation: 0.125},
			Score{Parts{22.5 + 15 + 17.5 + 15, 50, 75, 87.5, 100}, 25, 12.5},
		},
		{
			"no part is below zero", allocate.DeliveryHints,
			allocate.Figures{InZone: 1, Overload: 3, Deviation: 1.5},
			Score{Parts{45 + 15, 100, 0, 0, 100}, 300, 150},
		},
		{
			"an invalid plan is worth nothing", allocate.DeliveryHints,
			allocate.Figures{InZone: 0.5, Unreached: 1},
			Score{Parts{0, 50, 100, 100, 100}, 0, 0},
		},
	} {
		options.Delivery = test.delivery
		s := scorer{options: &options}
		got := Score{Parts: Parts{Total: 999}}
		s.score(&got, &plan, &allocate.Outcome{Endpoints: 25, Figures: test.figures})
		if math.Abs(got.Total-test.want.Total) > 1e-9 {
			t.Errorf("%s: total %v, want %v", test.name, got.Total, test.want.Total)
		}
		got.Total = test.want.Total
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func TestCancelledRunsReturnPartialResults(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var readings atomic.Int64
	results, err := Run(ctx, Options{
		Dataset: Published(), Variants: variants(allocate.Balanced, allocate.Local), Workers: 2,
		Clock: func() time.Duration {
			if readings.Add(1) == 40 { // a batch takes four readings
				cancel()
			}
			return 0
		},
	})
	if !errors.Is(err, context.Canceled) || !results.Partial {
		t.Fatalf("partial: %v, error: %v", results.Partial, err)
	}
	if results.Cases < 4000 || results.Cases > 20_000 {
		t.Errorf("%d cases in the results", results.Cases)
	}
	for _, r := range results.Variants {
		if r.Cases != results.Cases {
			t.Errorf("%s has %d cases of %d", r.Name, r.Cases, results.Cases)
		}
	}
	cancel()
	if results, err = Run(ctx, Options{Dataset: Published(), Variants: proposal(), Delivery: allocate.DeliveryGroups}); !errors.Is(err, context.Canceled) || results.Cases != 0 || !results.Partial {
		t.Errorf("cancelled before: %d cases, %v", results.Cases, err)
	}
}

// workerFor returns a worker with a batch to score repeatedly.
func workerFor(t testing.TB, zones int, v []Variant) *worker {
	t.Helper()
	d, err := NewGrid(Grid{Zones: zones, Nodes: Range{1, 3, 1}, Endpoints: Range{0, 9, 3}})
	if err != nil {
		t.Fatal(err)
	}
	cases := d.open()
	o := Options{Dataset: d, Variants: v, Delivery: allocate.DeliveryGroups, Worst: 10}.withDefaults()
	w := newWorker(&o, cases)
	if !cases(&w.batch) {
		t.Fatal("the grid has no case")
	}
	return w
}

func BenchmarkScore(b *testing.B) {
	for _, zones := range []int{3, 8} {
		for _, v := range variants(allocate.Algorithms()...) {
			b.Run(fmt.Sprintf("zones=%d/%s", zones, v.Name), func(b *testing.B) {
				w := workerFor(b, zones, []Variant{v})
				b.ReportAllocs()
				batches := 0
				for b.Loop() {
					if err := w.score(); err != nil {
						b.Fatal(err)
					}
					batches++
				}
				b.ReportMetric(float64(batches*len(w.batch.cases))/b.Elapsed().Seconds(), "cases/s")
			})
		}
	}
}

// TestRepresentativeScores compares with a file that a reader can check by hand.
func TestRepresentativeScores(t *testing.T) {
	var b strings.Builder
	options := Options{Delivery: allocate.DeliveryGroups}.withDefaults()
	rater := scorer{options: &options}
	for _, c := range all(t, Representative()) {
		fmt.Fprintf(&b, "\n%s\n ", c.Name)
		for _, z := range c.Zones {
			fmt.Fprintf(&b, " %s: %v nodes, %d endpoints;", strings.TrimPrefix(z.Name, "zone-"), z.Capacity, z.Endpoints)
		}
		fmt.Fprintf(&b, "\n  %-15s %7s %8s %9s %10s %7s\n", "", "total", "in-zone", "overload", "deviation", "slices")
		for _, v := range variants(allocate.Algorithms()...) {
			plan, outcome, err := allocate.Allocate(allocate.Region{Zones: c.Zones}, allocate.Intent{Bound: &v.Bound}, allocate.Previous{})
			if err != nil {
				t.Fatal(err)
			}
			var s Score
			rater.score(&s, &plan, &outcome)
			fmt.Fprintf(&b, "  %-15s %7.2f %8.2f %9.2f %10.2f %7.2f\n", v.Name, s.Total, s.InZone, s.MaxOverload, s.MeanDeviation, s.Slices)
		}
	}
	golden.Compare(t, "testdata/representative.golden", strings.TrimPrefix(b.String(), "\n"))
}
