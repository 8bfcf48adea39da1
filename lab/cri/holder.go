package cri

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// HoldProcesses is the first process of the PID namespace that the containers of a pod share. It
// reaps orphaned processes there. "vicinity-lab internal hold" runs it.
func HoldProcesses() error {
	unix.CloseOnExec(reportDescriptor)
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, unix.SIGCHLD)
	pipe := os.NewFile(reportDescriptor, "record")
	_, err := pipe.Read(make([]byte, 1))
	_ = pipe.Close()
	if err != nil {
		return fmt.Errorf("the runtime ended before it recorded this process: %w", err)
	}
	for range ended {
		for pid := 1; pid > 0; {
			pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
	}
	return nil
}

// holdProcesses makes the PID namespace that the containers of a sandbox share, and records its first
// process.
func (r *host) holdProcesses(s *sandbox) error {
	pipe, recorded, err := os.Pipe()
	if err != nil {
		return err
	}
	defer recorded.Close()
	cmd := r.command(holdCommand)
	cmd.ExtraFiles = []*os.File{pipe}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: unix.CLONE_NEWPID}
	err = cmd.Start()
	_ = pipe.Close()
	if err != nil {
		return fmt.Errorf("making the PID namespace of the pod: %w", err)
	}
	first, err := findProcess(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }()
	if err != nil {
		return fmt.Errorf("making the PID namespace of the pod: %w", err)
	}
	s.FirstProcess = &first
	if err := s.save(); err != nil {
		return err
	}
	_, err = recorded.Write([]byte{0})
	return err
}

// releaseProcesses kills the remaining processes of that PID namespace.
func (s *sandbox) releaseProcesses() error {
	if s.FirstProcess == nil {
		return nil
	}
	if err := s.FirstProcess.signal(unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending the PID namespace of the pod: %w", err)
	}
	return nil
}
