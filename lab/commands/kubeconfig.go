package commands

import (
	"fmt"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
)

func newLabKubeconfigCommand(s command.Streams, f *labFlags) *cobra.Command {
	return &cobra.Command{
		Use:   "kubeconfig",
		Short: "Print the path of the administrator's kubeconfig",
		Long: `Kubeconfig prints the path of the administrator's kubeconfig, which reaches the lab through a
port on 127.0.0.1.`,
		Example: `  export KUBECONFIG=$(vicinity lab kubeconfig)`,
		Args:    command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(s.Out, cluster.Kubeconfig())
			return err
		},
	}
}
