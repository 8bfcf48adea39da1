package commands

import (
	"fmt"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab"
)

func newLabDownCommand(s command.Streams, f *labFlags) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a lab with all that belongs to it",
		Long: `Down ends all processes of a lab and removes its network namespaces and its folder, also after
an interrupted command. If there is nothing to remove, it succeeds.`,
		Example: `  vicinity lab down
  vicinity lab down --all`,
		Args: command.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all && cmd.Flags().Changed("name") {
				return command.UsageErrorf("--all and --name do not go together")
			}
			names, err := f.downNames(all, s)
			if err != nil {
				return err
			}
			for _, name := range names {
				if err := lab.Down(cmd.Context(), name, f.options(s.Err)); err != nil {
					return err
				}
				fmt.Fprintf(s.Out, "lab %s is down\n", name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all labs of this user")
	return cmd
}

func (f *labFlags) downNames(all bool, s command.Streams) ([]string, error) {
	if all {
		return lab.Names(f.options(s.Err))
	}
	name, err := f.lab()
	return []string{name}, err
}
