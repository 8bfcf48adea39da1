package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// command is a program to run in a container beside its own.
type command struct {
	process process
	// folder is that of the container's attempt: its specification has the environment.
	folder string
	args   []string
	in     io.Reader
	out    io.Writer
	err    io.Writer
	// terminal gives it a terminal; sizes are what it is resized to.
	terminal bool
	sizes    <-chan unix.Winsize
}

// exitError is the end of a command with another code than 0.
type exitError struct{ code int }

func (e exitError) Error() string   { return fmt.Sprintf("command terminated with exit code %d", e.code) }
func (e exitError) String() string  { return e.Error() }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return e.code }

// run runs the command until it ends, or the context does.
func (c command) run(ctx context.Context) error {
	var spec containerSpec
	if err := readJSON(filepath.Join(c.folder, specFile), &spec); err != nil {
		return err
	}
	if len(c.args) == 0 {
		return errors.New("the command is empty")
	}
	cmd := &exec.Cmd{
		Args: c.args, Env: spec.Env, Dir: spec.Dir,
		Stdin: c.in, Stdout: c.out, Stderr: c.err,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: credential(spec.User, spec.Group)},
	}
	var terminal, end *os.File
	if c.terminal {
		var err error
		if terminal, end, err = openTerminal(); err != nil {
			return err
		}
		defer terminal.Close()
		cmd.Stdin, cmd.Stdout, cmd.Stderr = end, end, end
		cmd.SysProcAttr.Setctty = true
	} else if c.in != nil {
		// Copied by hand: to wait for the end of an input is not to wait for the command.
		cmd.Stdin = nil
		in, err := cmd.StdinPipe()
		if err != nil {
			return err
		}
		go func() {
			defer in.Close()
			_, _ = io.Copy(in, c.in)
		}()
	}
	err := inContainer(c.process, func() error {
		path, err := lookPath(c.args[0], spec.Env)
		if err != nil {
			return err
		}
		cmd.Path = path
		return cmd.Start()
	})
	if end != nil {
		_ = end.Close()
	}
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
	defer stop()
	if terminal != nil {
		c.converse(terminal)
	}
	err = cmd.Wait()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if cmd.ProcessState == nil {
		return err
	}
	if code := exitCode(cmd.ProcessState); code != 0 {
		return exitError{int(code)}
	}
	return nil
}

// converse copies between a terminal and the streams until the other end is closed.
func (c command) converse(terminal *os.File) {
	if c.in != nil {
		go func() { _, _ = io.Copy(terminal, c.in) }()
	}
	if c.sizes != nil {
		go func() {
			for size := range c.sizes {
				_ = unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ, &size)
			}
		}()
	}
	// The end of the last process on the terminal reads as an error.
	_, _ = io.Copy(c.out, terminal)
}

// openTerminal opens both ends of a new terminal.
func openTerminal() (terminal, end *os.File, err error) {
	terminal, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	number, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(terminal.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		end, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		_ = terminal.Close()
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	return terminal, end, nil
}

// runHook runs a command in a container for a probe or a hook. What it prints is told
// if it fails.
func (w *worker) runHook(ctx context.Context, call hookCall, args []string) error {
	// One writer for both is one descriptor: what it gets is in the order of the prints.
	var output bytes.Buffer
	err := command{
		process: call.attempt.Process, folder: w.attemptFolder(call.spec.Name, call.attempt.Number),
		args: args, out: &output, err: &output,
	}.run(ctx)
	if err != nil && output.Len() > 0 {
		return fmt.Errorf("%s", bytes.TrimSpace(output.Bytes()[:min(output.Len(), 1<<10)]))
	}
	return err
}
