// Package simulate tests the allocation algorithms without a cluster.
//
// Run scores them on the cases of a Dataset, such as the published study. Each case is one region
// without a previous plan. Cases are generated on demand, so memory does not grow
// with the data set. Results do not depend on the number of workers. Dynamics changes regions on a
// virtual clock and counts the cost of the changes.
//
// Package allocate makes all decisions about traffic. Speeds are measured with the clock of the
// caller.
package simulate

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"vicinity.dev/vicinity/internal/allocate"
)

// Case is one region to score. The capacity of a zone is its number of nodes.
type Case struct {
	Name  string
	Zones []allocate.Zone
}

// Clone returns a copy with its own zones and a name. Cases of a grid have no name before.
func (c Case) Clone() Case {
	if c.Name == "" {
		c.Name = gridName(c.Zones)
	}
	c.Zones = slices.Clone(c.Zones)
	return c
}

// Variant is an algorithm with thresholds to test.
type Variant struct {
	// Name distinguishes the variants of a run: the algorithm, followed by the thresholds that the
	// run varies.
	Name  string
	Bound allocate.Bound
}

// StudyBound returns the bound of an algorithm in the published study. Unlike in
// allocate.DefaultBound, only local has a start, and there is no padding, since a case has no
// previous state.
func StudyBound(a allocate.Algorithm) allocate.Bound {
	bound := allocate.DefaultBound(a)
	bound.Padding = 0
	if a != allocate.Local {
		bound.Start = allocate.Start{}
	}
	return bound
}

// Parts are a score and its parts, of one plan or as the mean over many. All are from 0 to 100, and
// 100 is best.
type Parts struct {
	// Total is the weighted mean of the others. It is 0 for a plan that leaves a zone with traffic
	// without endpoints.
	Total float64
	// InZone is the percentage of traffic that stays in its zone.
	InZone float64
	// Overload is 100 less Score.MaxOverload.
	Overload float64
	// Deviation is 100 less Score.MeanDeviation.
	Deviation float64
	// Slices is the least number of slices, in percent of the number that the plan takes.
	Slices float64
}

// Score rates the plan for one case.
type Score struct {
	Parts
	// MaxOverload is the load of the busiest endpoint above the even share, in percent.
	MaxOverload float64
	// MeanDeviation is the mean distance of the endpoints' loads from the even share, in percent.
	MeanDeviation float64
}

// Scored is a case with the score of one variant.
type Scored struct {
	Case  Case
	Score Score
}

// Histogram counts cases by a percentage. Bin i holds values from i*Width up to, but not including,
// (i+1)*Width. The last bin also holds all greater values.
type Histogram struct {
	Width  float64
	Counts []int64
}

// Result is the result of a run for one variant.
type Result struct {
	Variant
	// Cases is the number of cases scored. Invalid of them got a plan in which a zone with traffic
	// reaches no endpoint.
	Cases, Invalid int64
	// Mean is over all cases; MaxOverload is the greatest of any case.
	Mean        Parts
	MaxOverload float64
	// InZone and Overload are the distributions of Parts.InZone and Score.MaxOverload.
	InZone, Overload Histogram
	// Worst are the cases with the least total, the worst first.
	Worst []Scored
	// CasesPerSecond is the speed that all workers together would have with this variant alone. It
	// is 0 without a clock.
	CasesPerSecond float64
}

// Results are the results of a run.
type Results struct {
	Dataset   string
	Delivery  allocate.Delivery
	Weights   allocate.Weights
	SliceSize int
	// Cases is the number of cases scored. The data set has more if Partial reports that the run
	// was cancelled.
	Cases   int64
	Partial bool
	// Variants are in the order of Options.Variants.
	Variants []Result
}

// Options configure a run.
type Options struct {
	// Dataset and Variants are required.
	Dataset  Dataset
	Variants []Variant
	// Delivery must carry all variants. It is allocate.DeliveryHints if empty: hints in the
	// EndpointSlices of Kubernetes. Groups have slices of their own.
	Delivery allocate.Delivery
	// Weights are allocate.DefaultWeights if all are zero.
	Weights allocate.Weights
	// SliceSize is allocate.DefaultSliceSize if zero.
	SliceSize int
	// Workers is the number of goroutines, all cores if zero.
	Workers int
	// Worst is the number of worst cases to keep for each variant.
	Worst int
	// Clock, if set, is a monotonic clock to measure speeds with.
	Clock func() time.Duration
}

// Validate returns an error that names an invalid algorithm, threshold or weight.
func (o Options) Validate() error {
	if len(o.Variants) == 0 {
		return errors.New("algorithms: none is given")
	}
	for _, v := range o.Variants {
		if err := v.Bound.Validate(); err != nil {
			return err
		}
	}
	for _, w := range []struct {
		name  string
		value float64
	}{
		{"in-zone", o.Weights.InZone},
		{"overload", o.Weights.Overload},
		{"deviation", o.Weights.Deviation},
		{"slices", o.Weights.Slices},
	} {
		if !(w.value >= 0 && w.value <= maxWeight) {
			return fmt.Errorf("weight of %s: %g is not allowed; it must be from 0 to %d", w.name, w.value, maxWeight)
		}
	}
	return nil
}

// maxWeight prevents overflow in sums of weights.
const maxWeight = 1_000_000

// gridName names a case of a grid by its nodes and endpoints: "1-2-3/0-0-7" has two nodes and no
// endpoint in the second zone.
func gridName(zones []allocate.Zone) string {
	var nodes, endpoints strings.Builder
	for i := range zones {
		if i > 0 {
			nodes.WriteByte('-')
			endpoints.WriteByte('-')
		}
		fmt.Fprintf(&nodes, "%.0f", zones[i].Capacity)
		fmt.Fprintf(&endpoints, "%d", zones[i].Endpoints)
	}
	return nodes.String() + "/" + endpoints.String()
}
