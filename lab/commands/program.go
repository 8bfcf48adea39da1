package commands

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/lab/program"
)

// newLabProgramCommand runs the program of an image. It gets all arguments after the name.
func newLabProgramCommand(s command.Streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:    "program",
		Short:  "Run the program of one of the lab's images",
		Hidden: true,
	}
	for _, name := range program.Names() {
		cmd.AddCommand(&cobra.Command{
			Use:                name,
			Short:              "Run the program of the image lab/" + name,
			DisableFlagParsing: true,
			Args:               cobra.ArbitraryArgs,
			RunE: func(cmd *cobra.Command, args []string) error {
				code := program.Run(cmd.Context(), program.Call{
					Name: name, Args: args, Env: os.Environ(), Stdout: s.Out, Stderr: s.Err,
				})
				if code != 0 {
					return &command.ExitError{Code: code, Err: fmt.Errorf("%s ended with exit code %d", name, code)}
				}
				return nil
			},
		})
	}
	return cmd
}
