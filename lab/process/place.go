package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"

	"golang.org/x/sys/unix"

	"vicinity.dev/vicinity/lab/shape"
	"vicinity.dev/vicinity/lab/state"
)

// Place is where a process runs. The zero Place is that of this process.
type Place struct {
	// Namespace names a network namespace.
	Namespace string
	// PrivateMounts gives the process a mount namespace of its own: what it mounts
	// is seen by nobody else. Mounts imply it.
	PrivateMounts bool
	Mounts        []Mount
	// Join is the number of a process whose network and files are shared, instead
	// of all the above.
	Join int
}

// Mount shows a file or a folder at another path, to one process. The path need not
// be there: it appears for this process, and nothing is made on disk.
type Mount struct {
	Source, Target string
	ReadOnly       bool
}

// StartIn starts a command at a place. The caller waits for it as for any command; it
// has a record only if Start made it, and is found by StopAll if its environment
// holds the Marker.
func StartIn(d state.Dir, cmd *exec.Cmd, place Place) error {
	if place.Namespace == "" && !place.PrivateMounts && len(place.Mounts) == 0 && place.Join == 0 {
		return cmd.Start()
	}
	return OnThread(func() error { return startHere(d, cmd, place) })
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

// startHere moves this thread to the place and starts the command there.
func startHere(d state.Dir, cmd *exec.Cmd, place Place) error {
	if place.Join != 0 {
		if err := join(place.Join); err != nil {
			return err
		}
		return cmd.Start()
	}
	if place.Namespace != "" {
		if err := enterNetwork(shape.NamespacePath(place.Namespace)); err != nil {
			return err
		}
	}
	if place.PrivateMounts || len(place.Mounts) > 0 {
		if err := privateMounts(); err != nil {
			return err
		}
		view := files{scratch: d.Root(), made: map[string]bool{}}
		for _, mount := range place.Mounts {
			if err := view.mount(mount); err != nil {
				return fmt.Errorf("mounting %s at %s: %w", mount.Source, mount.Target, err)
			}
		}
	}
	return cmd.Start()
}

// enterNetwork moves this thread into a network namespace.
func enterNetwork(path string) error {
	namespace, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("entering a network namespace: %w; bring the lab up again if it is gone", err)
	}
	defer namespace.Close()
	if err := unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("entering network namespace %s: %w; %s", path, err, remedy(err))
	}
	return nil
}

// join moves this thread to the network and the files of a process.
func join(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("joining process %d: %w", pid, err)
	}
	joined := os.NewFile(uintptr(fd), "process")
	defer joined.Close()
	// A thread that shares its root and working directory with others cannot move.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("joining process %d: %w", pid, err)
	}
	if err := unix.Setns(fd, unix.CLONE_NEWNET|unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("joining process %d: %w; %s", pid, err, remedy(err))
	}
	return nil
}

// privateMounts gives this thread a mount namespace. What is mounted or unmounted
// outside is still seen inside, so that a namespace removed outside is not held here.
func privateMounts() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("making a mount namespace: %w; %s", err, remedy(err))
	}
	if err := unix.Mount("", "/", "", unix.MS_SLAVE|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("making a mount namespace: %w; %s", err, remedy(err))
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
