package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"vicinity.dev/vicinity/api/v1alpha1"
	"vicinity.dev/vicinity/internal/disruption/coverage"
	"vicinity.dev/vicinity/internal/kit/command"
)

const budgetResource = "topologydisruptionbudgets"

type budgetAdvance struct {
	cluster clusterFlags
	to      string
	dryRun  bool
	output  outputFlag
}

func newBudgetCommand(s command.Streams, reach connector) *cobra.Command {
	var a budgetAdvance
	advance := &cobra.Command{
		Use: "advance NAME --to ZONE", Short: "Free another zone, and protect the previous one again",
		Long: `Advance changes the expression with NotIn in spec.nodeSelectorTerm: the budget then leaves out
only ZONE, a value of the expression's label. First see that the previous zone's pods are ready.`,
		Example: `  vicinity budget advance app-pdb -n shop --to zone-b --dry-run
  vicinity budget advance app-pdb -n shop --to zone-b`,
		Args: oneName("TopologyDisruptionBudget"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if a.to == "" {
				return command.UsageErrorf("--to is missing; it names the zone that the budget leaves out, such as --to zone-b")
			}
			return a.run(cmd.Context(), s.Out, reach, args[0])
		},
	}
	flags := advance.Flags()
	flags.StringVar(&a.to, "to", "", "`ZONE` that the budget leaves out")
	flags.BoolVar(&a.dryRun, "dry-run", false, "have the API server check the change, and write nothing")
	a.output.add(flags, "text", "json", "yaml")
	a.cluster.add(flags, "`NAMESPACE` of the TopologyDisruptionBudget (default the context's)")
	cmd := &cobra.Command{
		Use: "budget", Short: "Free one failure domain after another for evictions",
		Long: `Budget changes TopologyDisruptionBudgets. docs/disruption.md explains them.`,
	}
	cmd.AddCommand(advance)
	return cmd
}

func (a *budgetAdvance) run(ctx context.Context, out io.Writer, reach connector, name string) error {
	r, err := reach.reader(&a.cluster)
	if err != nil {
		return err
	}
	nodes, err := listAll[corev1.Node](ctx, r.typed.CoreV1().Nodes(), metav1.ListOptions{})
	if err != nil {
		return r.explained("reading Nodes", err)
	}
	target := specTarget{resource: budgetResource, kind: "TopologyDisruptionBudget", name: name, dryRun: a.dryRun, out: out, output: &a.output}
	return r.changeSpec(ctx, target, func() (version string, change specChange, err error) {
		budget, err := r.budget(ctx, name)
		if err != nil {
			return "", change, err
		}
		expressions, before, err := coverage.Advance(budget, a.to, slices.Values(nodes))
		if err != nil {
			return "", change, fmt.Errorf("TopologyDisruptionBudget %s/%s %w", r.namespace, name, err)
		}
		change.message = fmt.Sprintf("leaves out %s in place of %s", a.to, strings.Join(before, ", "))
		switch {
		case slices.Equal(before, []string{a.to}):
			change.message = "leaves out " + a.to + " already"
			return "", change, nil
		case a.dryRun:
			change.message += " (dry run: nothing is written)"
		}
		change.fields = map[string]any{"nodeSelectorTerm": map[string]any{"matchExpressions": expressions}}
		return budget.ResourceVersion, change, nil
	})
}

// budget reads a TopologyDisruptionBudget. Without it, the error names those of the namespace.
func (r *clusterReader) budget(ctx context.Context, name string) (*v1alpha1.TopologyDisruptionBudget, error) {
	list, err := listOwn[v1alpha1.TopologyDisruptionBudget](ctx, r, ownList{budgetResource, r.namespace, ""})
	if err != nil {
		return nil, r.explained("reading TopologyDisruptionBudgets", err)
	}
	var names []string
	for _, budget := range list {
		if budget.Name == name {
			return budget, nil
		}
		names = append(names, budget.Name)
	}
	return nil, r.notFound(ctx, fmt.Sprintf("TopologyDisruptionBudget %q", name), names, nil)
}
