package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/simulate"
)

type dynamicsFlags struct {
	scenarios  []string
	cluster    simulate.ScenarioOptions
	algorithms algorithmFlags
	without    []string
	thresholds thresholdFlags
	sliceSize  int
	output     outputFlag
}

func newDynamicsCommand(s command.Streams) *cobra.Command {
	f := dynamicsFlags{cluster: simulate.DefaultScenarioOptions()}
	cmd := &cobra.Command{
		Use:   "dynamics",
		Short: "Compare the algorithms on a Service that changes over time",
		Long: `Dynamics plays scenarios on a virtual clock and measures each algorithm, also with each saving
switched off in turn (--without):

  padding        a Service near the starting threshold keeps its state
  laziness       a plan is kept, with as little change as possible, while it is good
  minimal-moves  a new plan leaves as many endpoints as possible where they are
  savings        all three together

upstream-auto is the heuristic of Kubernetes' own controller, with hints and without savings.

Scenarios (--scenario):
` + scenarioHelp(),
		Example: `  vicinity simulate dynamics
  vicinity simulate dynamics --scenario zone-lost --algorithm optimal,upstream-auto --without none
  vicinity simulate dynamics --endpoints 300 --zones 4 --nodes-per-zone 40,30,30,20`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s)
		},
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&f.scenarios, "scenario", []string{"all"}, "`LIST` of scenarios, or all")
	flags.IntVar(&f.cluster.Zones, "zones", f.cluster.Zones, "`NUMBER` of zones")
	flags.IntSliceVar(&f.cluster.NodesPerZone, "nodes-per-zone", f.cluster.NodesPerZone, "`LIST` of the nodes of each zone; a short list is repeated")
	flags.IntVar(&f.cluster.Endpoints, "endpoints", f.cluster.Endpoints, "`NUMBER` of endpoints at the start")
	flags.Uint64Var(&f.cluster.Seed, "seed", f.cluster.Seed, "`NUMBER` that seeds all random choices")
	f.algorithms.add(flags, dynamicsAlgorithms())
	flags.StringSliceVar(&f.without, "without", []string{"all"}, "`LIST` of savings to switch off in turn, all, or none: "+joinNames(simulate.Savings()))
	f.thresholds.add(flags)
	flags.IntVar(&f.sliceSize, "slice-size", allocate.DefaultSliceSize, "`NUMBER` of endpoints that fit in a slice")
	f.output.add(flags, "table", "json")
	return cmd
}

func scenarioHelp() string {
	var b strings.Builder
	for _, name := range simulate.ScenarioNames() {
		fmt.Fprintf(&b, "  %-16s  %s\n", name, simulate.DescribeScenario(name))
	}
	return b.String()
}

func dynamicsAlgorithms() []allocate.Algorithm {
	return append(allocate.Algorithms(), simulate.UpstreamAuto)
}

func (f *dynamicsFlags) run(ctx context.Context, s command.Streams) error {
	options, note, err := f.options()
	if err != nil {
		return err
	}
	if options.Scenarios, err = f.chooseScenarios(); err != nil {
		return err
	}
	if note != "" {
		fmt.Fprintln(s.Err, note)
	}
	results, failure := simulate.Dynamics(ctx, options)
	if failure != nil && ctx.Err() == nil {
		return failure
	}
	if results.Partial {
		runs := 0
		for i := range results.Scenarios {
			runs += len(results.Scenarios[i].Runs)
		}
		fmt.Fprintf(s.Err, "partial: interrupted after %s\n", count(int64(runs), "run", "runs"))
	}
	if err := f.write(s.Out, &results); err != nil {
		return err
	}
	return failure
}

// options checks the flags that need no scenario. note is a message for standard error.
func (f *dynamicsFlags) options() (o simulate.DynamicsOptions, note string, err error) {
	var algorithms []allocate.Algorithm
	if algorithms, o.Delivery, note, err = f.algorithms.read(dynamicsAlgorithms()); err != nil {
		return o, "", err
	}
	if o.Without, err = f.chooseSavings(); err != nil {
		return o, "", err
	}
	thresholds, err := f.thresholds.read()
	if err != nil {
		return o, "", err
	}
	if thresholds.Overload != nil {
		o.Threshold = *thresholds.Overload
	}
	if thresholds.Start != nil {
		f.cluster.Start = *thresholds.Start
	}
	if f.sliceSize < 1 {
		return o, "", command.UsageErrorf("--slice-size %d is not allowed; it must be 1 or more endpoints", f.sliceSize)
	}
	o.SliceSize, o.Seed = f.sliceSize, f.cluster.Seed
	for _, a := range algorithms {
		if a == simulate.UpstreamAuto {
			o.Upstream = true
		} else {
			o.Bounds = append(o.Bounds, thresholds.Bound(a))
		}
	}
	return o, note, nil
}

func (f *dynamicsFlags) chooseSavings() ([]simulate.Saving, error) {
	switch {
	case slices.Equal(f.without, []string{"all"}):
		return simulate.Savings(), nil
	case slices.Equal(f.without, []string{"none"}):
		return nil, nil
	}
	var savings []simulate.Saving
	for _, name := range f.without {
		saving := simulate.Saving(name)
		switch {
		case !slices.Contains(simulate.Savings(), saving):
			return nil, command.UsageErrorf("--without %q is not allowed; it must be all, none, or a list of %s", name, joinNames(simulate.Savings()))
		case slices.Contains(savings, saving):
			return nil, command.UsageErrorf("--without %q is given twice", name)
		}
		savings = append(savings, saving)
	}
	return savings, nil
}

func (f *dynamicsFlags) chooseScenarios() ([]simulate.Scenario, error) {
	names := f.scenarios
	if len(names) == 0 || slices.Equal(names, []string{"all"}) {
		names = simulate.ScenarioNames()
	}
	var scenarios []simulate.Scenario
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, command.UsageErrorf("--scenario %q is given twice", name)
		}
		if !slices.Contains(simulate.ScenarioNames(), name) {
			return nil, command.UsageErrorf("--scenario %q is unknown; allowed are all, or a list of %s", name, strings.Join(simulate.ScenarioNames(), ", "))
		}
		scenario, err := simulate.NamedScenario(name, f.cluster)
		if err != nil {
			return nil, command.UsageErrorf("%w", err)
		}
		scenarios = append(scenarios, scenario)
	}
	return scenarios, nil
}
