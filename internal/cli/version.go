package cli

import (
	"io"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
	"vicinity.dev/vicinity/internal/kit/version"
)

func newVersionCommand(s command.Streams) *cobra.Command {
	var output outputFlag
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version and build details",
		Args:  command.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return printVersion(s.Out, version.Read(), &output)
		},
	}
	output.add(cmd.Flags(), "text", "json")
	return cmd
}

func printVersion(out io.Writer, build version.Build, output *outputFlag) error {
	return output.write(out, build, func(p *page) { p.printf("vicinity %v\n", build) })
}
