package simulate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vicinity.dev/vicinity/internal/allocate"
)

// Saving is a way to avoid changes of an allocation. Each can be switched off, to measure its worth.
type Saving string

// The savings.
const (
	// Padding keeps the state of a Service whose size wavers around the starting threshold.
	Padding Saving = "padding"
	// Laziness keeps a plan, with few changes, while it is good. Without it each change of pods or
	// nodes makes a new plan.
	Laziness Saving = "laziness"
	// MinimalMoves lets as many endpoints as possible keep their consumers in a new plan. Without
	// it a new plan ignores the previous consumers.
	MinimalMoves Saving = "minimal-moves"
	// AllSavings stands for all three, to switch them off together.
	AllSavings Saving = "savings"
)

// Savings lists the savings, with AllSavings last.
func Savings() []Saving {
	return []Saving{Padding, Laziness, MinimalMoves, AllSavings}
}

// UpstreamAuto is the name in results for the heuristic of Kubernetes, exactly as Kubernetes runs
// it. The algorithm "auto" is this project's version: it has the same rules, but the same input
// gives the same plan, and the savings apply.
const UpstreamAuto = "upstream-auto"

// Full is the name of the variant with all savings.
const Full = "full"

// DynamicsOptions configure a run of Dynamics.
type DynamicsOptions struct {
	// Scenarios are required.
	Scenarios []Scenario
	// Bounds are the algorithms, each with its thresholds and padding.
	Bounds []allocate.Bound
	// Upstream adds Kubernetes' own heuristic.
	Upstream bool
	// Without are the savings to switch off. Each adds a variant of every algorithm that lacks this
	// saving. Variants that cannot differ are left out.
	Without []Saving
	// Delivery must carry all bounds. It is allocate.DeliveryHints if empty. Upstream's heuristic always uses hints.
	Delivery allocate.Delivery
	// SliceSize is allocate.DefaultSliceSize if zero.
	SliceSize int
	// Threshold is the overload from which time counts as above the threshold. It is the same for
	// all algorithms, so that they compare, and allocate.DefaultOverloadThreshold if zero.
	Threshold float64
	// Seed makes the random choices of upstream's heuristic.
	Seed uint64
}

