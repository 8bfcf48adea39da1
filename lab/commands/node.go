package commands

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

func newLabNodeCommand(s command.Streams, f *labFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Stop, start, add and remove nodes of a lab",
		Long: `Node changes the nodes of a running lab. A stopped node is like a machine whose cable was
pulled: nothing reaches it or its pods, which run on until the node starts again.`,
		Example: `  vicinity lab node stop zone-a-1
  vicinity lab node start zone-a-1
  vicinity lab node add --zone zone-a --labels example.com/rack=r1`,
	}
	cmd.AddCommand(
		labVerb{
			name: "stop", short: "Stop a node as if its cable had been pulled", what: "node", done: "stopped",
			do: func(ctx context.Context, c *lab.Cluster, name string) error { return c.StopNode(ctx, name) },
		}.command(s, f),
		labVerb{
			name: "start", short: "Start a stopped node, and wait until it is ready unless its zone is cut off", what: "node", done: "started",
			do: func(ctx context.Context, c *lab.Cluster, name string) error { return c.StartNode(ctx, name) },
		}.command(s, f),
		labVerb{
			name: "remove", short: "Remove a node with its pods", what: "node", done: "removed",
			do: func(ctx context.Context, c *lab.Cluster, name string) error { return c.RemoveNode(ctx, name) },
		}.command(s, f),
		newLabNodeAddCommand(s, f),
	)
	return cmd
}

// nodeFlags are the flags for fields of a node in a shape.
var nodeFlags = map[string]string{
	"zones.name":         "--zone",
	"zones.region":       "--region",
	"zones.nodes.name":   "NODE",
	"zones.nodes.cpu":    "--cpu",
	"zones.nodes.memory": "--memory",
	"zones.nodes.labels": "--labels",
}

func newLabNodeAddCommand(s command.Streams, f *labFlags) *cobra.Command {
	node := shape.Node{}
	cmd := &cobra.Command{
		Use:   "add [NODE]",
		Short: "Add a node",
		Long: `Add adds a node to a zone, or to a new zone, and returns when the node is ready. Without a
name, the node gets the next one of the zone.`,
		Example: `  vicinity lab node add --zone zone-a
  vicinity lab node add big --zone zone-d --cpu 16 --labels example.com/rack=r1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return fmt.Errorf("%q takes at most one argument, the name of the node; there are %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if node.Zone == "" {
				return command.UsageErrorf("--zone is missing; it names the zone of the node")
			}
			if len(args) == 1 {
				node.Name = args[0]
			}
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			added, err := cluster.AddNode(cmd.Context(), node)
			if err != nil {
				return byFlag(err, nodeFlags)
			}
			_, err = fmt.Fprintf(s.Out, "node %s added\n", added.Name)
			return err
		},
	}
	flags := cmd.Flags()
	flags.SortFlags = false
	flags.StringVar(&node.Zone, "zone", "", "`ZONE` of the node")
	flags.StringVar(&node.Region, "region", "", "`REGION` of a new zone")
	flags.StringVar(&node.CPU, "cpu", "", "CPU of the node, a `QUANTITY` (default 4)")
	flags.StringVar(&node.Memory, "memory", "", "memory of the node, a `QUANTITY` (default 8Gi)")
	flags.StringToStringVar(&node.Labels, "labels", nil, "key=value `LIST` of labels")
	return cmd
}
