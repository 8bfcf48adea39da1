package commands

import (
	"fmt"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab"
)

func newLabLogsCommand(s command.Streams, f *labFlags) *cobra.Command {
	options := lab.LogOptions{}
	var tail int64
	var component bool
	cmd := &cobra.Command{
		Use:   "logs [POD]",
		Short: "Print the log of a pod or of a component",
		Long: `Logs prints what a container printed, through the API as kubectl logs does. With
--component it prints what a process of the lab itself printed: NAME is as in
"lab status"; without a name the last lines of all of them, each with its name.`,
		Example: `  vicinity lab logs echo-0 --follow
  vicinity lab logs --component kube-apiserver
  vicinity lab logs --component --tail 20`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 || len(args) == 0 && !component {
				return fmt.Errorf("%q takes one argument, the name of a pod; there are %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("tail") {
				options.Tail = &tail
			}
			if component {
				cluster, err := f.open(s)
				if err != nil {
					return err
				}
				return cluster.ComponentLogs(s.Out, options.Tail, args...)
			}
			client, err := f.client(s)
			if err != nil {
				return err
			}
			options.Pod = args[0]
			return client.Logs(cmd.Context(), s.Out, options)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&options.Namespace, "namespace", "n", "default", "`NAMESPACE` of the pod")
	flags.StringVarP(&options.Container, "container", "c", "", "`CONTAINER` of the pod, if it has several")
	flags.BoolVarP(&options.Follow, "follow", "f", false, "go on until the container ends")
	flags.BoolVarP(&options.Previous, "previous", "p", false, "print the log of the container before its last restart")
	flags.Int64Var(&tail, "tail", 0, "begin with the last `NUMBER` lines, below 0 with all (default all; of all components 10)")
	flags.BoolVar(&component, "component", false, "print the log of a component of the lab")
	return cmd
}
