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

func start(cmd *exec.Cmd, spec Spec) error {
	if spec.Namespace == "" && spec.Mounts == "" {
		return cmd.Start()
	}
	return OnThread(func() error {
		if spec.Namespace != "" {
			err := Enter(shape.NamespacePath(spec.Namespace), unix.CLONE_NEWNET)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%w; bring the lab up again", err)
			} else if err != nil {
				return err
			}
		}
		if spec.Mounts != "" {
			if err := EnterMounts(spec.Mounts); err != nil {
				return err
			}
		}
		return cmd.Start()
	})
}

// OnThread calls a function on a new thread that ends afterwards, so that the function may move the
// thread to other namespaces.
func OnThread(f func() error) error {
	done := make(chan error)
	go func() {
		// A goroutine that ends while locked to its thread ends the thread. The main thread would
		// not end. It represents the process in /proc and must not be changed, so use another one.
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

// Enter moves this thread into the namespace at a path. The kind is one of CLONE_NEW…. Call it
// within OnThread.
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

// EnterMounts moves this thread into the mount namespace at a path. Call it within OnThread.
func EnterMounts(path string) error {
	// Threads share their root and working directory by default. The kernel lets no such thread
	// change its mount namespace.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("entering namespace %s: %w", path, err)
	}
	return Enter(path, unix.CLONE_NEWNS)
}

func remedy(err error) string {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		return "run as root, in a container with all privileges"
	}
	return "the kernel must offer namespaces"
}
