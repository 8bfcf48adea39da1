package cli

import (
	"io"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/lab"
)

func newLabManifestsCommand(s streams) *cobra.Command {
	var replicas, clients int
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print an echo Service and clients to begin with, as YAML",
		Long: `Manifests prints the YAML of an echo Service and of client pods, spread over zones and
nodes: something for "lab load" to work with, and a beginning for manifests of your own.`,
		Example: `  vicinity lab manifests | kubectl apply -f -
  vicinity lab manifests --replicas 9 --clients 3 >echo.yaml`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			for _, n := range []struct {
				flag  string
				value int
			}{{"replicas", replicas}, {"clients", clients}} {
				if n.value < 0 {
					return usageErrorf("--%s %d is not allowed; it must not be below 0", n.flag, n.value)
				}
			}
			_, err := io.WriteString(s.out, lab.EchoManifests("echo", replicas)+"---\n"+lab.ClientManifests("client", clients))
			return err
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&replicas, "replicas", 6, "`NUMBER` of endpoints")
	flags.IntVar(&clients, "clients", 6, "`NUMBER` of clients")
	return cmd
}
