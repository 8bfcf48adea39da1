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
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes of the program.
const (
	exitFailure     = 1
	exitUsage       = 2
	exitInterrupted = 130
)

// streams are where a command reads from and writes to.
type streams struct {
	in       io.Reader
	out, err io.Writer
}

// exitError is an error that chooses the exit code of the program.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }

func (e *exitError) Unwrap() error { return e.err }

// usageErrorf is an error about how the command was called. Errors of flags and
// arguments that cobra finds are usage errors without it; it is for what a command
// finds in their values.
func usageErrorf(format string, args ...any) error {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

// Main runs the command that args ask for, without the program's name, and returns
// the exit code. When ctx ends the command stops and the code says so.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return execute(ctx, newRootCommand(streams{in: stdin, out: stdout, err: stderr}), args)
}

// Plugin is Main for a program that kubectl runs: messages and help call it by the
// name under which its user did.
func Plugin(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRootCommand(streams{in: stdin, out: stdout, err: stderr})
	asPlugin(root)
	return execute(ctx, root, args)
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
	walk(root, func(cmd *cobra.Command) {
		cmd.Long = mention.ReplaceAllString(cmd.Long, name+" $1")
		cmd.Example = mention.ReplaceAllString(cmd.Example, name+" $1")
	})
}

// execute runs a program and turns its error, if any, into a message and a code.
func execute(ctx context.Context, root *cobra.Command, args []string) int {
	started := finish(root)
	root.SetArgs(append([]string{}, args...)) // of nil it would take what the process was started with
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}

	code := exitFailure
	var chosen *exitError
	switch {
	case errors.As(err, &chosen):
		code = chosen.code
	case !*started:
		code = exitUsage
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code, err = exitInterrupted, errors.New("interrupted")
	}
	message := oneLine(err)
	if code == exitUsage {
		message += fmt.Sprintf(" (see %q)", cmd.CommandPath()+" --help")
	}
	root.PrintErrln(root.DisplayName() + ": " + message)
	return code
}

// newRootCommand is the program with all its commands.
func newRootCommand(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "vicinity",
		Short: "Keep traffic near, and know what it costs",
		Long: `Vicinity makes a Kubernetes cluster aware of where things are: which endpoints a
connection may reach, how much load that puts on them, and why.

Explain and status look at a cluster and change nothing in it. Replan asks the controller
of a cluster for a better plan. Lab makes a cluster of
its own. The other commands need none.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.AddCommand(
		newExplainCommand(s, connect, thisMachine()),
		newLabCommand(s),
		newPlanCommand(s),
		newReplanCommand(s, connect),
		newSimulateCommand(s),
		newStatusCommand(s, connect),
		newVersionCommand(s),
	)
	return root
}

// finish gives all commands the behaviour that cobra leaves to each: a command that
// does not say which arguments it takes takes none, and one that only groups others
// prints its help. It reports whether a command's own code has started to run: an
// error before that is one of usage.
func finish(root *cobra.Command) (started *bool) {
	started = new(bool)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = helpArgs
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// A mistyped command has none of the flags of the right one.
		if argsErr := cmd.ValidateArgs(cmd.Flags().Args()); argsErr != nil {
			return argsErr
		}
		return err
	})
	walk(root, func(cmd *cobra.Command) {
		if !cmd.Runnable() {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		if cmd.Args == nil {
			cmd.Args = noArgs
		}
		if run := cmd.RunE; run != nil {
			cmd.RunE = func(cmd *cobra.Command, args []string) error {
				*started = true
				return run(cmd, args)
			}
		}
	})
	return started
}

func walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		walk(child, visit)
	}
}

// noArgs refuses arguments. One given to a command that has commands of its own was
// meant to be one of them.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if !cmd.HasAvailableSubCommands() {
		return fmt.Errorf("unexpected argument %q: %q takes none", args[0], cmd.CommandPath())
	}
	cmd.SuggestionsMinimumDistance = 2
	hint := ""
	if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
		hint = fmt.Sprintf("; did you mean %q?", strings.Join(near, `" or "`))
	}
	return fmt.Errorf("unknown command %q for %q%s", args[0], cmd.CommandPath(), hint)
}

// helpArgs takes the names of a command.
func helpArgs(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	return noArgs(found, rest)
}

// oneLine is the message of an error, which may join several, on one line.
func oneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}
