package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/internal/version"
)

func newVersionCommand(s command.Streams) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and how it was built",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return printVersion(s.Out, version.Read(), output)
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "text", "`FORMAT` of the output: text or json")
	return cmd
}

func printVersion(out io.Writer, build version.Build, output string) error {
	switch output {
	case "text":
		_, err := fmt.Fprintln(out, "vicinity", build)
		return err
	case "json":
		return encodeJSON(out, build)
	}
	return command.UsageErrorf("--output %q is unknown; it must be text or json", output)
}
