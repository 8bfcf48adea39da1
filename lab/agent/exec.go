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
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
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
	sizes    <-chan remotecommand.TerminalSize
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
		cmd.Env = append([]string{terminalKind}, spec.Env...)
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
	started, _ := findProcess(cmd.Process.Pid) // one that ended is nobody
	if !c.process.alive() {
		// The container ended meanwhile, and its keeper saw nothing of this.
		_ = started.killGroup()
	}
	ended := make(chan error, 1)
	go func() {
		if terminal != nil {
			c.converse(ctx, terminal)
		}
		ended <- cmd.Wait()
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		// What it left in sessions of its own may hold its streams until the container
		// ends, and is not waited for.
		_ = started.killGroup()
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
func (c command) converse(ctx context.Context, terminal *os.File) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if c.in != nil {
		go func() { _, _ = io.Copy(terminal, c.in) }()
	}
	go resize(ctx, terminal, c.sizes)
	// The end of the last process on the terminal reads as an error.
	_, _ = io.Copy(c.out, terminal)
}

// resize makes a terminal as large as it is told to be, until the context ends.
func resize(ctx context.Context, terminal *os.File, sizes <-chan remotecommand.TerminalSize) {
	for {
		select {
		case <-ctx.Done():
			return
		case size, ok := <-sizes:
			if !ok || setSize(terminal, size.Height, size.Width) != nil {
				return
			}
		}
	}
}

func setSize(terminal *os.File, rows, columns uint16) error {
	raw, err := terminal.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: rows, Col: columns})
	})
	return errors.Join(err, failed)
}

// terminalKind is the variable that says what programs may expect of a terminal.
const terminalKind = "TERM=xterm"

// openTerminal opens both ends of a new terminal.
func openTerminal() (terminal, end *os.File, err error) {
	// Not blocking, so that to close it ends a read.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("opening a terminal: %w", err)
	}
	terminal = os.NewFile(uintptr(fd), "/dev/ptmx")
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
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
	// Of one that was not waited for others may still write.
	var exit exitError
	if errors.As(err, &exit) && output.Len() > 0 {
		return fmt.Errorf("%s", bytes.TrimSpace(output.Bytes()[:min(output.Len(), 1<<10)]))
	}
	return err
}
