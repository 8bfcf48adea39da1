package commands

import (
	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
)

func newLabLogsCommand(s command.Streams, f *labFlags) *cobra.Command {
	var tail int64
	cmd := &cobra.Command{
		Use:   "logs [COMPONENT]...",
		Short: "Print the logs of components",
		Long: `Logs prints what processes of the lab printed; "lab status" has their names. Without a name it
prints the last lines of all.`,
		Example: `  vicinity lab logs kube-apiserver`,
		RunE: func(cmd *cobra.Command, args []string) error {
			cluster, err := f.open(s)
			if err != nil {
				return err
			}
			var last *int64
			if cmd.Flags().Changed("tail") {
				last = &tail
			}
			return cluster.ComponentLogs(s.Out, last, args...)
		},
	}
	cmd.Flags().Int64Var(&tail, "tail", 0, "print the last `NUMBER` lines; below 0 all (default all, or 10 without a name)")
	return cmd
}
