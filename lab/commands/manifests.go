package commands

import (
	"io"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
)

func newLabManifestsCommand(s command.Streams) *cobra.Command {
	var replicas int
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print an echo Service and clients as YAML",
		Long: `Manifests prints the YAML of an echo Service and of client pods, spread over zones and nodes,
for "lab load".`,
		Example: `  vicinity lab manifests | kubectl apply -f -`,
		Args:    command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			if replicas < 0 {
				return command.UsageErrorf("--replicas %d is not allowed; it must not be below 0", replicas)
			}
			_, err := io.WriteString(s.Out, lab.EchoManifests("echo", replicas)+"---\n"+lab.ClientManifests("client", clients))
			return err
		},
	}
	cmd.Flags().IntVar(&replicas, "replicas", 6, "`NUMBER` of endpoints")
	return cmd
}

// clients is the number of clients.
const clients = 6
