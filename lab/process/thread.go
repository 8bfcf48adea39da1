package process

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/shape"
)

// start starts a command in a network namespace, or in that of this process if it has no
// name. The caller waits for the command.
func start(cmd *exec.Cmd, namespace string) error {
	if namespace == "" {
		return cmd.Start()
	}
	return OnThread(func() error {
		err := Enter(shape.NamespacePath(namespace), unix.CLONE_NEWNET)
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%w; bring the lab up again", err)
		} else if err != nil {
			return err
		}
		return cmd.Start()
	})
}

// OnThread calls a function on a thread of its own, which ends afterwards: whatever
// namespaces the function moved its thread to, nothing else ever runs there.
func OnThread(f func() error) error {
	done := make(chan error)
	go func() {
		// A goroutine that ends while it holds its thread ends the thread, except for
		// the main one: that would stay for ever, and stand for the whole process in
		// what the kernel says about it. So it is held only while another is found.
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- OnThread(f)
			return
		}
		done <- f()
	}()
	return <-done
}

// Enter moves this thread into the namespace that a file stands for, of one of the
// kernel's kinds (CLONE_NEW…). It is for functions that OnThread calls.
func Enter(path string, kind int) error {
	namespace, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("opening a namespace: %w", err)
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), kind); err != nil {
		return fmt.Errorf("entering namespace %s: %w; %s", path, err, remedy(err))
	}
	return nil
}

// remedy says what to do about an error of a namespace.
func remedy(err error) string {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return "run as root, in a container with all privileges"
	}
	return "the kernel must offer namespaces"
}
