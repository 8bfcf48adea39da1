// Package cli holds the commands of the vicinity program, one to a file.
//
// A command reads its flags and input, calls the core, and prints what it returns;
// it decides nothing itself. Streams and the context are injected, so a test runs a
// command as a user does, through Main.
//
// Output goes to standard output and can be piped; everything said about it goes to
// standard error. The exit code is 0 when the command did what was asked, 1 when it
// failed, 2 when it was asked in a way that makes no sense, and 130 when it was
// interrupted.
package cli

import (
	"context"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
)

// Main runs the command that args ask for, without the program's name, and returns
// the exit code. When ctx ends the command stops and the code says so.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command.Execute(ctx, newRootCommand(command.Streams{In: stdin, Out: stdout, Err: stderr}), args)
}

// Plugin is Main for a program that kubectl runs: messages and help call it by the
// name under which its user did.
func Plugin(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand(command.Streams{In: stdin, Out: stdout, Err: stderr})
	asPlugin(root)
	return command.Execute(ctx, root, args)
}

// PluginPrefix is what the name of a program starts with that kubectl runs as a
// command of its own.
const PluginPrefix = "kubectl-"

// asPlugin names the program as users of kubectl call it, also where its texts name it
// with one of its commands.
func asPlugin(root *cobra.Command) {
	const name = "kubectl vicinity"
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
	var commands []string
	for _, cmd := range root.Commands() {
		commands = append(commands, regexp.QuoteMeta(cmd.Name()))
	}
	mention := regexp.MustCompile(`\b` + root.Name() + ` (` + strings.Join(commands, "|") + `)\b`)
	command.Walk(root, func(cmd *cobra.Command) {
		cmd.Long = mention.ReplaceAllString(cmd.Long, name+" $1")
		cmd.Example = mention.ReplaceAllString(cmd.Example, name+" $1")
	})
}

func newRootCommand(s command.Streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "vicinity",
		Short: "Keep traffic near, and know what it costs",
		Long: `Vicinity makes a Kubernetes cluster aware of where things are: which endpoints a
connection may reach, how much load that puts on them, and why.

Doctor, explain, status and console only read a cluster. Rollout shows and controls updates
by failure domain. Lab runs a cluster on this machine. The other commands need no cluster.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.AddCommand(
		newConsoleCommand(s, connect),
		newConvertCommand(s),
		newDoctorCommand(s, connect),
		newExplainCommand(s, connect, thisMachine()),
		newLabCommand(replace),
		newPlanCommand(s),
		newRolloutCommand(s, connect),
		newSimulateCommand(s),
		newStatusCommand(s, connect),
		newVersionCommand(s),
	)
	command.Walk(root, func(cmd *cobra.Command) { cmd.Flags().SortFlags = false }) // what matters most comes first
	return root
}
