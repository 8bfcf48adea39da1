package commands

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
	"vicinity.dev/vicinity/lab/agent"
	"vicinity.dev/vicinity/lab/cri"
	"vicinity.dev/vicinity/lab/fabric"
	"vicinity.dev/vicinity/lab/state"
)

// newLabInternalCommand has the commands of a lab's own processes. Their flags may change with any
// version.
func newLabInternalCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:    "internal",
		Short:  "Run a process of a lab",
		Hidden: true,
	}
	cmd.AddCommand(
		newLabContainerCommand(),
		&cobra.Command{
			Use:   "become",
			Short: "Become the program of a container",
			Args:  command.NoArgs,
			RunE:  func(*cobra.Command, []string) error { return cri.BecomeProgram() },
		},
		labProcess("agent", "Stand in for the nodes of a lab that have no network", agent.Run),
		labProcess("runtime", "Run the containers of a lab's nodes", lab.ServeRuntime),
		labProcess("gateway", "Forward connections from the host to the API server of a lab", lab.ServeGateway),
		newLabDelayCommand(),
	)
	return cmd
}

func newLabDelayCommand() *cobra.Command {
	var queue uint16
	var delay time.Duration
	cmd := labProcess("delay", "Delay the packets of an impaired zone",
		func(ctx context.Context, _ state.Dir) error { return fabric.DelayPackets(ctx, queue, delay) })
	cmd.Flags().Uint16Var(&queue, "queue", 0, "`NUMBER` of the queue")
	cmd.Flags().DurationVar(&delay, "time", 0, "`TIME` that a packet waits")
	return cmd
}

// labProcess is a command that serves a lab's state folder. Being interrupted is not an error.
func labProcess(name, short string, serve func(context.Context, state.Dir) error) *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if path == "" {
				return command.UsageErrorf("--state is missing; it names the lab's folder")
			}
			err := serve(cmd.Context(), state.At(path))
			if cmd.Context().Err() != nil {
				return nil
			}
			return err
		},
	}
	cmd.Flags().StringVar(&path, "state", "", "`FOLDER` of the lab")
	return cmd
}

func newLabContainerCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "container FOLDER",
		Short: "Keep a container of a pod",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%q takes one argument, a folder; there are %d", cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error { return cri.RunContainer(args[0]) },
	}
}
