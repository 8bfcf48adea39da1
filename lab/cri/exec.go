package cri

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
)

type command struct {
	process processID
	// folder is the folder of the container. The spec in it has the environment.
	folder string
	args   []string
	in     io.Reader
	out    io.Writer
	err    io.Writer
}

// exitError reports an exit code other than 0. It implements k8s.io/utils/exec.ExitError, which
// remotecommand expects.
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
	if c.in != nil {
		// With cmd.Stdin, Wait would wait for the end of the input.
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
	if err != nil && !c.process.isAlive() {
		return c.process.exitedError()
	}
	if err != nil {
		return err
	}
	started, _ := findProcess(cmd.Process.Pid) // an ended process has no ID
	if !c.process.isAlive() {
		// The container ended in the meantime, and its keeper did not see this process.
		_ = started.killGroup()
	}
	ended := make(chan error, 1)
	// Even if the client is gone: a container must not end before its processes are reaped.
	go func() { ended <- cmd.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		// Do not wait: processes that it started in other sessions may hold its streams open.
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
