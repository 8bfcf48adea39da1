package commands

import (
	"context"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/shape"
)

func newLabZoneCommand(s command.Streams, f *labFlags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "zone",
		Short: "Cut zones of a lab off or impair their uplinks, and undo it",
		Long: `Zone cuts or impairs the network between the nodes of a zone and all others, the control plane
too. Traffic inside the zone goes on.`,
		Example: `  vicinity lab zone cut zone-a
  vicinity lab zone heal zone-a
  vicinity lab zone impair zone-a --loss 5 --delay 300ms
  vicinity lab zone repair zone-a`,
	}
	cmd.AddCommand(labVerb{
		name: "cut", short: "Cut a zone off from all others", what: "zone", done: "cut off",
		do: func(ctx context.Context, c *lab.Cluster, name string) error { return c.CutZone(ctx, name) },
	}.command(s, f), labVerb{
		name: "heal", short: "Join a zone that was cut off, and wait until its nodes are ready", what: "zone", done: "healed",
		do: func(ctx context.Context, c *lab.Cluster, name string) error { return c.HealZone(ctx, name) },
	}.command(s, f), newLabZoneImpairCommand(s, f), labVerb{
		name: "repair", short: "Repair the uplink of a zone", what: "zone", done: "repaired",
		do: func(ctx context.Context, c *lab.Cluster, name string) error { return c.RepairZone(ctx, name) },
	}.command(s, f))
	return cmd
}

func newLabZoneImpairCommand(s command.Streams, f *labFlags) *cobra.Command {
	var i shape.Impairment
	cmd := labVerb{
		name: "impair", short: "Lose and delay packets on the uplink of a zone", what: "zone", done: "impaired",
		do: func(ctx context.Context, c *lab.Cluster, name string) error {
			return byFlag(c.ImpairZone(ctx, name, i), map[string]string{"loss": "--loss", "delay": "--delay"})
		},
	}.command(s, f)
	cmd.Long = `Impair loses a share of the packets between the nodes of a zone and all others, and delays the
rest, in each direction.`
	cmd.Example = `  vicinity lab zone impair zone-a --loss 5 --delay 300ms
  vicinity lab zone repair zone-a`
	cmd.Flags().IntVar(&i.Loss, "loss", 0, "`PERCENT` of packets that are lost")
	cmd.Flags().DurationVar(&i.Delay.Duration, "delay", 0, "`TIME` by which the other packets are late, up to 10s")
	return cmd
}
