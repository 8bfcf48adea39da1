package commands

import (
	"io"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab"
)

func newLabManifestsCommand(s command.Streams) *cobra.Command {
	var replicas, clients int
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print an echo Service and clients to begin with, as YAML",
		Long: `Manifests prints the YAML of an echo Service and of client pods, spread over zones and
nodes: something for "lab load" to work with, and a beginning for manifests of your own.`,
		Example: `  vicinity lab manifests | kubectl apply -f -
  vicinity lab manifests --replicas 9 --clients 3 >echo.yaml`,
		Args: command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, n := range []struct {
				flag  string
				value int
			}{{"replicas", replicas}, {"clients", clients}} {
				if n.value < 0 {
					return command.UsageErrorf("--%s %d is not allowed; it must not be below 0", n.flag, n.value)
				}
			}
			_, err := io.WriteString(s.Out, lab.EchoManifests("echo", replicas)+"---\n"+lab.ClientManifests("client", clients))
			return err
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&replicas, "replicas", 6, "`NUMBER` of endpoints")
	flags.IntVar(&clients, "clients", 6, "`NUMBER` of clients")
	return cmd
}
