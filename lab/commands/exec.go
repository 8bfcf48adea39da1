package commands

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"vicinity.dev/vicinity/internal/command"
	"vicinity.dev/vicinity/lab"
)

func newLabExecCommand(s command.Streams, f *labFlags) *cobra.Command {
	options := lab.ExecOptions{}
	var stdin bool
	cmd := &cobra.Command{
		Use:   "exec POD -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a pod",
		Long: `Exec runs a command in a container, in its network and with its volumes, through the
API as kubectl exec does. What the machine has installed can be run. The exit code is
that of the command.`,
		Example: `  vicinity lab exec client-0 -- ip address
  vicinity lab exec -it client-0 -- bash`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.ArgsLenAtDash() != 1 || len(args) < 2 {
				return fmt.Errorf("%q takes the name of a pod, then -- and a command", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := f.client(s)
			if err != nil {
				return err
			}
			options.Pod, options.Command = args[0], args[1:]
			options.Stdout, options.Stderr = s.Out, s.Err
			if stdin {
				options.Stdin = s.In
			}
			restore, err := attachTerminal(cmd.Context(), s, &options)
			if err != nil {
				return err
			}
			defer restore()
			return exitOf(client.Exec(cmd.Context(), options))
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&options.Namespace, "namespace", "n", "default", "`NAMESPACE` of the pod")
	flags.StringVarP(&options.Container, "container", "c", "", "`CONTAINER` of the pod, if it has several")
	flags.BoolVarP(&stdin, "stdin", "i", false, "pass standard input on")
	flags.BoolVarP(&options.TTY, "tty", "t", false, "give the command a terminal")
	return cmd
}

// attachTerminal makes the user's terminal that of the command, where there is one
// and it is asked for.
func attachTerminal(ctx context.Context, s command.Streams, options *lab.ExecOptions) (restore func(), err error) {
	if !options.TTY || options.Stdin == nil {
		return func() {}, nil
	}
	if !command.IsTerminal(s.In) {
		return nil, command.UsageErrorf("--tty needs a terminal, and standard input is none")
	}
	// isTerminal has seen that it is a file.
	fd := int(s.In.(*os.File).Fd())
	old, err := term.MakeRaw(fd)
	if err != nil {
		return nil, fmt.Errorf("preparing the terminal: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	options.Resize = terminalSizes(ctx, fd)
	return func() {
		cancel()
		// Nothing can be done about a terminal that is gone.
		_ = term.Restore(fd, old)
	}, nil
}

// terminalSizes sends the size of a terminal, and again whenever it changes, until
// the context ends.
func terminalSizes(ctx context.Context, fd int) <-chan lab.TerminalSize {
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	sizes := make(chan lab.TerminalSize)
	go func() {
		defer close(sizes)
		defer signal.Stop(changed)
		for {
			if width, height, err := term.GetSize(fd); err == nil {
				select {
				case sizes <- lab.TerminalSize{Width: uint16(width), Height: uint16(height)}:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return sizes
}
