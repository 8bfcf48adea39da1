// Package cli holds the commands of the vicinity program, one per file.
//
// A command reads its flags and input, calls the core, and prints the result; it decides nothing
// itself. Streams and the context are injected, so a test runs a command through Main as a user does.
//
// The result goes to standard output, messages go to standard error. Package command has the exit
// codes.
package cli

import (
	"context"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"

	"vicinity.dev/vicinity/internal/kit/command"
)

// Main runs the command in args, without the program's name, and returns the exit code. It stops when
// ctx ends.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return command.Execute(ctx, newRootCommand(command.Streams{In: stdin, Out: stdout, Err: stderr}), args)
}

// Plugin is Main for a plugin of kubectl: messages and help name the program as its user does.
func Plugin(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand(command.Streams{In: stdin, Out: stdout, Err: stderr})
	asPlugin(root)
	return command.Execute(ctx, root, args)
}

// PluginPrefix begins the names of kubectl plugins.
const PluginPrefix = "kubectl-"

// CompletionPrefix begins the names of the programs that complete the words of kubectl plugins.
const CompletionPrefix = "kubectl_complete-"

// asPlugin names the program as users of kubectl call it, also in the texts of its commands.
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

Doctor, explain, status and console only read a cluster. Convert, plan and simulate need none.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.Err)
	root.AddCommand(
		newBudgetCommand(s, connect),
		newCleanupCommand(s, connect),
		newConsoleCommand(s, connect),
		newConvertCommand(s),
		newDNSCommand(s, connect, askByForwarding),
		newDoctorCommand(s, connect),
		newExplainCommand(s, connect, thisMachine()),
		newGameDayCommand(s, connect),
		newLabCommand(replace),
		newPlanCommand(s),
		newRolloutCommand(s, connect),
		newShiftCommand(s, connect),
		newSimulateCommand(s),
		newStatusCommand(s, connect),
		newVersionCommand(s),
	)
	connector(connect).completeFlags(root)
	command.Walk(root, func(cmd *cobra.Command) { cmd.Flags().SortFlags = false }) // the most important flags come first
	return root
}
