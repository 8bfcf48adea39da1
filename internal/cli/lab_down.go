package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/lab"
)

func newLabDownCommand(s streams, f *labFlags) *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a lab with all that belongs to it",
		Long: `Down ends all processes of a lab and removes its network namespaces and its folder,
also those of a lab that was interrupted in the middle. It is no error when there is
nothing to remove.`,
		Example: `  vicinity lab down
  vicinity lab down --name other
  vicinity lab down --all`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			names := []string{f.lab()}
			if all {
				if cmd.Flags().Changed("name") {
					return usageErrorf("--all and --name do not go together")
				}
				found, err := lab.Names(f.options(s.err))
				if err != nil {
					return err
				}
				names = found
			}
			for _, name := range names {
				if err := lab.Down(cmd.Context(), name, f.options(s.err)); err != nil {
					return err
				}
				fmt.Fprintf(s.out, "lab %s is down\n", name)
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove all labs of this user")
	return cmd
}
