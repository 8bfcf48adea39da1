package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/allocate"
	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/plaintext"
	"vicinity.dev/vicinity/internal/simulate"
)

type simulateFlags struct {
	dataset            string
	zones              int
	nodes, endpoints   string
	algorithms         algorithmFlags
	startingThresholds []string
	overloadThresholds []string
	weights            allocate.Weights
	sliceSize          int
	output             outputFlag
}

func newSimulateCommand(s command.Streams) *cobra.Command {
	f := simulateFlags{weights: allocate.DefaultWeights()}
	cmd := &cobra.Command{
		Use:   "simulate",
		Short: "Score the allocation algorithms on many cases",
		Long: `Simulate gives many regions to the allocation algorithms and scores the plans. A case is one
region: for each zone its nodes, which send the traffic, and its endpoints.

Data sets (--dataset):
  published       39,273,145 cases of three zones: the published study
  small, medium   its beginning, up to 20 and up to 50 endpoints in a zone
  representative  a few dozen cases that you can check by hand
  grid            all combinations of --zones, --nodes and --endpoints

Hints cannot carry the weights of local-weighted, local-opt and flow.`,
		Example: `  vicinity simulate --dataset representative
  vicinity simulate --algorithm optimal,local -o html > study.html
  vicinity simulate --dataset small --algorithm local --delivery groups --starting-threshold 1x,3x,5x
  vicinity simulate --dataset grid --zones 4 --endpoints 0..20/2`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), s, cmd.Flags().Changed)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.dataset, "dataset", "published", "`NAME` of the data set")
	flags.IntVar(&f.zones, "zones", 3, "number of zones of the grid")
	flags.StringVar(&f.nodes, "nodes", "1..10", "`RANGE` of nodes in a zone of the grid: 7, 1..10 or 1..10/3")
	flags.StringVar(&f.endpoints, "endpoints", "0..20", "`RANGE` of endpoints in a zone of the grid")
	f.algorithms.add(flags, allocate.Algorithms())
	flags.StringSliceVar(&f.startingThresholds, "starting-threshold", nil, "`LIST` of endpoints below which plans are balanced; 3x is 3 per zone (default 3x for local, else none)")
	flags.StringSliceVar(&f.overloadThresholds, "overload-threshold", nil, "`LIST` of loads above the even share that no endpoint may reach (default 20% for auto, else 50%)")
	flags.Float64Var(&f.weights.InZone, "weight-in-zone", f.weights.InZone, "weight of the in-zone share in the score")
	flags.Float64Var(&f.weights.Overload, "weight-overload", f.weights.Overload, "weight of the greatest overload")
	flags.Float64Var(&f.weights.Deviation, "weight-deviation", f.weights.Deviation, "weight of the mean deviation of loads")
	flags.Float64Var(&f.weights.Slices, "weight-slices", f.weights.Slices, "weight of the number of slices")
	flags.IntVar(&f.sliceSize, "slice-size", allocate.DefaultSliceSize, "endpoints that fit in a slice")
	f.output.add(flags, "table", "json", "html")
	cmd.AddCommand(newDynamicsCommand(s))
	return cmd
}

// worstCases limits the worst cases on the page with charts.
const worstCases = 10

// run runs the command. given reports whether a flag was given.
func (f *simulateFlags) run(ctx context.Context, s command.Streams, given func(string) bool) error {
	options, note, err := f.options()
	if err != nil {
		return err
	}
	if options.Dataset, err = f.readDataset(given); err != nil {
		return err
	}
	if err := options.Validate(); err != nil {
		return command.UsageErrorf("%w", err)
	}
	begun := time.Now()
	options.Clock = func() time.Duration { return time.Since(begun) }
	if note != "" {
		fmt.Fprintln(s.Err, note)
	}

	results, failure := simulate.Run(ctx, options)
	if failure != nil && !results.Partial {
		return failure
	}
	if results.Partial {
		fmt.Fprintf(s.Err, "partial: interrupted after %s of %s\n", plaintext.Thousands(results.Cases), count(options.Dataset.Cases(), "case", "cases"))
	}
	if err := f.write(s.Out, &results); err != nil {
		return err
	}
	return failure
}

// options checks the flags that need no data set. note is a message for standard error.
func (f *simulateFlags) options() (o simulate.Options, note string, err error) {
	var algorithms []allocate.Algorithm
	if algorithms, o.Delivery, note, err = f.algorithms.read(allocate.Algorithms()); err != nil {
		return o, "", err
	}
	if o.Variants, err = f.variants(algorithms); err != nil {
		return o, "", err
	}
	w := f.weights
	if w.InZone+w.Overload+w.Deviation+w.Slices == 0 {
		return o, "", command.UsageErrorf("--weight-in-zone and the other weights are all 0; at least one must be greater")
	}
	if f.sliceSize < 1 {
		return o, "", command.UsageErrorf("--slice-size %d is not allowed; it must be 1 or more", f.sliceSize)
	}
	o.Weights, o.SliceSize, o.Worst = f.weights, f.sliceSize, worstCases
	return o, note, nil
}
