package commands

import (
	"context"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
)

func newLabZoneCommand(s command.Streams, f *labFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "zone",
		Short: "Cut zones of a lab off, and heal them",
		Long: `Zone cuts the network between the nodes of a zone and all others, the control plane too, as
when a site loses its links. Traffic inside the zone goes on.`,
		Example: `  vicinity lab zone cut zone-a
  vicinity lab zone heal zone-a`,
	}
	cmd.AddCommand(labVerb{
		name: "cut", short: "Cut a zone off from all others", what: "zone", done: "cut off",
		do: func(ctx context.Context, c *lab.Cluster, name string) error { return c.CutZone(ctx, name, true) },
	}.command(s, f), labVerb{
		name: "heal", short: "Join a zone that was cut off, and wait until its nodes are ready", what: "zone", done: "healed",
		do: func(ctx context.Context, c *lab.Cluster, name string) error { return c.HealZone(ctx, name) },
	}.command(s, f))
	return cmd
}