// validate returns an error that names an invalid algorithm or threshold.
func (o DynamicsOptions) validate() error {
	if len(o.Bounds) == 0 && !o.Upstream {
		return errors.New("algorithms: none is given")
	}
	for i := range o.Bounds {
		if err := o.Bounds[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}

func (o DynamicsOptions) withDefaults() DynamicsOptions {
	o.Delivery = cmp.Or(o.Delivery, allocate.DeliveryHints)
	o.SliceSize = cmp.Or(o.SliceSize, allocate.DefaultSliceSize)
	o.Threshold = cmp.Or(o.Threshold, allocate.DefaultOverloadThreshold)
	return o
}

// DynamicsResults are the results of the scenarios.
type DynamicsResults struct {
	Delivery  allocate.Delivery
	SliceSize int
	Threshold float64
	// Partial says that the run was cancelled: runs and scenarios are missing.
	Partial bool
	// Scenarios are the scenarios with at least one run.
	Scenarios []DynamicsScenario
}

// DynamicsScenario has the runs of one scenario.
type DynamicsScenario struct {
	Scenario Scenario
	// Events is the number of events after the start.
	Events int
	Runs   []DynamicsRun
}

// DynamicsRun is the effect of one scenario on one variant of an algorithm. Shares and overloads are fractions,
// measured with the real traffic, not the one that capacity predicts.
type DynamicsRun struct {
	// Algorithm is an allocate.Algorithm or UpstreamAuto.
	Algorithm string
	// Variant is Full, or "no-" and the missing saving.
	Variant string
	// Reallocated counts endpoints that existed before and after an event, and that it gave other
	// consumers.
	Reallocated int
	// SlicesWritten counts EndpointSlices that were created, changed or deleted, without the start.
	// An event counts a slice once. A deleted and a created slice count together as one changed
	// slice.
	SlicesWritten int
	// Rerouted is the share of traffic that an event sends to another endpoint than before, summed
	// over all events. It includes the traffic of lost endpoints, and the traffic that new ones
	// get.
	Rerouted float64
	// InZone is the mean over Served: the time with traffic and with an endpoint to take it.
	InZone float64
	Served time.Duration
	// AboveThreshold is the time in which an endpoint's overload was at least
	// DynamicsResults.Threshold.
	AboveThreshold time.Duration
	// WorstOverload is the greatest overload of any endpoint at any time.
	WorstOverload float64
	// Flips counts changes between an allocated and a balanced Service.
	Flips int
	// Series has an entry for each event, the start included.
	Series []Moment
}

// Moment is the state after an event, which lasts until the next.
type Moment struct {
	At time.Duration
	// Endpoints is the number of ready endpoints. Without endpoints or traffic, InZone and Overload
	// are 0 and mean nothing.
	Endpoints        int
	Allocated        bool
	InZone, Overload float64
	// Reallocated, SlicesWritten and Rerouted are the changes of this event.
	Reallocated, SlicesWritten int
	Rerouted                   float64
}

// Dynamics runs the scenarios on a virtual clock. Routing reacts to each event immediately, since
// delays in a cluster are the same for all algorithms.
//
// If ctx ends, Dynamics returns the finished runs, marked as partial, with the context's error.
func Dynamics(ctx context.Context, options DynamicsOptions) (DynamicsResults, error) {
	if err := options.validate(); err != nil {
		return DynamicsResults{}, err
	}
	o := options.withDefaults()
	results := DynamicsResults{Delivery: o.Delivery, SliceSize: o.SliceSize, Threshold: o.Threshold}
	contestants := o.contestants()
	for _, scenario := range o.Scenarios {
		for i, contestant := range contestants {
			run, err := contestant.run(ctx, scenario, o)
			if err != nil {
				results.Partial = true
				return results, err
			}
			if i == 0 {
				results.Scenarios = append(results.Scenarios, DynamicsScenario{Scenario: scenario, Events: len(scenario.Events) - 1})
			}
			shown := &results.Scenarios[len(results.Scenarios)-1]
			shown.Runs = append(shown.Runs, run)
		}
	}
	return results, nil
}

// contestant is one variant of an algorithm.
type contestant struct {
	algorithm, variant string
	// router returns a new router.
	router func(o DynamicsOptions) router
}

// contestants lists the algorithms in their order, with the variants of each together.
func (o DynamicsOptions) contestants() []contestant {
	var list []contestant
	for _, bound := range o.Bounds {
		for _, off := range append([]Saving{""}, o.Without...) {
			if bound.Algorithm == allocate.Balanced && off != "" || bound.Padding == 0 && off == Padding {
				continue // no changes to save
			}
			variant := Full
			if off != "" {
				variant = "no-" + string(off)
			}
			list = append(list, contestant{
				algorithm: string(bound.Algorithm),
				variant:   variant,
				router:    func(o DynamicsOptions) router { return newPlannedRouter(bound, off, o) },
			})
		}
	}
	if o.Upstream {
		list = append(list, contestant{
			algorithm: UpstreamAuto,
			variant:   Full,
			router:    func(o DynamicsOptions) router { return newUpstreamRouter(o) },
		})
	}
	return list
}

// router assigns endpoints to zones.
type router interface {
	// react assigns the endpoints of the world again. It clears the assignment of an endpoint that
	// all zones use. The plan has the same assignments as counts, over all zones of the world, and
	// is valid until the next call.
	react(w *world, touched touched) (reaction, error)
}

// reaction is the response of a router to an event.
type reaction struct {
	plan      allocate.Plan
	allocated bool
	// written is the number of slices written.
	written int
}

// run plays a scenario with the contestant.
func (c contestant) run(ctx context.Context, scenario Scenario, o DynamicsOptions) (DynamicsRun, error) {
	run := DynamicsRun{Algorithm: c.algorithm, Variant: c.variant}
	w := newWorld(scenario.ZoneNames())
	router := c.router(o)
	var gauge gauge
	var latest reaction
	var ways routes
	inZoneTime := 0.0
	for i, event := range scenario.Events {
		if err := ctx.Err(); err != nil {
			return DynamicsRun{}, err
		}
		touched := w.apply(i, event.Changes)
		moment := Moment{At: event.At, Endpoints: len(w.endpoints)}
		if i == 0 || touched.nodes || touched.endpoints {
			before := w.assigned()
			was := latest.allocated
			var err error
			if latest, err = router.react(w, touched); err != nil {
				return DynamicsRun{}, fmt.Errorf("scenario %s: at %s: %s: %w", scenario.Name, event.At, c.algorithm, err)
			}
			if i > 0 {
				moment.Reallocated = w.reallocated(before, i, latest.plan.AtHome)
				moment.SlicesWritten = latest.written
				if latest.allocated != was {
					run.Flips++
				}
			}
		}
		moment.Allocated = latest.allocated
		now := w.routes()
		moment.Rerouted = now.rerouted(ways, w.shares())
		ways = now
		until := scenario.Length
		if i+1 < len(scenario.Events) {
			until = scenario.Events[i+1].At
		}
		if shares := w.shares(); shares != nil && len(w.endpoints) > 0 {
			figures := gauge.measure(latest.plan, shares)
			moment.InZone, moment.Overload = figures.InZone, figures.Overload
			lasts := until - event.At
			run.Served += lasts
			inZoneTime += figures.InZone * lasts.Seconds()
			// Rounding of shares can move a computed load slightly off the threshold.
			if figures.Overload >= o.Threshold-1e-9 {
				run.AboveThreshold += lasts
			}
			run.WorstOverload = max(run.WorstOverload, figures.Overload)
		}
		run.Reallocated += moment.Reallocated
		run.SlicesWritten += moment.SlicesWritten
		run.Rerouted += moment.Rerouted
		run.Series = append(run.Series, moment)
	}
	if run.Served > 0 {
		run.InZone = inZoneTime / run.Served.Seconds()
	}
	return run, nil
}

// gauge measures plans with the real traffic.
type gauge struct {
	meter allocate.Meter
}

// measure measures a plan. As in proxies, a zone with traffic and without endpoints uses all
// endpoints.
func (g *gauge) measure(plan allocate.Plan, shares []float64) allocate.Figures {
	cloned := false
	for zone, share := range shares {
		consumes := func(group allocate.Group) bool { return group.Consumes(zone) }
		if share == 0 || slices.ContainsFunc(plan.Groups, consumes) {
			continue
		}
		if !cloned {
			plan, cloned = plan.Clone(), true
		}
		for i := range plan.Groups {
			group := &plan.Groups[i]
			place := 0
			for place < len(group.Consumers) && group.Consumers[place].Zone < zone {
				place++
			}
			group.Consumers = slices.Insert(group.Consumers, place, allocate.Consumer{Zone: zone, Weight: 1})
		}
	}
	return g.meter.Measure(plan, shares)
}
