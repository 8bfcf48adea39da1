// Package command is the common part of the programs for users: how a command reports errors,
// prints help and tables, and ends.
//
// Output goes to standard output and can be piped; messages go to standard error. The exit code is
// 0 for success, 1 for failure, 2 for wrong usage, and 130 for an interruption.
package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Exit codes of a program.
const (
	ExitFailure     = 1
	ExitUsage       = 2
	ExitInterrupted = 130
)

// ExitCodes is a sentence of each help.
const ExitCodes = "Exit codes: 0 success, 1 failure, 2 wrong usage, 130 interrupted"

// Streams are the input and outputs of a command.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// ExitError is an error with the exit code of the program.
type ExitError struct {
	Code int
	Err  error

	// usage reports that the command was called in a wrong way.
	usage bool
}

func (e *ExitError) Error() string { return e.Err.Error() }

func (e *ExitError) Unwrap() error { return e.Err }

// UsageErrorf returns an error about wrong usage of the command. Errors of flags and arguments that
// cobra finds count as usage errors without it; it is for invalid values that a command finds
// itself.
func UsageErrorf(format string, args ...any) error {
	return &ExitError{Code: ExitUsage, Err: fmt.Errorf(format, args...), usage: true}
}

// Execute runs a program. It turns an error into a message and an exit code.
func Execute(ctx context.Context, root *cobra.Command, args []string) int {
	started := finish(root)
	root.SetArgs(append([]string{}, args...)) // cobra takes nil as the arguments of the process
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}

	code, usage := ExitFailure, false
	var chosen *ExitError
	switch {
	case errors.As(err, &chosen):
		code, usage = chosen.Code, chosen.usage
	case !*started:
		code, usage = ExitUsage, true
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		code, err = ExitInterrupted, errors.New("interrupted")
	}
	message := OneLine(err)
	if usage {
		message += fmt.Sprintf(" (see %q)", cmd.CommandPath()+" --help")
	}
	root.PrintErrln(root.DisplayName() + ": " + message)
	return code
}

// finish sets defaults for all commands: a command takes no arguments unless it declares them, and
// a command that only groups others prints its help. started becomes true when a command's own code
// runs: an error before that is a usage error.
func finish(root *cobra.Command) (started *bool) {
	started = new(bool)
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	if help, _, err := root.Find([]string{"help"}); err == nil {
		help.Args = helpArgs
	}
	usage := root.UsageFunc()
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		if err := usage(cmd); err != nil {
			return err
		}
		_, err := fmt.Fprintln(cmd.OutOrStderr(), "\n"+ExitCodes)
		return err
	})
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		// Check the arguments first: a mistyped subcommand does not have the flags of the intended
		// one.
		if argsErr := cmd.ValidateArgs(cmd.Flags().Args()); argsErr != nil {
			return argsErr
		}
		return err
	})
	Walk(root, func(cmd *cobra.Command) {
		if !cmd.Runnable() {
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
		if cmd.Args == nil {
			cmd.Args = NoArgs
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

// Walk visits a command and all its subcommands.
func Walk(cmd *cobra.Command, visit func(*cobra.Command)) {
	visit(cmd)
	for _, child := range cmd.Commands() {
		Walk(child, visit)
	}
}

// NoArgs refuses arguments. In a command with subcommands, an argument is a mistyped subcommand.
func NoArgs(cmd *cobra.Command, args []string) error {
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

func helpArgs(cmd *cobra.Command, args []string) error {
	found, rest, err := cmd.Root().Find(args)
	if err != nil {
		return err
	}
	return NoArgs(found, rest)
}

// OneLine returns the message of an error, which may join several, on one line.
func OneLine(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}

// SharedKey is the annotation of a flag with the title of its section in the reference.
const SharedKey = "vicinity.dev/shared"

// Share makes the reference list flags once, in a section of their own, instead of with each command that
// has them.
func Share(flags *pflag.FlagSet, title string, names ...string) {
	for _, name := range names {
		flags.Lookup(name).Annotations = map[string][]string{SharedKey: {title}}
	}
}
