package cri

import (
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

type command struct {
	process processID
	// folder is the folder of the container, whose spec has the environment.
	folder string
	args   []string
	in     io.Reader
	out    io.Writer
	err    io.Writer
	// terminal gives the command a terminal, which is resized to what sizes yields.
	terminal bool
	sizes    <-chan remotecommand.TerminalSize
}

// exitError reports an exit code other than 0. It implements what remotecommand asks for.
type exitError struct{ code int }

func (e exitError) Error() string   { return fmt.Sprintf("command terminated with exit code %d", e.code) }
func (e exitError) String() string  { return e.Error() }
func (e exitError) Exited() bool    { return true }
func (e exitError) ExitStatus() int { return e.code }

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
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: spec.credential()},
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
		// Not exec's own copy: Wait would wait for the end of the input.
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
	if err != nil && !c.process.isAlive() {
		return c.process.ended()
	}
	if err != nil {
		return err
	}
	started, _ := findProcess(cmd.Process.Pid) // one that ended is nobody
	if !c.process.isAlive() {
		// The container ended in the meantime, and its keeper did not see this process.
		_ = started.killGroup()
	}
	spoken := make(chan struct{})
	go func() {
		defer close(spoken)
		if terminal != nil {
			c.converse(ctx, terminal)
		}
	}()
	ended := make(chan error, 1)
	go func() {
		// Whatever the client does: a container does not end before its processes are waited for.
		err := cmd.Wait()
		<-spoken
		ended <- err
	}()
	select {
	case err = <-ended:
	case <-ctx.Done():
		// Processes that it started in other sessions may hold its streams open: do not
		// wait for them.
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

// converse copies between a terminal and the streams until the terminal's other end is
// closed.
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

const terminalKind = "TERM=xterm"

func openTerminal() (terminal, end *os.File, err error) {
	// Non-blocking, so that Close interrupts a read.
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
